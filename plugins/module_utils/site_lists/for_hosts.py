# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of a site's lists that are for some hosts alone (`hosts=gn[0-9]+`)."""

from __future__ import annotations

import re
import typing as t


class ForHosts(t.Protocol):
    """An entry: its name, and a regular expression for names of the hosts that have it; "": all have it."""

    @property
    def name(self) -> str:
        """As it is named in the list."""

    @property
    def hosts(self) -> str:
        """The expression."""


Entry = t.TypeVar("Entry", bound=ForHosts)


def entries_for(entries: t.Iterable[Entry], host: str) -> tuple[Entry, ...]:
    """Return the entries of a host, of several of one name the first; its short name counts too, in any case.

    Args:
        entries: of the site's list.
        host: its name.
    """
    names = (host, host.partition(".")[0])
    found: dict[str, Entry] = {}
    for entry in entries:
        if not entry.hosts or any(re.fullmatch(entry.hosts, name, re.IGNORECASE) for name in names):
            found.setdefault(entry.name, entry)
    return tuple(found.values())

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the batch server is set, as far as vTorque depends on it."""

from __future__ import annotations

import re
import typing as t

from ..api import ServerSettings
from ..host_match import same_host
from .permissions import server_settings


def parse(output: str) -> ServerSettings:
    """Out of what `qmgr -c "print server"` wrote.

    Args:
        output: what it wrote; what is not set is as Torque has it by default (torque.md).
    """
    found = server_settings(output)
    values = dict(found)
    return ServerSettings(
        tuple(value for name, value in found if name == "operators"),
        tuple(value for name, value in found if name == "managers"),
        values.get("query_other_jobs", "False") == "True",
        values.get("down_on_error", "True") != "False",
    )


def lets_root(who: t.Iterable[str], host: str) -> bool:
    """Return whether root of a host is among them.  `*` stands for any part of a host's name, as in Torque.

    Args:
        who: `user@host`.
        host: its name.
    """
    for one in who:
        user, _at, place = one.strip().partition("@")
        if user in ("root", "*") and (same_host(place, host) or _fits(place, host)):
            return True
    return False


def _fits(pattern: str, host: str) -> bool:
    if "*" not in pattern:
        return False
    # `*.cluster` names hosts by their full names, of which only the first part may be known
    full = re.escape(pattern.lower()).replace(r"\*", ".*")
    return re.fullmatch(full, host.lower()) is not None or (pattern.startswith("*.") and "." not in host)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether two spellings name one host."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    pass


def same_host(one: str, other: str) -> bool:
    """Return whether two names mean one host.

    The batch system, the node itself and a node file may each spell it their way.

    Args:
        one: a host name, short or full, in any case.
        other: the same.

    Returns:
        True when they are one name, or one is short and is the other's first label; `n1` is not `n10`.
    """
    one, other = one.lower().rstrip("."), other.lower().rstrip(".")
    if "." in one and "." in other:
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]

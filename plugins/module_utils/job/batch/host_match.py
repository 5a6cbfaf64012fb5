# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether two spellings name one host, and which node one means."""

from __future__ import annotations

import typing as t

from ...errors import SiteFault

if t.TYPE_CHECKING:
    from .api import BatchNode


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


def find_node(
    nodes: t.Sequence[BatchNode],
    name: str,
    server: str = "the batch server",
    is_same: t.Callable[[str, str], bool] = same_host,
) -> BatchNode:
    """Return the one node that a name means: the one of that spelling, else of another that names the same host.

    Args:
        nodes: all that the batch system knows.
        name: a host name, short or full, in any case.
        server: who knows them, for the message.
        is_same: whether two spellings name one host.

    Raises:
        SiteFault: there is none, or more than one.
    """
    found = [node for node in nodes if node.name == name] or [node for node in nodes if is_same(node.name, name)]
    if len(found) != 1:
        raise SiteFault(f"node {name}", f"{server} knows {len(found) or 'no'} nodes of that name")
    return found[0]

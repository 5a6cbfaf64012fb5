# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets of nodes as people of clusters write and read them: `cn[01-16],fe` (ClusterShell's, without its groups)."""

from __future__ import annotations

import typing as t

from ....module_utils.errors import UserFault
from ....module_utils.slow_libraries import load_library


def fold_names(names: t.Sequence[str]) -> str:
    """Names in one short word.

    Args:
        names: host names.
    """
    if len(names) < 2:
        return "".join(names)
    sets = load_library("ClusterShell.NodeSet")
    return str(sets.NodeSet.fromlist(list(names), resolver=sets.RESOLVER_NOGROUP))


def expand_names(names: t.Sequence[str]) -> tuple[str, ...]:
    """The names that are meant, each once, in the order in which they were given.

    Args:
        names: each a name, several with commas or blanks between them, or a folded set.

    Raises:
        UserFault: one is no set of nodes, or there is none.
    """
    sets = load_library("ClusterShell.NodeSet")
    found: dict[str, None] = {}
    for word in names:
        for part in word.split():
            try:
                found |= dict.fromkeys(map(str, sets.NodeSet(part.strip(","), resolver=sets.RESOLVER_NOGROUP)))
            except sets.NodeSetException as error:
                raise UserFault(f"nodes {part[:80]!r}", str(error)[:200], "as cn1,cn2 or cn[01-16]") from None
    if not found:
        raise UserFault("no node", "was named")
    return tuple(found)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of roles that nobody reads, because they were spelt otherwise than the one that was meant."""

from __future__ import annotations

import difflib
import typing as t

from ..request.value_types import KeyFault

ALIKE = 0.8
"""How much of a word must be the same; roles of the site's own may be called alike, and have variables of their own."""


def misspelt(names: t.Iterable[str], known: t.Mapping[str, t.Collection[str]]) -> tuple[KeyFault, ...]:
    """What is nearly a variable of a role.

    Args:
        names: of variables.
        known: the variables of each role, by what they begin with.

    Returns:
        A fault for each, which names the variable that was probably meant.
    """
    faults = []
    parameters = {
        word: name for prefix, variables in known.items() for name in variables for word in [name[len(prefix) :]]
    }
    for name in sorted(names):
        prefix = next((prefix for prefix in known if name.startswith(prefix)), None)
        if prefix is None or name in known[prefix]:
            continue
        own = [variable[len(prefix) :] for variable in known[prefix]]
        word = name[len(prefix) :]
        near = [prefix + found for found in difflib.get_close_matches(word, own, n=1, cutoff=ALIKE)]
        meant = [parameters[word]] if word in parameters else near
        if meant:
            message = f"no such variable of the role; did you mean {meant[0]}? One of your own needs another name"
            faults.append(KeyFault(name, "", message))
    return tuple(faults)

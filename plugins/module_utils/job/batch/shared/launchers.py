# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What launchers of MPI must hear in a guest: the hosts stand in a file, and ssh reaches them."""

from __future__ import annotations

import typing as t

from ....frozen import frozen

HOSTS = b"a file of hosts"
"""Stands for the path of the file in a guest with a host's name for each slot."""


@frozen
class LauncherVariable:
    """One variable for a launcher of MPI.

    Attributes:
        name: of the variable.
        value: its value, or `HOSTS`.
        source: where it is written that the launcher reads it, and what it would do without.
        aliases: other names for the same; who has set one of them has decided.
        always: whether it is the product's own variable, which nobody else sets.
    """

    name: bytes
    value: bytes
    source: str
    aliases: tuple[bytes, ...] = ()
    always: bool = False


SLOT_A_NAME = LauncherVariable(
    b"PRTE_MCA_prte_set_default_slots",
    b"1",
    "Open MPI 5.0.7: a host that a file names once gets as many slots as it has cores, and a bare host may give fewer",
    (b"OMPI_MCA_prte_set_default_slots",),
)
"""A host has as many slots as names, in the job's file of hosts and in one behind `--hostfile`."""


def launcher_variables(
    table: t.Iterable[LauncherVariable], variables: t.Mapping[bytes, bytes], hosts: bytes
) -> dict[bytes, bytes]:
    """Return what launchers of MPI get besides the job's environment.

    Args:
        table: of the batch system.
        variables: the job's; what it has set, under whichever of the names, is left to it.
        hosts: path of the file with the hosts; empty: there is none.
    """
    found: dict[bytes, bytes] = {}
    for entry in table:
        value = hosts if entry.value == HOSTS else entry.value
        if value and (entry.always or not any(name in variables for name in (entry.name, *entry.aliases))):
            found[entry.name] = value
    return found

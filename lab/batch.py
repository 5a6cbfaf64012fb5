# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which batch systems a lab can have, and all that the rest of the lab asks of one."""

from __future__ import annotations

import dataclasses
import typing as t

from . import torque_stand_in
from .slurm import daemons as slurm
from .slurm import key
from .slurm import leftovers as slurm_leftovers
from .system.state import LabError, NodePlan, State

Run = t.Callable[[t.Sequence[str]], str]
"""Runs a command on the front end; what it wrote, or a LabError."""


def _nothing(*_arguments: t.Any) -> None:
    """Of a batch system that has no such thing."""


@dataclasses.dataclass(frozen=True)
class System:
    """A batch system, as the lab sees it.

    Attributes:
        install: puts commands and configuration onto a node that boots; what the product has is there already.
        start: starts the daemons of a node, at boot or again; more words are options of the daemon.
        leftovers: what there is of jobs on this node, a line each; the argument says when the node was started.
        programs: that the machine must have.
        packages: what brings them.
        shared: a directory that the daemons of all nodes have in common; "": they reach each other by the network.
        make_secrets: makes what all nodes must know and nobody else, on the machine, before they boot.
        await_nodes: returns when the server counts on these nodes, after they said that their daemons run.
    """

    install: t.Callable[[NodePlan], None]
    start: t.Callable[..., None]
    leftovers: t.Callable[[float], t.Iterator[str]]
    programs: tuple[str, ...] = ()
    packages: str = ""
    shared: str = ""
    make_secrets: t.Callable[[State, t.Iterable[str]], None] = _nothing
    await_nodes: t.Callable[[Run, t.Sequence[str]], None] = _nothing


TORQUE, SLURM = "torque", "slurm"
SYSTEMS = {
    TORQUE: System(
        torque_stand_in.install, torque_stand_in.start, torque_stand_in.leftovers, shared=str(torque_stand_in.SOCKETS)
    ),
    SLURM: System(
        slurm.install, slurm.start, slurm_leftovers.leftovers, slurm.PROGRAMS, "lab/prepare.sh slurm",
        make_secrets=key.make, await_nodes=slurm.await_nodes,
    ),
}  # fmt: skip


def of(name: str) -> System:
    """The batch system of this name.

    Raises:
        LabError: there is none.
    """
    if name not in SYSTEMS:
        raise LabError(f"no batch system {name!r}: {' or '.join(SYSTEMS)}")
    return SYSTEMS[name]

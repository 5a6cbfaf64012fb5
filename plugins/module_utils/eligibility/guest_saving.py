# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests of a job could live through, and why not: the same answer at submission, for root, and on the node.

Sources: QEMU 7.2 and libvirt 9.0 refuse a domain with vhost-user-fs, a mounted 9p or an assigned device
("non-migratable device"); a `qemu-nbd` of a user's ends when its only client does.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..frozen import frozen

VIRTIOFS, PLAN9, PCI, SHARED_MEMORY, USER_DISK = "virtiofs", "9p", "pci", "shared memory", "user disk"
HUGE_PAGES, CELLS, VHOST_USER = "huge pages", "cells", "vhost-user"
REASONS: dict[str, str] = {
    VIRTIOFS: "it mounts a directory of its node by virtiofs",
    PLAN9: "it mounts a directory of its node by 9p",
    PCI: "it has a PCI device of its node",
    VHOST_USER: "it has a network card on a port of its node's Open vSwitch",
    SHARED_MEMORY: "it shares memory with other guests",
    USER_DISK: "a process of the user's serves its disk or image",
    HUGE_PAGES: "its memory is of huge pages, which the next job may take",
    CELLS: "its memory is bound to NUMA cells, which the next job may fill",
}
"""What a guest may have that its memory cannot be saved with, and that in a clause."""

UEFI, OSV, BARE_HOSTS, TERMINAL = "uefi", "osv", "bare hosts", "terminal"
NETWORKS = "networks"
NO_STORE, SESSION, BATCH = "no store", "session", "batch system"
REASONS_OF_JOBS: dict[str, str] = {
    **REASONS,
    NETWORKS: "its addresses on further networks are those of its node and place",
    UEFI: "its image boots by UEFI, whose variables are a file of its node",
    OSV: "nobody has tried to bring OSv back on another node",
    BARE_HOSTS: "some of its hosts stay bare, and their processes cannot be saved",
    TERMINAL: "it has a terminal, whose connection would not return",
    NO_STORE: "this site has no directory for checkpoints (checkpoint_dir)",
    SESSION: "this site lets guests of suspended jobs run on (suspend_guests: session)",
    BATCH: "it was not tried with this batch system",
}
"""What a job may have that it cannot begin again from saved guests, or on another node, and that in a clause."""
CHECKPOINTS, PINNED, NO_SPARES = "checkpoints", "pinned", "no spares"
STAYS = "batch system of moves"
REASONS_OF_MOVES: dict[str, str] = {
    NO_SPARES: "this site has no spare nodes (spare_nodes)",
    STAYS: REASONS_OF_JOBS[BATCH],
    CHECKPOINTS: "it has checkpoints, which need its guests on its own nodes",
    BARE_HOSTS: "some of its hosts stay bare, and trust the addresses of its nodes alone",
    PINNED: "cores of its node were chosen for it",
    NETWORKS: REASONS_OF_JOBS[NETWORKS],
    **{name: reason for name, reason in REASONS.items() if name not in (HUGE_PAGES, CELLS)},
    HUGE_PAGES: "its memory is of huge pages of its node",
    CELLS: "its memory is bound to NUMA cells of its node",
    UEFI: REASONS_OF_JOBS[UEFI],
    OSV: "nobody has tried to move OSv",
}
"""What a job may have that its guests cannot go on, on another node, and that in a clause."""


def _clause() -> t.Any:
    return dataclasses.field(default="", metadata={"pattern": r"[^\x00-\x1f\x7f]{0,2000}"})  # pylint: disable=invalid-field-call


@frozen
class Survival:
    """What the guests of a job live through, each in a clause.

    Attributes:
        suspended: what becomes of them while the batch system has suspended the job.
        checkpoint: `no, because ...`: whether the job can begin again from a saved state.
        moved: `no, because ...`: whether they can go on, on another node, without an end of the job.
    """

    suspended: str = _clause()
    checkpoint: str = _clause()
    moved: str = _clause()


def judge_survival(mode: str, found: t.Collection[str]) -> Survival:
    """Return what the guests of a job live through.

    Args:
        mode: the site's `suspend_guests`.
        found: what the job has, names of `REASONS_OF_JOBS` among others.
    """
    reasons, against_moves = objections_to_checkpoint(found), objections_to_move(found)
    no = "no, because "
    return Survival(
        describe_suspension(mode, found),
        no + "; ".join(reasons) if reasons else "yes, with checkpoint=on or checkpoint_every=",
        no + "; ".join(against_moves) if against_moves else "yes, to a spare node by an administrator",
    )


def objections_to_checkpoint(found: t.Collection[str]) -> tuple[str, ...]:
    """Return what of a job keeps it from a start out of saved guests; () where nothing does.

    Args:
        found: what it has, names of `REASONS_OF_JOBS` among others.
    """
    return tuple(reason for name, reason in REASONS_OF_JOBS.items() if name in found)


def objections_to_move(found: t.Collection[str]) -> tuple[str, ...]:
    """Return what of a job keeps its guests on their node while they run; () where nothing does.

    Args:
        found: what it has, names of `REASONS_OF_MOVES` among others.
    """
    return tuple(reason for name, reason in REASONS_OF_MOVES.items() if name in found)


def objections_to_saving(found: t.Collection[str]) -> tuple[str, ...]:
    """Return why a guest cannot be saved; () where it can.

    Args:
        found: what it has, names of `REASONS` among others.
    """
    return tuple(reason for name, reason in REASONS.items() if name in found)


def describe_suspension(mode: str, found: t.Collection[str]) -> str:
    """Return what becomes of the guests of a job that the batch system suspends, in a clause.

    Args:
        mode: the site's `suspend_guests`.
        found: see `objections_to_saving`.
    """
    if mode == "session":
        return "its guests run on, and its script alone stops"
    reasons = "; ".join(objections_to_saving(found))
    if mode == "pause":
        return "its guests are paused, and stay in memory"
    return f"its guests are paused, and not saved: {reasons}" if reasons else "its guests are saved to disk"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of Slurm the doctor checks: the launchers of Prolog and Epilog, and settings that only the site may write."""

from __future__ import annotations

import pathlib
import re
import typing as t

from ....errors import SiteFault
from ....wire.health_report import BAD, INSTALL, WARN, Finding
from ..shared.hook_program import why_unsafe
from .adapter import Slurm

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchSystem

PLACE = pathlib.Path("/etc/vtorque/slurm")
LAUNCHERS = ("prolog", "epilog")
VERSION = (22, 5)
"""The one whose answers are read.  Older ones do not tell Prolog a job's comment and which start it is; in newer ones
numbers and states of `squeue --json` have other forms, and `sinfo --json` lists no nodes."""
BOOT_S = 300
"""Seconds that a Prolog may take by default, and a margin."""


def node_checks(policy: Policy, node: str, *, owner_uid: int, thorough: bool) -> dict[str, t.Callable[[], Finding]]:
    """The checks of a node that only Slurm has, by their names; see `DoctorAdapter.node_checks`."""
    # rights are not looked at: munge makes root of each node an administrator
    return {"hooks": lambda: look_at_hooks(PLACE, owner_uid)}


def look_at_hooks(place: pathlib.Path, owner_uid: int = 0) -> Finding:
    """Are our launchers in place, and root's alone?  `look_at_server` tells whether Slurm calls them.

    Args:
        place: their directory.
        owner_uid: whose they must be.
    """
    wrong = [f"{name} {why}" for name in LAUNCHERS if (why := why_unsafe(place / name, owner_uid))]
    if wrong:
        return Finding("hooks", BAD, BAD, f"in {place}: {', '.join(wrong)}", INSTALL)
    return Finding("hooks")


def look_at_server(batch: BatchSystem, nodes: t.Sequence[str], preface: str = "") -> Finding:
    """Is Slurm set as vTorque needs it?

    Args:
        batch: is asked.
        nodes: compute nodes of the site.
        preface: not used: JSON has none.
    """
    try:
        settings = batch.configuration() if isinstance(batch, Slurm) else {}
    except SiteFault as error:
        return Finding("server", WARN, "?", f"it does not tell how it is set: {error}")
    version = settings.get("SLURM_VERSION", "")
    if tuple(map(int, re.findall(r"[0-9]+", version)[:2])) != VERSION:
        words = f"it is Slurm {version or '(unknown)'}, and vTorque reads the answers of 22.05 alone"
        return Finding("server", BAD, BAD, words, "Slurm 22.05")
    flags = settings.get("PrologFlags", "").lower().split(",")
    if not {"alloc", "contain"} & set(flags):
        words = "without PrologFlags=Alloc a job's Prolog runs on its first node alone, or not before the job"
        return Finding("server", BAD, BAD, words, "write PrologFlags=Alloc,Contain into slurm.conf")
    # a VM job's guests boot in Prolog, and meanwhile its node may register
    found = re.match(r"[0-9]+", settings.get("BatchStartTimeout", ""))
    if found and int(found[0]) < BOOT_S:
        words = (
            f"BatchStartTimeout is {found[0]} s: a job whose guests boot for longer is taken for lost, and queued again"
        )
        return Finding("server", BAD, BAD, words, f"write BatchStartTimeout={BOOT_S} into slurm.conf")
    for name, launcher in (("Prolog", "prolog"), ("Epilog", "epilog")):
        if settings.get(name, "(null)") == "(null)":
            words = f"it calls no {name}, and no job runs in a virtual machine"
            return Finding("server", BAD, BAD, words, f"write {name}={PLACE / launcher} into slurm.conf")
    return Finding("server")

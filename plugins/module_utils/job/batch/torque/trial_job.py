# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a job of `vmgr selftest` is submitted by qsub, and by what it knows its nodes."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ..api import BatchSystem

COUNTS = "$PBS_NP $PBS_NUM_NODES"
NODE_FILE = "$PBS_NODEFILE"
DELETE = "qdel"
NODES = "pbsnodes"


def options(name: str, directory: str, where: str, queue: str | None) -> tuple[str, ...]:
    """Return the options of qsub; see `TrialAdapter.options`."""
    files = ("-N", name, "-o", f"{directory}/out", "-e", f"{directory}/err")
    return (*files, "-l", f"nodes={where}", *(("-q", queue) if queue else ()))


def job_id(output: str, batch: BatchSystem) -> str:
    """Return the last word, which is the job's id; "": there is none."""
    return ["", *output.split()][-1]

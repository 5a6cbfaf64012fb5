# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a job of `vmgr selftest` is submitted by sbatch, and by what it knows its nodes."""

from __future__ import annotations

import re
import typing as t

from .. import ids
from ..adapter import Slurm

if t.TYPE_CHECKING:
    from ...api import BatchSystem

COUNTS = "$((SLURM_CPUS_ON_NODE * SLURM_JOB_NUM_NODES)) $SLURM_JOB_NUM_NODES"
NODE_FILE = "$HYDRA_HOST_FILE"
DELETE = "scancel"
NODES = "sinfo"


def options(name: str, directory: str, where: str, queue: str | None) -> tuple[str, ...]:
    """Return the options of sbatch; see `TrialAdapter.options`."""
    nodes = (f"--nodes={where}",) if where.isdecimal() else ("--nodes=1", f"--nodelist={where}")
    files = (f"--job-name={name}", f"--output={directory}/out", f"--error={directory}/err")
    return (*files, *nodes, *((f"--partition={queue}",) if queue else ()))


def job_id(output: str, batch: BatchSystem) -> str:
    """Return the job's id, with the cluster's name by the controller's word; "": sbatch named no job.

    Raises:
        SiteFault: the controller does not tell the cluster's name.
    """
    found = re.search(r"Submitted batch job ([0-9]+)", output)
    cluster = batch.configuration().get("ClusterName", "") if isinstance(batch, Slurm) else ""
    return ids.read(found[1], cluster) if found else ""

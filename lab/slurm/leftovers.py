# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm has of jobs on a node."""

from __future__ import annotations

import contextlib
import pathlib
import re
import typing as t

from . import configuration

OF_JOB = re.compile(r"job_[0-9]+")
"""A job's cgroup, of either version; what is below goes with it."""
MAY_STAY = re.compile(r"cred_state(\.old|\.new)?|hwloc_topo_[a-z]+\.xml")
"""What slurmd keeps in its spool directory for itself."""


def leftovers(began: float) -> t.Iterator[str]:
    """Cgroups of jobs, files and sockets of jobs and their steps, and the processes that serve steps.

    Args:
        began: when the node was started, in seconds since the epoch: slurmd lets stand what the steps of jobs that
            ended with the power have left.
    """
    for path in sorted(pathlib.Path("/sys/fs/cgroup").rglob("job_*")):
        if OF_JOB.fullmatch(path.name) and path.is_dir():
            yield f"job's cgroup {path}"
    for path in sorted((configuration.SPOOL / "slurmd").glob("*")):
        with contextlib.suppress(FileNotFoundError):
            if MAY_STAY.fullmatch(path.name) or path.lstat().st_ctime < began:
                continue
            yield f"spool file {path}"
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if path.read_text(encoding="utf-8", errors="replace").strip() == "slurmstepd":
                yield f"step {path.parent.name}"

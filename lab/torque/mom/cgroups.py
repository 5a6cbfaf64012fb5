# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cgroups of a job, as a MOM built with --enable-cgroups makes them (TORQUE 6.1: trq_cgroups.c).

`torque/<job id>` in each hierarchy.  Torque itself knows version 1 alone; on a machine with version 2 the same
directories are made there.  Cores are given by slot; a job that has its node to itself gets all of them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuset", "cpuacct", "memory", "devices")
PATIENCE_S = 5.0


def _parents() -> list[pathlib.Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [ROOT / name for name in CONTROLLERS if (ROOT / name / "cgroup.procs").exists()]


def make(job_id: str, slots: list[int] | None) -> None:
    """Make the job's cgroups.

    Args:
        job_id: names them.
        slots: the job's on this node; None: it has the node to itself.
    """
    for parent in _parents():
        place = parent / "torque"
        for group in (place, place / job_id):
            group.mkdir(mode=0o755, exist_ok=True)
            if parent == ROOT:
                controllers = (group.parent / "cgroup.subtree_control").read_text().split()
                if "cpuset" not in controllers:
                    (group.parent / "cgroup.subtree_control").write_text("+cpuset")
            elif parent.name == "cpuset":
                for file in ("cpuset.mems", "cpuset.cpus"):
                    (group / file).write_text((group.parent / file).read_text())
        if parent in (ROOT, ROOT / "cpuset"):
            cores = sorted(os.sched_getaffinity(0))
            # a lab's node may have more slots than its machine has cores
            mine = cores if slots is None else sorted({cores[slot % len(cores)] for slot in slots})
            (place / job_id / "cpuset.cpus").write_text(",".join(map(str, mine)))


def join(job_id: str) -> None:
    """Move this process, and what it will start, into the job's cgroups."""
    for parent in _parents():
        with contextlib.suppress(FileNotFoundError):
            (parent / "torque" / job_id / "cgroup.procs").write_text(str(os.getpid()))


def remove(job_id: str) -> None:
    """End whatever is still in the job's cgroups, and remove them."""
    end = time.monotonic() + PATIENCE_S
    for parent in _parents():
        group = parent / "torque" / job_id
        while group.is_dir() and time.monotonic() < end:
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                group.rmdir()
            except OSError:
                # whose parent is this very process has to be reaped by it, which the caller's loop does
                time.sleep(0.05)


def present() -> set[str]:
    """The jobs that have cgroups."""
    return {path.name for parent in _parents() for path in (parent / "torque").glob("*") if path.is_dir()}

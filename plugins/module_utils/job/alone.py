# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does a node hold one job alone?  That is asked before anything of a user's is ended on it."""

from __future__ import annotations

import pathlib

from .batch import BatchSystem, mom_files


def others(batch: BatchSystem, job_id: str, node: str, torque_home: pathlib.Path) -> tuple[str, ...]:
    """What else is on this node: by the server's word, and by the files of the MOM, who may know of more.

    Args:
        batch: the batch system.
        job_id: the job that should be alone.
        node: this node.
        torque_home: holds the MOM's files.

    Returns:
        Jobs, and files of jobs; () when it is alone.

    Raises:
        SiteFault: one of the two does not tell.
    """
    jobs = [f"job {other}" for other in sorted(batch.jobs(node) - {job_id})]
    return (*jobs, *(f"file {name}" for name in mom_files.others(torque_home, job_id)))

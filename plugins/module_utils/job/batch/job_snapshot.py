# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch server's word on a job, kept by the prologue for the programs that it starts: it is asked once a start."""

from __future__ import annotations

import pathlib

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...state import layout
from ...system import files
from .api import BatchJob

LIMIT = 1 << 24


def save_snapshot(job: BatchJob, directory: pathlib.Path) -> None:
    """Keep what the server says.

    Args:
        job: as it was read.
        directory: the run directory of this start.

    Raises:
        VTorqueError: it was not written.
    """
    files.write_json(directory / layout.JOB, job)


@leaves_nothing
def read_snapshot(job_id: str, directory: pathlib.Path) -> BatchJob | None:
    """What the server said when this start began.

    Args:
        job_id: the job.
        directory: the run directory of this start.

    Returns:
        The job; None when nothing of it was kept there.

    Raises:
        VTorqueError: what is there is not root's, or of another form.
    """
    try:
        data = files.read_json(directory / layout.JOB, limit=LIMIT)
    except FileNotFoundError:
        return None
    try:
        lists = {"slot_hosts": tuple(data["slot_hosts"]), "granted": tuple(data.get("granted", ()))}
        job = BatchJob(**{**data, **lists})
    except (KeyError, TypeError) as error:  # another version of ours kept it
        raise VTorqueError(f"{directory / layout.JOB}", f"is not of the form of this version: {error}") from error
    return job if job.job_id == job_id else None

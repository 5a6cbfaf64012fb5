# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the job's shell finds what root left for it, and for it alone."""

from __future__ import annotations

import os
import pathlib
import pwd

from ...errors import VTorqueError
from ...state import layout
from ...state.records import ReadyRecord, RefusalRecord
from ...system import files
from ...system.process import process_id
from ...system.process.process_id import ProcessId
from ..batch.own_job import OwnJob


class NoStartRecord(VTorqueError):
    """Root left no record for this process: nothing may be run."""


def read_start_record(own: OwnJob | None, job_id: str) -> tuple[pathlib.Path, ReadyRecord | RefusalRecord]:
    """Return the directory of this very start of the job, and its record.

    Args:
        own: the start that this process is the shell of (`ShellAdapter.own_job`).
        job_id: of the job, as its environment has it.

    Raises:
        NoStartRecord: there is none.
        VTorqueError: there is one that is not for this process, user, job or boot, or not root's.
    """
    if own is not None:
        # a name and no path: nothing outside of root's directory is ever read
        directory = layout.RUN_DIR / "jobs" / own.run_directory
        return directory, _read(directory, own.process, own.job_id)
    raise NoStartRecord(
        "nothing was run",
        f"no virtual machine was made ready for this start of job {job_id}",
        "vTorque's prologue did not run on this node or could not work: tell the administrator",
    )


def _read(directory: pathlib.Path, process: ProcessId | None, job_id: str) -> ReadyRecord | RefusalRecord:
    record: ReadyRecord | RefusalRecord
    try:
        try:
            record = RefusalRecord.from_dict(files.read_json(directory / layout.REFUSAL))
        except FileNotFoundError:
            record = ReadyRecord.from_dict(files.read_json(directory / layout.READY))
            _check(record, process)
    except FileNotFoundError:
        raise NoStartRecord(
            "nothing was run", f"{directory} holds no record: the virtual machine is not ready"
        ) from None
    except (OSError, TypeError, KeyError) as error:
        raise VTorqueError("nothing was run", f"the record in {directory} cannot be read: {error}") from error
    if record.job_id != job_id:
        raise VTorqueError("nothing was run", f"the record is one of job {record.job_id}, this is job {job_id}")
    return record


def _check(record: ReadyRecord, process: ProcessId | None) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    if record.boot_id != process_id.boot_id():
        raise VTorqueError("nothing was run", "the record is of another boot of this node")
    if process is not None and record.shell != process:
        raise VTorqueError("nothing was run", f"the record is for process {record.shell}, this is {process}")
    if record.user != user:
        raise VTorqueError("nothing was run", f"the record is for {record.user}, this is {user}")
    if not record.guests or record.guests[0].rank != 0:
        raise VTorqueError("nothing was run", "the record names no guest of rank 0")

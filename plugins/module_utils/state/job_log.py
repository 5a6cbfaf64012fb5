# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of a job, in the directory of its record."""

from __future__ import annotations

import os
import pathlib

from ..system import acl, files
from . import layout


def open_job_log(directory: pathlib.Path, reader_uid: int | None) -> int:
    """Open the log of a start for appending, and create what is missing of it.

    Args:
        directory: of the record of the start on this host.
        reader_uid: the job's owner, who may read it; None: not known, and no right changes.

    Returns:
        A descriptor.

    Raises:
        OSError: it cannot be opened.
        VTorqueError: its directory is not there, and was not made.
    """
    files.make_record_directory(directory, reader_uid)
    log = os.open(directory / layout.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if reader_uid is not None:
        acl.let_read(log, reader_uid)
    return log

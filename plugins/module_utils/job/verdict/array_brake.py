# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many members of one job array this node turned away within a minute: ended, or held already for that.

A node that refuses in a second would end all members of an array in minutes, one after the other.  The count lies in
one small file under /run: a reboot forgets it, and so does a minute.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import time

from ...effects import leaves_nothing
from ...errors import SiteFault
from ...state import layout
from ..batch.own_job import JobId

WINDOW_S = 60.0
FILE = "refused"
ROUNDED_S = 0.001
"""By what a moment may be written too late."""
LIMIT = 1 << 16
"""Bytes of the file that are read: a node that refuses 1,000 members a minute needs less."""


@leaves_nothing
def array_of(job_id: str) -> str:
    """The array of a member: `72[].head` of `72[1].head`; "" for a job that is none.

    Args:
        job_id: as the batch system names it.
    """
    try:
        return JobId.parse(job_id).array
    except SiteFault:  # a line of the file that nobody of ours wrote
        return ""


def record_refusal(job_id: str, run_dir: pathlib.Path = layout.RUN_DIR, now: float | None = None) -> int:
    """Note that this member is turned away here, and tell how many others of its array were within a minute.

    Args:
        job_id: the job; one that is no member of an array counts nothing.
        run_dir: root's directory of what is true while jobs run.
        now: seconds since the boot, on the clock that nobody sets.

    Returns:
        Their number; 0 also when the file cannot be used, which must not keep a verdict.
    """
    array = array_of(job_id)
    if not array:
        return 0
    try:
        fd = os.open(run_dir / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        # not before: what another one has noted meanwhile would lie in the future, and be forgotten
        now = time.clock_gettime(time.CLOCK_BOOTTIME) if now is None else now
        recent = [entry for entry in _entries(os.read(fd, LIMIT)) if now - WINDOW_S < entry[0] < now + ROUNDED_S]
        os.lseek(fd, 0, os.SEEK_SET)
        os.ftruncate(fd, 0)
        os.write(fd, "".join(f"{when:.3f} {member}\n" for when, member in (*recent, (now, job_id))).encode())
    except OSError:
        return 0
    finally:
        os.close(fd)
    return len({member for _when, member in recent if array_of(member) == array} - {job_id})


def _entries(text: bytes) -> list[tuple[float, str]]:
    found = re.findall(r"^([0-9]{1,12}\.[0-9]{3}) (\S{1,300})$", text.decode(errors="replace"), re.MULTILINE)
    return [(float(when), member) for when, member in found]

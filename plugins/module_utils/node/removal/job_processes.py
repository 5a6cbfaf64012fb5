# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of a job that are left on the node itself when the job is over: found by its session or its cgroup.

Never by their user: they may have others here.  That they are the user's is looked at besides, so that nothing of
root's, or of anybody else's, is ever ended.  A session and a cgroup cannot be joined by another's process, and their
numbers are not used again while anybody is in them.  A process is opened (pidfd), checked, and only then signalled.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import time
import typing as t

from ...frozen import frozen
from ...system.clock import Deadline
from ...system.process.process_id import ProcessId
from ...system.process.processes import ProcessHandle, open_process, wait_all
from ...text import printable
from ...time_budget import LEFTOVER_PROCESSES_GRACE_S, LEFTOVER_PROCESSES_ROUND_S

PROC = pathlib.Path("/proc")
COMMAND_LIMIT = 60
_ENDED = ("Z", "X")


@frozen
class Marks:
    """How a job's processes are known.

    Attributes:
        job_id: names its cgroup, where the MOM makes one.
        uid: its user's; never root's.
        session: its session on this node, as the batch system says; 0: it does not.
        shell: the process that became the job's shell, where that is known.
        over_ticks: when the job was over, in clock ticks since boot: what leads a session and began later is another's.
    """

    job_id: str
    uid: int
    session: int
    shell: ProcessId | None
    over_ticks: int


@frozen
class UserProcess:
    """A living process of the job's user.

    Attributes:
        ours: it belongs to the job.
    """

    pid: int
    command: str
    ours: bool

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def list_processes(marks: Marks) -> tuple[UserProcess, ...]:
    """Every process of the job's user on this node, by number."""
    session = _session(marks)
    pids = sorted(int(path.name) for path in PROC.glob("[0-9]*"))
    return tuple(seen for seen in (_seen(pid, marks, session) for pid in pids) if seen is not None)


def end(marks: Marks, deadline: Deadline) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """End what belongs to the job: first politely, then not.

    Args:
        marks: how it is known.
        deadline: when there must be an answer.

    Returns:
        What was ended, and what is left of the job, as words.
    """
    signalled: dict[int, UserProcess] = {}
    number, pause_s = signal.SIGTERM, LEFTOVER_PROCESSES_GRACE_S
    while ours := [seen for seen in list_processes(marks) if seen.ours]:
        if deadline.passed:
            return tuple(str(one) for pid, one in signalled.items() if pid not in _pids(ours)), tuple(map(str, ours))
        handles = [handle for seen in ours if (handle := _signal(seen.pid, marks, number)) is not None]
        signalled |= {seen.pid: seen for seen in ours}
        try:
            wait_all(handles, Deadline.after(deadline.left_s(pause_s)))
        finally:
            for handle in handles:
                handle.close()
        number, pause_s = signal.SIGKILL, LEFTOVER_PROCESSES_ROUND_S
    return tuple(map(str, signalled.values())), ()


def _pids(some: t.Iterable[UserProcess]) -> set[int]:
    return {one.pid for one in some}


def _signal(pid: int, marks: Marks, number: int) -> ProcessHandle | None:
    """Send a signal to a process of the job, and hold it; None: it has ended, or waits for the next round."""

    def is_ours() -> bool:
        seen = _seen(pid, marks, _session(marks))
        return seen is not None and seen.ours

    with contextlib.suppress(OSError):  # as many descriptors as there may be
        handle = open_process(pid, is_ours)
        if handle is not None:
            handle.send(number)
        return handle
    return None


def _session(marks: Marks) -> int:
    """The job's session; 0 when it is not known, or its number is another's by now.

    A number is free for others only when nobody is left in its session.  So whoever leads it tells whose it is; and
    where nobody leads it, those who are left are the job's.
    """
    if marks.session <= 1:
        return 0
    try:
        began = ProcessId.of(marks.session).start_ticks
    except (OSError, ValueError, IndexError):
        return marks.session
    if began > marks.over_ticks:
        return 0
    known = marks.shell is not None and marks.shell.pid == marks.session
    return 0 if known and marks.shell is not None and marks.shell.start_ticks != began else marks.session


def _seen(pid: int, marks: Marks, session: int) -> UserProcess | None:
    """What a process is to the job; None: it is not of the job's user, or is over."""
    process = PROC / str(pid)
    try:
        status = (process / "status").read_text(encoding="utf-8", errors="replace")
        uids = re.search(r"^Uid:\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", status, re.MULTILINE)
        # a program that is run with another's rights is not the user's to end, nor ours to end for them
        if uids is None or set(map(int, uids.groups())) != {marks.uid}:
            return None
        name, _parenthesis, fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
        state, _parent, _group, its_session = fields.split()[:4]
        cgroups = (process / "cgroup").read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
    if state in _ENDED or marks.uid == 0:
        return None
    ours = (session > 0 and int(its_session) == session) or in_cgroup(cgroups, marks.job_id)
    # its name is what it likes, line ends among it
    return UserProcess(pid, printable(name.partition("(")[2][:COMMAND_LIMIT]), ours)


def in_cgroup(text: str, job_id: str) -> bool:
    """Return whether a process is in the cgroup that a MOM makes for a job, or below it.

    TORQUE 6 makes `torque/<job id>` in the root of each hierarchy (trq_cgroups.c), and one below it for each task.

    Args:
        text: of /proc/PID/cgroup.
        job_id: of the job.
    """
    place = f"/torque/{job_id}"
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    return any(path == place or path.startswith(f"{place}/") for path in paths)


def ticks_of(moment: float) -> int:
    """A moment of the monotonic clock in clock ticks since boot, as /proc counts.

    Args:
        moment: seconds of the monotonic clock.
    """
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.monotonic() - moment)
    return int(since_boot * os.sysconf("SC_CLK_TCK"))

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job's guests began on this host by ssh: it ends with the job.

sshd tells each session where it comes from (SSH_CONNECTION, sshd(8)), and whatever the session starts inherits that,
also what leaves the session behind.  An address of a guest is the job's alone while the job lives.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import typing as t

from ...errors import VTorqueError
from ...system.clock import Deadline
from ...system.process.processes import ProcessHandle, wait_all
from ...time_budget import SESSION_END_S, SESSION_KILLED_S

PROC = pathlib.Path("/proc")
MARK = b"SSH_CONNECTION="
ROUNDS = 5
"""What is being ended may start something meanwhile."""


def begun(addresses: t.Collection[str], uid: int) -> tuple[int, ...]:
    """The processes of a user whose session came from one of these addresses, and the sshd that serves each session.

    Args:
        addresses: of guests.
        uid: the user's; nobody else's processes are looked at, so that nobody can have another's ended.
    """
    found: set[int] = set()
    for pid in _processes(uid):
        if _origin(pid) in addresses:
            found.add(pid)
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int(_stat(pid)[1])
                if _name(parent).startswith("sshd") and (PROC / str(parent)).stat().st_uid == uid:
                    found.add(parent)
    return tuple(sorted(found))


def end(addresses: t.Collection[str], uid: int) -> tuple[int, ...]:
    """End them.

    Args:
        addresses: of guests; nobody can come from there any more.
        uid: the user's.

    Returns:
        Which processes ended.

    Raises:
        VTorqueError: one did not end.
    """
    ended: list[int] = []
    for _round in range(ROUNDS):
        handles = {}
        for pid in begun(addresses, uid):
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = ProcessHandle(pid)
        if not handles:
            return tuple(ended)
        try:
            # what `open_process` does for one, with one look at /proc for all of them
            still = begun(addresses, uid)
            mine = {pid: handle for pid, handle in handles.items() if pid in still}
            late = _signal_all(mine.values(), signal.SIGTERM, SESSION_END_S)
            late = _signal_all(late, signal.SIGKILL, SESSION_KILLED_S)
        finally:
            for handle in handles.values():
                handle.close()
        if late:
            first = min(handle.pid for handle in late)
            raise VTorqueError(f"process {first}", f"did not end within {SESSION_KILLED_S:.0f} s of a KILL")
        ended += mine
    raise VTorqueError("what guests began here by ssh", f"starts faster than it ends, {len(ended)} processes so far")


def _signal_all(handles: t.Collection[ProcessHandle], number: signal.Signals, timeout_s: float) -> list[ProcessHandle]:
    """Send a signal to each and wait; those that are still there."""
    for handle in handles:
        handle.send(number)
    return wait_all(handles, Deadline.after(timeout_s))


def _processes(uid: int) -> t.Iterator[int]:
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == uid:
                yield int(path.name)


def _origin(pid: int) -> str:
    """Where the session of a process came from; "" for one of no session of sshd's."""
    try:
        block = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    for entry in block.split(b"\0"):
        if entry.startswith(MARK):
            word = entry[len(MARK) :].split(b" ")[0].decode("ascii", "replace")
            return word.removeprefix("::ffff:")
    return ""


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on (proc_pid_stat(5)); a name may hold blanks and parentheses."""
    return (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def _name(pid: int) -> str:
    return (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")

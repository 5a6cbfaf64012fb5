# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh to its guest that the prologue begins for the job's shell: where its streams lie, and its end.

Three FIFOs in the run directory, root's, which the job's user may read and write and nobody can replace.  The ssh
that has the first of them for its standard input is the connection: no file has to say which it is, and none can be
wrong.

    said        what goes to the far end; its end, when the job's shell closes it, is the end of the job
    out, err    what comes back
    early.json  the token with which the far end marks what it says; written last
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import stat

from ..errors import VTorqueError
from ..system.clock import Deadline
from ..system.process.processes import ProcessHandle, open_process, wait_all
from ..time_budget import EARLY_SSH_END_S
from . import layout

SAID, OUT, ERR = "early.said", "early.out", "early.err"
PROC = pathlib.Path("/proc")
COMMAND, BEFORE = b"ssh\n", b"setpriv\n"
"""What it is called, and for a moment before: setpriv, which turns from root to the user and becomes ssh."""


def end(directory: pathlib.Path) -> bool:
    """End the connection of a start and take away its streams; done again it does nothing.

    Args:
        directory: the run directory of the start.

    Returns:
        Whether there was one that lived.

    Raises:
        VTorqueError: it would not end.
    """
    with contextlib.suppress(FileNotFoundError):
        (directory / layout.EARLY).unlink()
    ended = kill(directory / SAID)
    for name in (SAID, OUT, ERR):
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
    return ended


def kill(lock_file: pathlib.Path) -> bool:
    """End the ssh that has this FIFO for its standard input, as far as the caller may.

    Args:
        lock_file: the FIFO.

    Returns:
        Whether there was one.

    Raises:
        VTorqueError: it would not end.
    """
    try:
        facts = lock_file.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISFIFO(facts.st_mode):
        raise VTorqueError(f"{lock_file}", "is no FIFO: the connection behind it is not known")
    place = lock_file.resolve()
    handles = [handle for pid in _holders(place, facts) if (handle := _kill(pid, place, facts)) is not None]
    try:
        deadline = Deadline.after(EARLY_SSH_END_S)
        if wait_all(handles, deadline):
            raise VTorqueError("the ssh that the prologue began", "was killed and would not end")
    finally:
        for handle in handles:
            handle.close()
    return bool(handles)


def send(directory: pathlib.Path, number: int) -> tuple[int, ...]:
    """Stop the connection of a start, or let it go on: while its guest stands still it must not give that up.

    Args:
        directory: the run directory of the start.
        number: SIGSTOP or SIGCONT.

    Returns:
        Its processes; () where there is none.
    """
    place = directory / SAID
    try:
        facts = place.lstat()
    except OSError:
        return ()
    if not stat.S_ISFIFO(facts.st_mode):
        return ()
    place, found = place.resolve(), []
    for pid in _holders(place, facts):
        if (handle := _signal(pid, place, facts, number)) is not None:
            handle.close()
            found.append(pid)
    return tuple(found)


def _holders(place: pathlib.Path, facts: os.stat_result) -> list[int]:
    return [int(path.name) for path in PROC.glob("[0-9]*") if _holds(int(path.name), place, facts)]


def _holds(pid: int, place: pathlib.Path, facts: os.stat_result) -> bool:
    """Return whether this is an ssh of a user's that reads from the FIFO, or what becomes one.

    What they run with root's rights is not ended for them, whatever they give it to read.  Of nothing else that others
    have open the facts are asked, which a file system that is away or hostile may never tell.
    """
    process = PROC / str(pid)
    try:
        command = (process / "comm").read_bytes()
        if command not in (COMMAND, BEFORE):
            return False
        if command == COMMAND:
            uids = re.search(rb"^Uid:\s*(\d+)", (process / "status").read_bytes(), re.MULTILINE)
            if uids is None or int(uids[1]) == 0:
                return False
        descriptor = process / "fd/0"
        return descriptor.readlink() == place and os.path.samestat(descriptor.stat(), facts)
    except OSError:  # it has ended, or is not ours to look at
        return False


def _kill(pid: int, place: pathlib.Path, facts: os.stat_result) -> ProcessHandle | None:
    """Kill an ssh that reads from the FIFO, and hold it; None: it has ended."""
    return _signal(pid, place, facts, signal.SIGKILL)


def _signal(pid: int, place: pathlib.Path, facts: os.stat_result, number: int) -> ProcessHandle | None:
    """Send a signal to an ssh that reads from the FIFO, and hold it; None: it has ended."""
    with contextlib.suppress(OSError):
        handle = open_process(pid, lambda: _holds(pid, place, facts))
        if handle is not None:
            handle.send(number)
        return handle
    return None

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes held by a descriptor (pidfd_open(2)), so that a signal or a wait never meets another of the same number.

A number that was read somewhere may have become another's before we had the descriptor, and the descriptor is then of
that other.  So whoever opens a process by its number looks at it once more behind that (`open_process`): what is seen
then is of the process that the descriptor holds, or it has ended, and no signal reaches anybody.  Only the number of
a child of ours stays its own, until we have waited for it: `ProcessHandle` may be called with it as it is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import typing as t

from ...effects import leaves_nothing
from ..clock import Deadline
from .process_id import ProcessId


class OwnedDescriptor:
    """Owns a descriptor, and closes it once; a context manager.

    Args:
        fd: the descriptor; -1: there is none yet.
    """

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd

    @leaves_nothing
    def close(self) -> None:
        """Let it go; once more does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class ProcessHandle(OwnedDescriptor):
    """A descriptor of a process; a context manager.

    Attributes:
        pid: its number.

    Raises:
        ProcessLookupError: there is none, or it has been waited for.
        OSError: this process has as many descriptors as it may.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(os.pidfd_open(pid))

    @leaves_nothing
    def fileno(self) -> int:
        """Return the descriptor, which is readable when the process has ended."""
        return self._fd

    def send(self, number: int) -> None:
        """Send it a signal; it may have ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    @leaves_nothing
    def wait(self, deadline: Deadline) -> bool:
        """Return whether it has ended by then, as a zombie or for good."""
        return not wait_all([self], deadline)

    def kill(self, deadline: Deadline) -> bool:
        """Send SIGKILL, and return whether it has ended by then: one that waits in the kernel need not."""
        self.send(signal.SIGKILL)
        return self.wait(deadline)


def open_process(pid: int, is_meant: t.Callable[[], bool]) -> ProcessHandle | None:
    """Hold a process whose number was read somewhere.

    Args:
        pid: the number.
        is_meant: looks at the process of this number, and says whether it is the one; is called once it is held.  An
            OSError of it means that the process has ended.

    Returns:
        None: it has ended, or the number is another's by now.

    Raises:
        OSError: this process has as many descriptors as it may.
    """
    try:
        handle = ProcessHandle(pid)
    except ProcessLookupError:
        return None
    meant = False
    try:
        with contextlib.suppress(OSError):
            meant = is_meant()
    finally:
        if not meant:
            handle.close()
    return handle if meant else None


def is_process(process: ProcessId) -> bool:
    """Return whether the number is this process's still, by its start time.

    Raises:
        OSError: there is none of this number.
    """
    return ProcessId.of(process.pid) == process


def wait_all(handles: t.Iterable[ProcessHandle], deadline: Deadline) -> list[ProcessHandle]:
    """Wait until all have ended.

    Args:
        handles: as many as there may be: unlike select(2), poll(2) takes descriptors of any number.
        deadline: no longer.

    Returns:
        Those that have not.
    """
    left = {handle.fileno(): handle for handle in handles}
    poll = select.poll()
    for fd in left:
        poll.register(fd, select.POLLIN)
    while left and (ended := poll.poll(deadline.left_s(86_400.0) * 1000)):
        for fd, _events in ended:
            poll.unregister(fd)
            del left[fd]
    return list(left.values())

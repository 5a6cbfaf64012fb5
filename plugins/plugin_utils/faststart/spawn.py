# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that is started before the rest of its caller has loaded; all that this package imports loads quickly."""

from __future__ import annotations

import os
import select
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIGNALS = range(1, 32)
"""Those of which a caller's caller may have ignored any; `posix_spawn` passes over the two that cannot be."""


class EarlyProgram:
    """One that runs: what is said to it and what it answers go through one socket.

    Attributes:
        socket: our end, a descriptor.
        complaint: the file with its standard error, a descriptor.
    """

    def __init__(self, pid: int, socket_fd: int, complaint: int) -> None:
        self._pid = pid
        self.socket = socket_fd
        self.complaint = complaint

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit status, negative for a signal; None: it runs, or another caller has waited for it."""
        try:
            # by hand, because `processes.ProcessHandle` would load the enums of `signal` before the program is started
            handle = os.pidfd_open(self._pid)
        except ProcessLookupError:
            return None
        try:
            if not select.select([handle], [], [], timeout_s)[0]:
                return None
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        except ChildProcessError:
            return None
        finally:
            os.close(handle)


def begin(command: Sequence[str], environment: Mapping[str, str]) -> EarlyProgram | None:
    """Start it, in a process group of its own; None when it could not be started.

    Args:
        command: an absolute path, then arguments.
        environment: all of its variables.
    """
    ours, theirs = socket.socketpair()
    complaint = os.memfd_create("complaint", os.MFD_CLOEXEC)
    sources = (theirs.fileno(), theirs.fileno(), complaint)
    streams = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(sources)]
    with theirs:
        try:
            pid = os.posix_spawn(
                command[0],
                tuple(command),
                environment,
                file_actions=streams,
                setpgroup=0,
                setsigmask=(),
                setsigdef=SIGNALS,
            )
        except OSError:
            ours.close()
            os.close(complaint)
            return None
    return EarlyProgram(pid, ours.detach(), complaint)

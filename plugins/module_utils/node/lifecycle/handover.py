# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that are ready, and not yet told of their job: whoever asked for them holds them, and lets go of them.

Another node of the job may fail meanwhile.  Then nobody will ever tell them, and they go at once, not when the job's
end is handled.  Once they are told, who asked may go: from then on they are the job's.
"""

from __future__ import annotations

import contextlib
import os

from ...system.clock import Deadline
from ...system.process.processes import OwnedDescriptor
from ...time_budget import JOB_MAP_S
from ..guest import join
from ..state.settings import NodeSettings
from .builder import readable

_KEEP = b"k"


class CallerEnd(OwnedDescriptor):
    """The side of whoever asked; a context manager, whose end without a word gives the guests up."""

    def __init__(self) -> None:
        super().__init__()
        self._deadline = Deadline.after(0.0)

    def take(self, fd: int, deadline: Deadline) -> None:
        """Hold guests that are being made.

        Args:
            fd: our end of the way to their worker; closed with us.
            deadline: of their making.
        """
        self._fd, self._deadline = fd, deadline

    @property
    def listen_s(self) -> float:
        """How long the word about their job is waited for."""
        return self._deadline.left_s() + JOB_MAP_S

    def keep_guests(self) -> None:
        """Keep the guests, however the caller ends: only a caller that holds guests tells them of their job."""
        with contextlib.suppress(OSError):  # whose worker is another's answers, and is gone
            os.write(self._fd, _KEEP)


class WorkerEnd:
    """The side of the worker, who watches the guests.

    Args:
        fd: our end of the way to whoever asked.
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
    """

    def __init__(self, fd: int, job_id: str, start: int, settings: NodeSettings) -> None:
        self._fd = fd
        self._start = (job_id, start, settings)

    def filenos(self) -> list[int]:
        """Readable when whoever asked said something, or let go; empty when that has happened."""
        return [self._fd] if self._fd >= 0 else []

    def is_abandoned(self) -> bool:
        """Return whether the holder let go of guests that nobody told of their job."""
        if self._fd < 0 or not readable([self._fd], 0.0):
            return False
        fd, self._fd = self._fd, -1
        word = b""
        with contextlib.suppress(ConnectionError):  # they were killed with our answer unread
            word = os.read(fd, 1)
        os.close(fd)
        return word != _KEEP and not join.has_joined(*self._start)

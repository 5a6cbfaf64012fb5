# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the job's shell learns that a guest is lost while its job runs."""

from __future__ import annotations

import contextlib
import pathlib
import select
import typing as t

from ...errors import VTorqueError
from ...slow_libraries import load_library
from ...state import layout
from ...state.records import LostRecord
from ...system import files
from ...system.process.processes import ProcessHandle

CONSOLE_LIMIT = 900
"""Characters of the console's last lines that are shown; the record keeps more."""


class GuestLost(VTorqueError):
    """A guest of the job ended or was paused, and the job with it.

    Attributes:
        lines: what more there is to say.
    """

    def __init__(self, lost: LostRecord, record_directory: pathlib.Path) -> None:
        super().__init__(f"guest {lost.guest} on {lost.node} was lost", lost.reason)
        console_end = lost.console[-CONSOLE_LIMIT:]
        self.lines = (
            *([f"the last lines of its console: {console_end}"] if console_end else ["its console is silent"]),
            f"more is in {record_directory}: vtorque.log, and when the job has ended {lost.guest}.console.log",
        )


class LostWatch:
    """Watches for a lost guest of this start; a context manager.

    The directory is closed to the job's user, so it is the ready record that is watched: root touches it when it has
    written the other.  Without a watch (a user may have only so many) the loss is still read when the connection
    breaks.

    Args:
        directory: of the start; holds the ready record.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        inotify_simple = load_library("inotify_simple")  # while ssh begins

        self._directory = directory
        self._record_directory = layout.STATE_DIR / "records" / directory.name
        self._inotify: t.Any = None
        with contextlib.suppress(OSError):
            self._inotify = inotify_simple.INotify(nonblocking=True)
            self._inotify.add_watch(str(directory / layout.READY), inotify_simple.flags.ATTRIB)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a guest may be lost; negative: there is no watch."""
        return -1 if self._inotify is None else int(self._inotify.fileno())

    def read_loss(self) -> GuestLost | None:
        """Return which guest is lost; None: none, as far as is known."""
        if self._inotify is not None:
            self._inotify.read(timeout=0)
        try:
            return GuestLost(
                LostRecord.from_dict(files.read_json(self._directory / layout.LOST)), self._record_directory
            )
        except (OSError, TypeError, VTorqueError):
            return None

    def wait(self, timeout_s: float) -> GuestLost | None:
        """Wait for a loss, and return it as `read_loss` does: a connection may break before the node knows why.

        Args:
            timeout_s: seconds, at most.
        """
        found = self.read_loss()
        if found is None and self._inotify is not None:
            select.select([self._inotify.fileno()], [], [], timeout_s)
            found = self.read_loss()
        return found

    def __enter__(self) -> LostWatch:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._inotify is not None:
            self._inotify.close()


def wait_for_end_or_loss(process: int, watch: LostWatch) -> GuestLost | None:
    """Wait until a process has ended, or a guest is lost.

    Args:
        process: its id; a child of this process.

    Returns:
        Which guest is lost; None: the process ended first.
    """
    with ProcessHandle(process) as child:
        poll = select.poll()
        poll.register(child, select.POLLIN)
        if watch.fileno() >= 0:
            poll.register(watch.fileno(), select.POLLIN)
        while True:
            heard = {fd for fd, _events in poll.poll()}
            if watch.fileno() in heard and (lost := watch.read_loss()) is not None:
                return lost
            if child.fileno() in heard:
                return None

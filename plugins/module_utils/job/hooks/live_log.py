# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's log, printed for its owner while it is written: on the hook's standard error, the job's error file."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...slow_libraries import load_library
from ...text import printable
from ...time_budget import LIVE_LOG_END_S
from ...wire.lines import LineReader, write_all
from ..batch.api import BatchJob
from ..batch.vm_job import vm_job_of
from ..config.consistency import job_log_level
from ..config.parameters import Policy

CHUNK = 1 << 16
LINE = 4096
PREFIX = "vtorque: "


def log_wishes(job: BatchJob | None, policy: Policy) -> tuple[bool, str]:
    """Return whether the owner sees the log in the job's error file, and its level (`event_log.JOB_LEVELS`).

    The owner's word, else the site's.

    Args:
        job: the server's word; None: there was none.
        policy: the site's.
    """
    wishes: t.Mapping[str, bool] = {}
    with contextlib.suppress(VTorqueError):  # what is wrong with the request is told when its guests are planned
        vm_job = vm_job_of(job) if job is not None else None
        wishes = vm_job.request.log if vm_job is not None else {}
    return wishes.get("show", policy.show_log_default), job_log_level(policy, wishes)


@contextlib.contextmanager
@leaves_nothing
def follow_log(log: t.IO[bytes], wanted: bool, target: int = 2) -> t.Iterator[None]:
    """While it is open, the log is shown, if that is wanted and can be done: nothing else depends on it.

    Args:
        log: open; what is in it already is not shown.
        wanted: whether it is to be printed.
        target: the descriptor on which.
    """
    with contextlib.ExitStack() as open_now:
        if wanted:
            with contextlib.suppress(OSError):
                open_now.enter_context(LogFollower(log, target))
        yield


class LogFollower:
    """While it is open, what is added to a log is written to another file too, line by line; a context manager.

    Whoever writes the log is not held up by whoever reads the other file: a thread follows the log as it grows.

    Args:
        log: open; what is in it already is not shown.
        target: the descriptor of the other file.
    """

    def __init__(self, log: t.IO[bytes], target: int = 2) -> None:
        inotify_simple = load_library("inotify_simple")

        self._path = f"/proc/self/fd/{log.fileno()}"
        self._target = target
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)
        self._lines = LineReader(LINE)
        self._over = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._watch = inotify_simple.INotify(nonblocking=True)
        self._watch.add_watch(self._path, inotify_simple.flags.MODIFY)
        self._thread = threading.Thread(target=self._follow, daemon=True, name="shown-log")

    def __enter__(self) -> LogFollower:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """What was written until now is shown, unless nobody takes it."""
        os.eventfd_write(self._over, 1)
        self._thread.join(LIVE_LOG_END_S)
        if self._thread.is_alive():  # it keeps its descriptors, and ends with the process
            return
        self._watch.close()
        os.close(self._fd)
        os.close(self._over)

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._watch.fileno(), select.POLLIN)
        poll.register(self._over, select.POLLIN)
        with contextlib.suppress(OSError):  # nobody takes it any more
            over = False
            while not over:
                over = any(fd == self._over for fd, _events in poll.poll())
                self._watch.read(timeout=0)
                while data := os.read(self._fd, CHUNK):
                    self._print(data)
            if self._lines.rest:
                self._print(b"\n")

    def _print(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if text := printable(line.decode("utf-8", "replace")).rstrip():
                write_all(self._target, f"{PREFIX}{text}\n".encode(errors="replace"))

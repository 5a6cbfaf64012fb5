# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the job's shell, which is its user's process, can let root's worker of the start know.

Two FIFOs in the run directory, root's, which the job's user may write to and nobody can replace: they hold no more than
the kernel's buffer, whatever is written.

    words   one line for the job's log
    bell    bytes that notify the worker: the batch system has stopped the shell or lets it go on.  They prove nothing:
            the batch server is queried
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import typing as t

from ..errors import VTorqueError
from ..system import acl
from ..text import printable

NAME = "words"
NOTIFICATIONS = "bell"
CHECKPOINT = b"c"
"""Written where the owner of the job wants its guests saved."""
PARK = b"p"
"""Written where they want the job to leave its nodes then, until they release it."""
LIMIT = 2000
"""Bytes of the line; more is cut, and so few are written at once or not at all (PIPE_BUF)."""


def offer(directory: pathlib.Path, uid: int) -> None:
    """Create both FIFOs, for a user to write into.

    Args:
        directory: the run directory of the start.
        uid: the job's user.

    Raises:
        VTorqueError: it was not made.
    """
    for name in (NAME, NOTIFICATIONS):
        _make(directory / name, uid)


def _make(path: pathlib.Path, uid: int) -> None:
    try:
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            acl.let_use(fd, uid)
        finally:
            os.close(fd)
    except OSError as error:
        raise VTorqueError(f"{path} was not made", str(error)) from error


def send_message(directory: pathlib.Path, text: str) -> None:
    """Say the line; what prevents it is nobody's trouble.

    It stays in the FIFO for as long as this process lives: who reads it may be late.

    Args:
        directory: the run directory of the start.
        text: the line.
    """
    _write(directory / NAME, text.encode(errors="replace")[: LIMIT - 1] + b"\n")


def notify_worker(directory: pathlib.Path, what: bytes = b".") -> None:
    """Notify the worker of a start; nothing depends on it, since the sweep queries the batch server later.

    Args:
        directory: the run directory of the start.
        what: one byte: `CHECKPOINT`, `PARK`, or that the state of the job may have changed.
    """
    if (fd := _write(directory / NOTIFICATIONS, what)) is not None:
        os.close(fd)


def _write(path: pathlib.Path, data: bytes) -> int | None:
    """Write into a FIFO of root's; returns its descriptor, None where there is none or it takes nothing."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        facts = os.fstat(fd)
        if stat.S_ISFIFO(facts.st_mode) and facts.st_uid == 0:
            os.write(fd, data)
            return fd
        os.close(fd)
    return None


class _Fifo:
    """A FIFO of the run directory that is read, or that is not there.

    Args:
        directory: the run directory of the start.
    """

    name: t.ClassVar[str]
    access: t.ClassVar[int]

    def __init__(self, directory: pathlib.Path) -> None:
        self._fd = -1
        with contextlib.suppress(OSError):
            self._fd = os.open(directory / self.name, self.access | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)

    def filenos(self) -> tuple[int, ...]:
        """What to poll; nothing where there is none, or none any more."""
        return (self._fd,) if self._fd >= 0 else ()

    def close(self) -> None:
        """Stop reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Listener(_Fifo):
    """Waits for the line, after which nothing is polled."""

    name, access = NAME, os.O_RDONLY

    def receive_message(self) -> str:
        """What was said, as one line that may be shown; "" for nothing.  There is no second."""
        try:
            message = os.read(self._fd, LIMIT)
        except OSError:
            message = b""
        self.close()
        return printable(message.partition(b"\n")[0].decode(errors="replace"))


class NotificationFifo(_Fifo):
    """Reads what the shell notifies the worker of, each time."""

    # with a writer of our own it has no end, which poll would tell for ever
    name, access = NOTIFICATIONS, os.O_RDWR

    def read_all(self) -> bytes:
        """Read and return what was written until now."""
        found = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._fd, 1 << 16):
                found = (found + data)[-1024:]
        return found

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The streams of one ssh to the far end: of one that is started here, or of the one that the prologue has begun."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import stat
import subprocess
import typing as t

from ...errors import VTorqueError
from ...state import layout, login_fifos
from ...system import files
from ...system.clock import Deadline
from . import ssh_command

END_S = 1.0
"""For ssh to end when nobody speaks any more: a daemon of the job's may hold the connection."""


class Line(t.Protocol):
    """What a conversation needs of it.

    Attributes:
        token: with which the far end marks what it says.
        early: it was begun before us, and may have ended since; nothing is to be said before the far end has spoken.
        stdin, out, err: descriptors of what goes there and comes back.
    """

    token: str
    early: bool
    stdin: int
    out: int
    err: int

    def kill(self) -> None:
        """End it; what it has heard until now can still be read."""

    def close(self) -> None:
        """See to it that it is gone."""


class OwnLine:
    """An ssh of ours.

    Args:
        call: is given the token, and says how it is started.
    """

    early = False

    def __init__(self, call: t.Callable[[str], t.Sequence[str]]) -> None:
        self.token = os.urandom(16).hex()  # as `secrets` has it, which loads OpenSSL
        # a session of its own: a TERM for the job's session must not end the connection
        self._process = subprocess.Popen(
            call(self.token),
            env=ssh_command.environment(),
            cwd="/",
            start_new_session=True,
            restore_signals=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._streams = tuple(t.cast("t.IO[bytes]", stream) for stream in streams)
        self.stdin, self.out, self.err = (stream.fileno() for stream in self._streams)

    def kill(self) -> None:
        """See `Line`."""
        self._process.kill()

    def close(self) -> None:
        """See `Line`."""
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class EarlyLine:
    """The ssh that the prologue has begun."""

    early = True

    def __init__(self, directory: pathlib.Path, token: str, stdin: int, out: int, err: int) -> None:
        self._directory = directory
        self.token = token
        self.stdin, self.out, self.err = stdin, out, err

    def kill(self) -> None:
        """See `Line`."""
        with contextlib.suppress(VTorqueError):
            login_fifos.kill(self._directory / login_fifos.SAID)

    def close(self) -> None:
        """See `Line`."""
        os.close(self.stdin)
        if not self._ends(Deadline.after(END_S)):
            self.kill()
        os.close(self.out)
        os.close(self.err)

    def _ends(self, deadline: Deadline) -> bool:
        """Return whether the ssh ends by a deadline; it is the only writer of what comes back."""
        # a daemon of the job's may print faster than this reads
        while not deadline.passed and select.select([self.out], [], [], deadline.left_s())[0]:
            if not os.read(self.out, 1 << 16):
                return True
        return False


def take(directory: pathlib.Path) -> EarlyLine | None:
    """The line that the prologue has begun for the start of this directory.

    Returns:
        None: there is none, it has ended, or it is not root's to offer.
    """
    opened: list[int] = []
    try:
        token = files.read_json(directory / layout.EARLY)["token"]
        # to open for writing what nobody reads any more is an error: ssh has ended
        ways = ((login_fifos.SAID, os.O_WRONLY), (login_fifos.OUT, os.O_RDONLY), (login_fifos.ERR, os.O_RDONLY))
        for name, way in ways:
            opened.append(os.open(directory / name, way | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
            facts = os.fstat(opened[-1])
            if not stat.S_ISFIFO(facts.st_mode) or facts.st_uid != 0:
                raise VTorqueError(f"{directory / name}", "is not root's FIFO")
        # one that ended between these openings would never tell an end of what comes back (fifo_open of the kernel)
        if not _is_read(opened[0]):
            raise VTorqueError(f"{directory / login_fifos.SAID}", "has no reader any more")
        return EarlyLine(directory, str(token), *opened)
    except (OSError, VTorqueError, KeyError):
        for fd in opened:
            os.close(fd)
        return None


def _is_read(fifo: int) -> bool:
    """Return whether somebody has the other end of this FIFO open."""
    poll = select.poll()
    poll.register(fifo, 0)  # POLLERR is told unasked
    return not poll.poll(0)

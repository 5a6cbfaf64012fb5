# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signals that a batch system sends to the job's shell, which are for its guest."""

from __future__ import annotations

import contextlib
import os
import signal
import types
import typing as t

FORWARDED = tuple(
    sorted(
        signal.valid_signals()
        - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE}
        # an error of our own code raises these, and a handler would come back to it for ever
        - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    )
)
"""What qsig may send and the guest's job gets; the others end this process, and thereby the job."""


PAUSES = frozenset({signal.SIGTSTP, signal.SIGCONT})
"""With which batch systems begin and end a suspension; anybody may send them, so that root asks the server."""
CHECKPOINT, PARK = 60, 61
"""Request a checkpoint, and one that the job rests in (`BatchSystem.request_checkpoint`): real-time signals, for
which no usual program waits."""


def _noted(_number: int, _frame: types.FrameType | None) -> None:
    """The interpreter has written the byte already."""


@contextlib.contextmanager
def caught() -> t.Iterator[int]:
    """A descriptor on which each signal arrives as a byte with its number, instead of having its effect."""

    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    # a signal that came before the interpreter knows where to write its number would be lost
    before = signal.set_wakeup_fd(writing)
    former = {number: signal.signal(number, _noted) for number in FORWARDED}
    try:
        yield reading
    finally:
        for number, action in former.items():
            signal.signal(number, action)
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


class Witness:
    """A child of the job's shell, which gets what is sent to every process of a job (`scancel --full`).

    What is sent to the script alone (`scancel --batch`, a cancel, the end of the time limit) passes it over, as it does
    the children of a script on a node (Slurm 22.05: `proctrack/cgroup` signals what slurmstepd itself has started).
    It ends with the shell.
    """

    def __init__(self) -> None:
        self._heard, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        living, self._living = os.pipe2(os.O_CLOEXEC)
        # none is lost, or taken for one of the shell's, before the child listens
        former = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        self._pid = os.fork()
        if not self._pid:
            try:
                _witness(writing, living, former)
            finally:
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        os.close(writing)
        os.close(living)

    def fileno(self) -> int:
        """Return what can be read when a signal has come."""
        return self._heard

    def read(self) -> bytes | None:
        """Return the numbers of the signals that have come, but for those of a suspension; None: it has ended."""
        numbers = os.read(self._heard, 4096)
        return bytes(number for number in numbers if number not in PAUSES) if numbers else None

    def close(self) -> None:
        """End it."""
        os.close(self._living)
        os.close(self._heard)
        os.waitpid(self._pid, 0)


def _witness(writing: int, living: int, mask: t.Iterable[int]) -> None:
    """Write the number of each signal that comes, until the shell has ended; its streams are not held."""
    for number in FORWARDED:
        signal.signal(number, _noted)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    low, high = sorted((writing, living))
    for first, last in ((0, low), (low + 1, high), (high + 1, os.sysconf("SC_OPEN_MAX"))):
        os.closerange(first, last)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    while os.read(living, 1):
        """Nobody writes: its end is the shell's."""

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that are told to end: signals that are heard and never lost, and children that die with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import types
import typing as t

from ...effects import leaves_nothing
from . import prctl

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Terminated(BaseException):
    """This process was told to end.  No `except Exception` on the way can lose it."""


@contextlib.contextmanager
@leaves_nothing
def delay_end_signals() -> t.Iterator[None]:
    """Signals that tell us to end arrive only afterwards: a child gets its own handlers first."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@leaves_nothing
def unblock_signals() -> None:
    """Whatever was held back or blocked arrives from now on."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def raise_on_signal() -> None:
    """From now on the first such signal raises `Terminated`, and later ones do nothing: undoing is not interrupted."""
    signal.set_wakeup_fd(-1)  # a parent's, who would take our signals for their own
    for number in ENDING:
        signal.signal(number, _raise)


def _raise(number: int, _frame: types.FrameType | None) -> t.NoReturn:
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise Terminated(signal.Signals(number).name)


@leaves_nothing
def reset_signals() -> None:
    """What a caller had ignored is the default again.

    But for PIPE and XFSZ, which Python itself ignores, and gives back to its children.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@leaves_nothing
class SignalRecorder:
    """Records signals that would end this process; a context manager, for the main thread."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._former = {number: signal.signal(number, self._note) for number in ENDING}
        self._before = signal.set_wakeup_fd(self._writing)
        self._first_signal = ""

    @staticmethod
    def _note(_number: int, _frame: types.FrameType | None) -> None:
        """The interpreter has written the byte already."""

    def fileno(self) -> int:
        """Readable when one came."""
        return self._reading

    def first_signal(self) -> str:
        """The name of the first signal that came; "" when none did."""
        with contextlib.suppress(BlockingIOError):
            numbers = os.read(self._reading, 64)
            self._first_signal = self._first_signal or signal.Signals(numbers[0]).name
        return self._first_signal

    def __enter__(self) -> SignalRecorder:
        return self

    def __exit__(self, *_error: object) -> None:
        signal.set_wakeup_fd(self._before)
        for number, action in self._former.items():
            signal.signal(number, action)
        os.close(self._reading)
        os.close(self._writing)


def die_with(parent: int) -> bool:
    """Be killed when the parent ends.

    Args:
        parent: its process id.

    Returns:
        False when it has ended already: then nobody will kill us.
    """
    prctl.set_death_signal(signal.SIGKILL)
    return os.getppid() == parent


def die_with_nobody() -> None:
    """Outlive the parent again."""
    prctl.set_death_signal(0)

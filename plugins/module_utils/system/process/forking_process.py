# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of one thread that makes the calls which fork, for a process that will have threads.

A fork copies one thread and the locks of all: what another thread has locked stays locked in the child for good
(fork(2); Python 3.12 and later warn of it).  libvirt's events have a thread from the first connection on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import typing as t

from ...errors import VTorqueError
from .signals import die_with

T = t.TypeVar("T")


class Caller(t.Protocol):
    """Makes calls, here or in another process."""

    def call(self, function: t.Callable[..., T], *arguments: object) -> T:
        """Return what a function returns, or raise what it raises."""


class DirectCaller:
    """Makes the calls in this process, which has one thread."""

    @staticmethod
    def call(function: t.Callable[..., T], *arguments: object) -> T:
        """Return what a function returns, or raise what it raises."""
        return function(*arguments)


class ForkingProcess:
    """A child that makes calls; it ends with its parent.  A context manager.

    Args:
        functions: that may be called; their arguments and results go through pickle.
    """

    def __init__(self, functions: t.Sequence[t.Callable[..., t.Any]]) -> None:
        self._functions = functions
        requests, self._requests = os.pipe2(os.O_CLOEXEC)
        self._results, results = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._requests)
            os.close(self._results)
            _serve(functions, requests, results, parent)
        os.close(requests)
        os.close(results)

    def call(self, function: t.Callable[..., T], *arguments: object) -> T:
        """Return what a function returns.

        Args:
            function: one of those that the child has.
            arguments: of the function.

        Raises:
            VTorqueError: raised by the function, or the child has ended.
            OSError: raised by the function.
        """
        try:
            with os.fdopen(os.dup(self._requests), "wb") as stream:
                pickle.dump((self._functions.index(function), arguments), stream)
            with os.fdopen(os.dup(self._results), "rb") as stream:
                result, error, cause = pickle.load(stream)  # noqa: S301 - our child's
        except (EOFError, BrokenPipeError):
            raise VTorqueError(
                f"process {self._pid}", "has ended while it was needed", "the job is tried again"
            ) from None
        if error is not None:
            raise error from cause
        return t.cast("T", result)

    def __enter__(self) -> ForkingProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        """End it; what it was called for last is given up."""
        os.close(self._requests)
        os.close(self._results)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _serve(functions: t.Sequence[t.Callable[..., t.Any]], requests: int, results: int, parent: int) -> t.NoReturn:
    """The child's whole life."""
    try:
        if die_with(parent):
            with os.fdopen(requests, "rb") as calls, os.fdopen(results, "wb") as answers:
                while True:
                    number, arguments = pickle.load(calls)  # noqa: S301 - our parent's
                    pickle.dump(_result_of(functions[number], arguments), answers)
                    answers.flush()
    except (EOFError, BrokenPipeError):
        pass
    finally:
        os._exit(0)


def _result_of(
    function: t.Callable[..., t.Any], arguments: t.Sequence[object]
) -> tuple[object, Exception | None, BaseException | None]:
    """Return what a function returns, or its error with the cause, which says whose fault it is (`errors.unjudged`)."""
    try:
        return function(*arguments), None, None
    except (VTorqueError, OSError) as error:
        return None, error, error.__cause__
    except Exception as error:  # whatever it is, the caller gets an answer
        return None, VTorqueError(f"a fault in vTorque itself: {type(error).__name__}", str(error)), None

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer that another program gives while its caller goes on with what does not need it yet."""

from __future__ import annotations

import threading
import typing as t

T = t.TypeVar("T")


class EarlyQuestion(t.Generic[T]):
    """A question that is asked at once; a call waits for its answer.

    A program does not end before its question has: what that runs would be left behind.  `concurrent.futures` does the
    same, and takes 10 ms to load, which each `vsub` would pay; where that is loaded anyway, this may go.

    Args:
        ask: the question; it bounds its own time, and spends it waiting for another process.
    """

    def __init__(self, ask: t.Callable[[], T]) -> None:
        self._ask = ask
        self._answers: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="early question")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except BaseException as error:  # whoever calls gets it, whatever it is
            self._errors.append(error)

    def __call__(self) -> T:
        """Return the answer.

        Raises:
            BaseException: what the question raised.
        """
        self._thread.join()
        for error in self._errors:
            raise error
        return self._answers[0]

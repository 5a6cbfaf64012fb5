# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deadlines, durations and points in time.

Deadlines are moments of the monotonic clock, which is one for all processes of a node and is set by nobody.  With the
system's clock, a time server could make a job late during its prologue.  Other nodes get seconds, not moments.
"""

from __future__ import annotations

import contextlib
import time
import typing as t

from ..effects import leaves_nothing
from ..frozen import frozen


@leaves_nothing
class Timings:
    """Seconds that each phase took, in the order in which the phases began.

    Use: `with timings.phase("seed"): ...`; a phase that comes twice is added up.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> t.Iterator[None]:
        """Measure what happens inside, whether it fails or not."""
        self.seconds.setdefault(name, 0.0)
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - begin


@leaves_nothing
def since_epoch(moment: float) -> float:
    """A moment of the monotonic clock, as people and records tell it.

    Nothing is timed by the system's clock, which somebody may set while a job begins.

    Args:
        moment: seconds of the monotonic clock.

    Returns:
        Seconds since the epoch.
    """
    return time.time() - (time.monotonic() - moment)


@frozen
@leaves_nothing
class Deadline:
    """A moment on the monotonic clock that no wait may pass; that clock is the same in all processes of a node."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that many seconds from now.

        Args:
            seconds: from now.

        Returns:
            A moment on the monotonic clock.
        """
        return cls(time.monotonic() + seconds)

    def left_s(self, at_most: float = float("inf")) -> float:
        """Seconds that are left, never negative, never more than `at_most`.

        Args:
            at_most: seconds.

        Returns:
            Seconds.
        """
        return max(0.0, min(self.at - time.monotonic(), at_most))

    @property
    def passed(self) -> bool:
        """Whether there is no time left."""
        return self.left_s() <= 0.0

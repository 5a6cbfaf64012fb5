# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a run of many faults while it lasts, and which of them it tries."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import random
import sys
import time
import typing as t

import pytest

T = t.TypeVar("T")
EVERY = int(os.environ.get("VTORQUE_FAULTS", "100"))
"""Of so many faults one is tried."""
EVERY_JOB = EVERY if "VTORQUE_FAULTS" in os.environ else 3 * EVERY
"""The same of faults that each cost a job over two nodes."""
SEED = int(os.environ.get("VTORQUE_SEED", "0"))
ONLY = os.environ.get("VTORQUE_FAULT", "")
"""Only faults in whose line of the report these words stand."""
STEP_S = 20.0
"""Between two lines."""


class Progress:
    """How many of how many, where it is tried; a line now and then.

    On standard error: of tests that run side by side nobody hears another word before they end.

    Args:
        where: the node, or what else tells two of them apart.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.tried: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.missed: list[str] = []
        self.of = self.there = 0
        self._began = self._said = time.monotonic()

    def begin(self, of: int, there: int) -> None:
        """So many are tried, of so many that there are."""
        self.of, self.there = of, there
        self._say()

    def one(self, kind: str) -> None:
        """One was."""
        self.tried[kind] += 1
        if time.monotonic() - self._said >= STEP_S or self.tried.total() == self.of:
            self._say()

    def miss(self, point: str) -> None:
        """To one nothing came."""
        self.missed.append(point)
        print(f"\n  {self.where}: nothing came to {point}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def told_if_wrong(self, point: str = "") -> t.Iterator[None]:
        """What did not come out as it should is said at once, and kept: the others are tried all the same."""
        try:
            yield
        except AssertionError as error:
            self.wrong.append(f"{point}: {error}" if point else str(error))
            print(f"\n  {self.where}: {self.wrong[-1]}", file=sys.stderr, flush=True)

    def _say(self) -> None:
        self._said = time.monotonic()
        print(
            f"\n  {self.where}: {self.tried.total()} of {self.of} faults tried, {self._said - self._began:.0f} s",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip


def try_side_by_side(
    places: t.Iterable[str], try_on: t.Callable[[Progress, int], T], capsys: pytest.CaptureFixture[str]
) -> tuple[list[T], list[str]]:
    """Try faults on several nodes at once, and tell of them at the end.

    Args:
        places: the nodes.
        try_on: tries those of one node, from a random first one on.
        capsys: of the test, which is not captured meanwhile.

    Returns:
        What came of it, by node, and all that was wrong.
    """
    chance = random.Random(SEED)
    progress = [Progress(place) for place in places]
    with capsys.disabled(), concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(try_on, one, chance.randrange(EVERY)) for one in progress]
        found = [one.result() for one in asked]
        end(progress)
    return found, [problem for one in progress for problem in one.wrong]


def end(progress: t.Sequence[Progress]) -> None:
    """The last line: how many of all that there are, and of which kinds."""
    tried = sum((one.tried for one in progress), collections.Counter[str]())
    there = sum(one.there for one in progress)
    print(
        f"\n  {tried.total()} of {there} fault points were tried (VTORQUE_SEED={SEED}): {dict(tried)}",
        file=sys.stderr,
        flush=True,
    )

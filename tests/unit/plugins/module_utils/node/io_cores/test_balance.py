# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many cores virtual I/O uses, played with series of figures as a worker took them of guests."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.io_cores.balance import (
    GROW_ROUNDS,
    REST_ROUNDS,
    SHRINK_ROUNDS,
    Load,
    State,
    decide,
    measure,
)
from hypothesis import given
from hypothesis import strategies as st

WRITES = (
    (1.95, 3), (3.22, 12), (3.06, 12), (2.88, 11), (5.24, 10), (3.14, 12), (3.18, 12), (3.13, 12), (3.22, 12),
    (3.28, 12), (3.36, 12), (2.88, 12), (2.82, 12), (2.69, 12), (2.88, 12), (3.10, 12), (3.16, 12), (3.34, 12),
)  # fmt: skip
"""A qemu-nbd and two programs that write to it (`qemu-img bench -w -d 8`), as `measure` read them once a second on a
machine of two processors that others used, too: on one processor for ten rounds, then on both."""
IDLE = (
    (0.20, 1), *((0.0, 0),) * 8, (0.02, 0), *((0.0, 0),) * 9, (0.11, 0), *((0.0, 0),) * 10,
)  # fmt: skip
"""The same qemu-nbd when both have ended."""


def play(series: t.Iterable[tuple[float, int]], state: State, least: int = 1, most: int = 2) -> list[int]:
    """The cores in use after each round."""
    used = []
    for cores, busy in series:
        state = decide(state, Load(cores, busy), least, most)
        used.append(state.used)
    return used


def test_decide_on_recorded_writes_grows_after_three_rounds_and_gives_back_after_their_end() -> None:
    used = play((*WRITES, *IDLE), State(1))
    assert used[: GROW_ROUNDS - 1] == [1] * (GROW_ROUNDS - 1)
    assert set(used[GROW_ROUNDS - 1 : len(WRITES)]) == {2}
    back = used.index(1, len(WRITES)) - len(WRITES) + 1
    assert back == SHRINK_ROUNDS
    assert set(used[len(WRITES) + back :]) == {1}


def test_decide_on_recorded_writes_takes_as_many_as_they_want_and_is_back_within_thirty_seconds() -> None:
    used = play((*WRITES, *IDLE), State(1), most=8)
    assert used[len(WRITES) - 1] == 3, "two changes and two rests"
    assert used.index(1, len(WRITES)) - len(WRITES) < 30


def test_decide_gives_all_cores_back_at_once_within_thirty_rounds() -> None:
    used = play(((0.05, 0),) * 30, State(8, rest=REST_ROUNDS), least=2, most=8)
    assert used[-1] == 2
    assert len(set(used)) == 2, "in one step"


def test_decide_gives_back_no_more_than_the_peak_of_the_calm_time_allows() -> None:
    calm = ((0.3, 1), (0.9, 2), (0.2, 1), (0.3, 1), (0.3, 1), (0.2, 1), (0.3, 1), (0.3, 1), (0.2, 1), (0.3, 1))
    assert play(calm, State(6), most=6)[-1] == 3


def test_decide_does_not_grow_for_one_thread_that_a_core_more_would_not_help() -> None:
    assert set(play(((1.0, 1),) * 40, State(1), most=4)) == {1}


def test_decide_does_not_act_on_a_burst_that_is_shorter_than_its_rounds() -> None:
    burst = ((1.0, 3),) * (GROW_ROUNDS - 1) + ((0.5, 3),)
    assert set(play(burst * 10, State(1), most=4)) == {1}


def test_decide_rests_after_a_change() -> None:
    used = play(((9.0, 20),) * (GROW_ROUNDS + REST_ROUNDS + GROW_ROUNDS), State(1), most=4)
    assert [used.index(count) + 1 for count in (2, 3)] == [GROW_ROUNDS, GROW_ROUNDS + REST_ROUNDS + GROW_ROUNDS]


def test_decide_does_not_swing_at_a_load_that_fits() -> None:
    """What made it grow does not let it shrink."""
    assert play(((1.0, 2),) * 200, State(1), most=4)[-1] == 2


@given(
    least=st.integers(1, 4), more=st.integers(0, 4),
    series=st.lists(st.tuples(st.floats(0, 64), st.integers(0, 64)), max_size=120),
)  # fmt: skip
def test_decide_stays_within_its_bounds_and_grows_by_one(
    least: int, more: int, series: list[tuple[float, int]]
) -> None:
    used = [least, *play(series, State(least), least, least + more)]
    assert all(least <= count <= least + more for count in used)
    assert all(after - before <= 1 for before, after in itertools.pairwise(used))


@pytest.mark.parametrize(
    ("before", "now", "load"),
    [
        ({1: 10.0, 2: 3.0}, {1: 11.0, 2: 3.05}, Load(0.525, 1)),
        ({1: 10.0, 2: 3.0}, {1: 10.5}, Load(0.25, 1)),
        ({1: 10.0}, {1: 0.0}, Load(0.0, 0)),
    ],
    ids=["two threads", "one ended", "its number was given anew"],
)
def test_measure_counts_what_threads_used_since(before: dict[int, float], now: dict[int, float], load: Load) -> None:
    found = measure(before, now, 2.0)
    assert (round(found.cores, 3), found.busy_threads) == (load.cores, load.busy_threads)

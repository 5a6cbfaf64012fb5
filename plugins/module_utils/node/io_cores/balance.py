# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many cores virtual I/O uses, from one round of figures to the next: a pure function, with hysteresis.

All threads of virtual I/O may run on all cores that are in use, and the kernel divides them.  So their whole load
counts, and not that of the busiest core.  A core more helps only where more threads work than there are cores.
A thread that is ready and has no core wants one as much as one that runs (schedstat, proc(5)): so a core that others
use, too, is not taken for an idle one.
"""

from __future__ import annotations

from ...frozen import frozen

GROW_AT, GROW_ROUNDS = 0.85, 3
"""A core is added if more than this of the cores in use was wanted for so many rounds."""
SHRINK_AT, SHRINK_ROUNDS = 0.40, 10
"""Cores are given back if less than this of the rest was wanted for so many rounds."""
REST_ROUNDS = 6
"""After a change, figures of so many rounds count for nothing: threads have to settle."""
BUSY_AT = 0.10
"""A thread that wants more of a core than this works."""


@frozen
class Load:
    """What threads of virtual I/O wanted in a round.

    Attributes:
        cores: of all of them together; 1.0 is a core for the whole round.
        busy_threads: how many of them worked.
    """

    cores: float
    busy_threads: int


@frozen
class State:
    """Where the decision stands.

    Attributes:
        used: cores in use.
        over: rounds in a row in which they were too busy.
        calm: rounds in a row in which fewer would have done.
        peak: the greatest load of those.
        rest: rounds that still count for nothing.
    """

    used: int
    over: int = 0
    calm: int = 0
    peak: float = 0.0
    rest: int = 0


def decide(state: State, load: Load, least: int, most: int) -> State:
    """Return where the decision stands after a round.

    Args:
        state: before it.
        load: of the round.
        least: cores that are in use in any case.
        most: cores that may be in use.
    """
    if state.rest:
        return State(state.used, rest=state.rest - 1)
    used = state.used
    over = state.over + 1 if load.cores > GROW_AT * used and load.busy_threads > used and used < most else 0
    if over >= GROW_ROUNDS:
        return State(used + 1, rest=REST_ROUNDS)
    if used <= least or load.cores >= SHRINK_AT * (used - 1):
        return State(used, over=over)
    calm, peak = state.calm + 1, max(state.peak, load.cores)
    if calm >= SHRINK_ROUNDS:
        # at once to what is enough: the vCPUs wait for these cores
        enough = next(count for count in range(least, used) if peak < SHRINK_AT * count or count == used - 1)
        return State(enough, rest=REST_ROUNDS)
    return State(used, calm=calm, peak=peak)


def measure(before: dict[int, float], now: dict[int, float], passed_s: float) -> Load:
    """Return the load of a round.

    Args:
        before: how long each thread had run, or had been ready and waited, when the round began, in seconds.
        now: the same when it ended; a thread that began meanwhile counts from 0, one that ended is lost.
        passed_s: how long it took, in seconds.
    """
    # a number that was given anew to another thread has less than the one before
    parts = [max(0.0, wanted_s - before.get(thread, 0.0)) / passed_s for thread, wanted_s in now.items()]
    return Load(sum(parts), sum(part > BUSY_AT for part in parts))

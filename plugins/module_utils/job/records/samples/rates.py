# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guests of a job did between two samples: rates, out of the sums that the samples hold."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ....wire.series import FIGURES, JobSeries, NodeSeries, Point, read_points

RATES = ("cpu_load", "vcpus_waiting", "memory_bytes", "read_bw", "write_bw", "receive_bw", "send_bw")
"""In the order of `FIGURES`: vCPUs that worked and that waited, bytes, bytes per second."""
_LEVEL = FIGURES.index("memory_bytes")


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """The time between two samples of a guest.

    Attributes:
        begin_s: seconds since the first sample.
        end_s: the same.
        rates: by the names of `RATES`; None: not known.
    """

    begin_s: float
    end_s: float
    rates: dict[str, float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class GuestRates:
    """The rates of one guest.

    Attributes:
        node: where it ran.
        began: of its first sample, in seconds since the epoch.
    """

    name: str
    rank: int
    node: str
    tag: str
    began: float
    intervals: tuple[Interval, ...]


def rates_of(series: JobSeries) -> tuple[GuestRates, ...]:
    """Return the rates of all guests of a job, by rank.

    Args:
        series: what the nodes measured.
    """
    found = [rate for node in series.nodes for rate in _of_node(node)]
    return tuple(sorted(found, key=lambda guest: guest.rank))


def _of_node(node: NodeSeries) -> t.Iterator[GuestRates]:
    for guest in node.guests:
        points = read_points(guest.points)
        pairs = itertools.pairwise(points)
        intervals = tuple(_between(first, second) for first, second in pairs if second[0] > first[0])
        yield GuestRates(guest.name, guest.rank, node.node, guest.tag, node.began, intervals)


def _between(first: Point, second: Point) -> Interval:
    seconds = second[0] - first[0]
    rates: dict[str, float | None] = {}
    for number, name in enumerate(RATES):
        before, after = first[1][number], second[1][number]
        if number == _LEVEL:
            rates[name] = after
        else:
            rates[name] = None if before is None or after is None else max(0.0, after - before) / seconds
    return Interval(first[0], second[0], rates)

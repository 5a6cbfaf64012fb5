# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Series of figures of guests, as a node hands them over with its part of the record: a strict form, bounded.

A point is a text of eight figures parted by spaces: the seconds since the first point, and `FIGURES`; `-` is a figure
that is not known.  Points are parted by `;`.
"""

from __future__ import annotations

import re
import typing as t

from ..frozen import frozen
from .form import number_field, part_field, text_field
from .messages import HOST_NAME

FIGURES = ("cpu_s", "wait_s", "memory_bytes", "read_bytes", "written_bytes", "received_bytes", "sent_bytes")
"""What a point tells, in this order: sums since the guest began, but for `memory_bytes`."""
MOST_POINTS = 200
"""Of a guest, in what a node hands over."""
NODE_LIMIT = 1 << 16
"""Bytes of what a node hands over."""
JOB_LIMIT = 1 << 20
"""Bytes of the series of all guests of a job in its record."""
POINT_BYTES = 150
"""Of a point at most."""
MEASURED, ESTIMATED = "measured", "estimated"
NOT_KNOWN = -1
_SECONDS, _BYTES = r"[0-9]{1,12}(\.[0-9]{1,3})?", r"[0-9]{1,19}"
_POINT = rf"{_SECONDS}( (-|{_SECONDS})){{2}}( (-|{_BYTES})){{5}}"
TAG_LENGTH = 200
TAG = rf"[ -~]{{0,{TAG_LENGTH}}}"

Point: t.TypeAlias = "tuple[float, tuple[float | None, ...]]"
"""Seconds since the first point, and the figures."""


@frozen
class GuestSeries:
    """The figures of one guest over time.

    Attributes:
        name: host name of the guest.
        rank: its position in the job.
        tag: what the site calls its figures.
        points: see this module.
    """

    name: str = text_field(HOST_NAME)
    rank: int = number_field(0, 100_000)
    tag: str = text_field(TAG)
    points: str = text_field(rf"({_POINT}(;{_POINT}){{0,{MOST_POINTS - 1}}})?")


@frozen
class NodeSeries:
    """What a node has measured of its guests of a start.

    Attributes:
        node: that measured.
        began: of the first point, in seconds since the epoch by the node's clock.
        every_s: seconds between two points, before any were left out.
        energy_j: joules; `NOT_KNOWN`: the node has no counters.
        energy_how: `measured`: the job had the node for itself; `estimated`: by its share of the processor time.
    """

    node: str = text_field(HOST_NAME)
    began: float = number_field(0, 10**11)
    every_s: float = number_field(0, 86_400)
    energy_j: float = number_field(NOT_KNOWN, 10**15)
    energy_how: str = text_field(f"({MEASURED}|{ESTIMATED})?")
    guests: tuple[GuestSeries, ...] = part_field()


@frozen
class JobSeries:
    """What all nodes of a start have measured, beside its record."""

    version: int = number_field(1, 1)
    nodes: tuple[NodeSeries, ...] = part_field()


def format_points(points: t.Iterable[Point]) -> str:
    """Return points as the text of `GuestSeries.points`."""
    return ";".join(
        " ".join([_seconds(at_s), *map(_seconds, figures[:2]), *map(_count, figures[2:])]) for at_s, figures in points
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{min(max(0.0, value), 1e12 - 1):.3f}".rstrip("0").rstrip(".")


def _count(value: float | None) -> str:
    return "-" if value is None else str(min(max(0, round(value)), 2**63 - 1))


def read_points(text: str) -> tuple[Point, ...]:
    """Read the text of `GuestSeries.points`; it is of the form."""
    found = []
    for point in filter(None, text.split(";")):
        at_s, *figures = point.split(" ")
        found.append((float(at_s), tuple(None if one == "-" else float(one) for one in figures)))
    return tuple(found)


def thin(points: t.Sequence[t.Any], most: int) -> list[t.Any]:
    """Return at most so many points, evenly chosen, the first and the last among them.

    Args:
        points: in their order.
        most: 2 or more.
    """
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(number * step)] for number in range(most)]


def points_within(limit: int, guests: int) -> int:
    """Return how many points each of so many guests may have within a limit of bytes; 0: not even two."""
    most = min(MOST_POINTS, limit // (POINT_BYTES * max(1, guests)))
    return most if most >= 2 else 0


def join_series(nodes: t.Iterable[NodeSeries], limit: int = JOB_LIMIT) -> JobSeries:
    """Return the series of several nodes within a limit: with fewer points, and then with fewer guests.

    Args:
        nodes: what each has handed over.
        limit: bytes of all points together.
    """
    nodes = tuple(nodes)
    count = sum(len(one.guests) for one in nodes)
    most, room = points_within(limit, count), count
    if not most:
        most, room = 2, limit // (2 * POINT_BYTES)
    found = []
    for one in nodes:
        guests = tuple(_thinner(guest, most) for guest in one.guests[:room])
        room -= len(guests)
        found.append(NodeSeries(one.node, one.began, one.every_s, one.energy_j, one.energy_how, guests))
    return JobSeries(1, tuple(found))


def _thinner(guest: GuestSeries, most: int) -> GuestSeries:
    points = ";".join(thin(guest.points.split(";"), most))
    return GuestSeries(guest.name, guest.rank, guest.tag, points)


def format_tag(form: str, *, user: str, job_id: str, node: str, rank: int) -> str:
    """Return the site's tag of a guest's figures (`metrics_tag`).

    Args:
        form: with `[username]`, `[jobid]`, `[node]` and `[rank]`; in other brackets nothing is replaced.
        user: the job's.
        job_id: the job.
        node: of the guest.
        rank: of the guest.
    """
    values = {"username": user, "jobid": job_id, "node": node, "rank": str(rank)}
    text = re.sub(r"\[([a-z]+)\]", lambda found: values.get(found[1], found[0]), form)
    return re.sub(r"[^ -~]", "?", text)[:TAG_LENGTH]

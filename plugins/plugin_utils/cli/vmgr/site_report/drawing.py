# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places of bars in the pictures of a site's page: pure functions of its facts."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ..job import duration
from .facts import KINDS, Day, ImageStarts, Piece

WIDTH = 1000
"""Units of a picture, which is as wide as the page lets it be."""
LEAST = 3
"""Units of a bar, so that it can be seen."""
LONG_SHARE = 1.5
"""A run that lasts longer than start and end by this factor is drawn as long as that, with a gap in it."""
GAP = 14
BINS = 30
LEAST_S = 0.1
PHASE_NAMES = {
    "prepare": "prepare",
    "disk": "disk",
    "seed": "seed",
    "start": "domain",
    "address": "address",
    "ready": "boot",
    "finish": "finish",
    "run": "job",
    "end": "end",
}
"""By the kind of a piece, what readers see."""
STARTS = ("prepare", "disk", "seed", "start", "address", "ready", "finish")


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a picture.

    Attributes:
        kind: gives it its colour.
        x: its left end, in units.
        title: what it stands for.
    """

    kind: str
    x: int
    width: int
    title: str


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a distribution; its height is a share (0 to 100) of the largest one's."""

    x: int
    width: int
    height: int
    title: str


def draw_timeline(pieces: t.Sequence[Piece]) -> list[Bar]:
    """Return the bars of a job's time, one behind the other.

    Args:
        pieces: as the facts have them; a long run is drawn shorter.
    """
    rest = sum(piece.seconds for piece in pieces if piece.kind != "run")
    longest = LONG_SHARE * rest
    cut = bool(rest) and any(piece.kind == "run" and piece.seconds > longest for piece in pieces)
    lengths = [min(piece.seconds, longest) if cut and piece.kind == "run" else piece.seconds for piece in pieces]
    bars = []
    for (x, width), piece in zip(_share_out(lengths), pieces, strict=True):
        title = f"{PHASE_NAMES.get(piece.kind, piece.kind)} {duration(piece.seconds)}"
        if cut and piece.kind == "run":
            half = (width - GAP) // 2
            bars += [Bar("run", x, half, title), Bar("run", x + width - half, half, title)]
        else:
            bars.append(Bar(piece.kind, x, width, title))
    return bars


def describe_timeline(pieces: t.Sequence[Piece]) -> list[tuple[str, str]]:
    """Return names and durations of what a job's time consists of: start, run, end.

    Args:
        pieces: as the facts have them.
    """
    kinds = {"start": STARTS, "run": ("run",), "end": ("end",)}
    sums = {name: sum(one.seconds for one in pieces if one.kind in members) for name, members in kinds.items()}
    return [(name, duration(seconds)) for name, seconds in sums.items() if seconds]


def draw_day(day: Day, most: int) -> list[Bar]:
    """Return the bars of a day's outcomes.

    Args:
        day: with its counts.
        most: the largest sum of all days, which is as wide as the picture.
    """
    counts = [day.counts[kind] for kind in KINDS if kind in day.counts]
    kinds = [kind for kind in KINDS if kind in day.counts]
    places = _share_out(counts, round(WIDTH * sum(counts) / max(1, most)))
    return [
        Bar(kind, x, width, f"{kind}: {count}") for (x, width), kind, count in zip(places, kinds, counts, strict=True)
    ]


def _share_out(lengths: t.Sequence[float], width: int = WIDTH) -> t.Iterator[tuple[int, int]]:
    """Yield place and width of each of several bars, which fill a width together."""
    total = sum(lengths) or 1.0
    least = min(LEAST, width // max(1, len(lengths)))
    free = width - least * len(lengths)
    done, x = 0.0, 0
    for number, length in enumerate(lengths, 1):
        done += length
        end = round(free * done / total) + least * number
        yield x, end - x
        x = end


def span_of(images: t.Sequence[ImageStarts]) -> tuple[float, float]:
    """Return the least and the greatest time of a common scale, in seconds.

    Args:
        images: with their starts, one at least.
    """
    least = max(LEAST_S, min(one.seconds[0] for one in images))
    most = max(least, max(one.seconds[-1] for one in images))
    low, high = _round_down(least), _round_up(most)
    return low, high if high > low else low * 2


_STEPS = (1, 2, 5)


def _round_down(seconds: float) -> float:
    power = 10.0 ** math.floor(math.log10(seconds))
    return max(step for step in _STEPS if step * power <= seconds * 1.000001) * power


def _round_up(seconds: float) -> float:
    power = 10.0 ** math.floor(math.log10(seconds))
    return min(step for step in (*_STEPS, 10) if step * power >= seconds * 0.999999) * power


def ticks_of(low: float, high: float) -> list[tuple[int, str]]:
    """Return places and labels of the scale, at 1, 2 and 5 times powers of ten.

    Args:
        low: its beginning.
        high: its end.
    """
    found, power = [], 10.0 ** math.floor(math.log10(low))
    while power <= high * 1.000001:
        found += [step * power for step in _STEPS if low * 0.999999 <= step * power <= high * 1.000001]
        power *= 10
    if len(found) > 7:
        found = [second for second in found if f"{second:e}"[0] == "1"] or found[:1]
    return [(_place(second, low, high), f"{second:g} s" if second < 60 else duration(second)) for second in found]


def _place(second: float, low: float, high: float) -> int:
    share = math.log(max(second, low) / low) / math.log(high / low)
    return round(WIDTH * min(1.0, share))


def draw_distribution(image: ImageStarts, low: float, high: float) -> list[Column]:
    """Return the columns of how long starts with an image took, on a scale of powers.

    Args:
        image: with its starts.
        low: beginning of the scale, in seconds.
        high: its end.
    """
    counts = [0] * BINS
    for seconds in image.seconds:
        counts[min(BINS - 1, _place(seconds, low, high) * BINS // WIDTH)] += 1
    most = max(counts)
    edges = [round(WIDTH * number / BINS) for number in range(BINS + 1)]
    return [
        Column(
            edges[number],
            edges[number + 1] - edges[number],
            max(4, round(100 * count / most)),
            f"{count} within {duration(low * (high / low) ** (number / BINS))} to "
            f"{duration(low * (high / low) ** ((number + 1) / BINS))}",
        )
        for number, count in enumerate(counts)
        if count
    ]

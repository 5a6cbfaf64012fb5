# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A picture of bars: rows of them, coloured, over one scale of seconds, as SVG."""

from __future__ import annotations

import dataclasses
import typing as t
import xml.etree.ElementTree as ET

from ..text import printable

WIDTH, LEFT, RIGHT, TOP, ROW = 960, 270, 60, 56, 22
LEGEND_X, LEGEND_ROW = 110, 20
OTHER = "#999999"
LONG_SHARE = 2.0
"""A job that lasts longer than all else by this factor is drawn as long as that, with a gap: the rest stays visible."""
LEAST_S = 0.01


class Lasting:
    """What has a beginning and lasts; a base of dataclasses that have both fields."""

    __slots__ = ()
    begin_s: float
    seconds: float

    @property
    def end_s(self) -> float:
        """In seconds since that from which `begin_s` counts."""
        return self.begin_s + self.seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Bar(Lasting):
    """Something that took its time.

    Attributes:
        kind: what gives it its colour.
        begin_s: since the first thing of the picture.
    """

    kind: str
    name: str
    begin_s: float
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Bars beside each other, with a word before them."""

    label: str
    bars: tuple[Bar, ...]
    figure: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Scale:
    """From seconds to places, less a gap in which only the job ran."""

    span_s: float
    gap: tuple[float, float] = (0.0, 0.0)

    @property
    def shown_s(self) -> float:
        return self.span_s - (self.gap[1] - self.gap[0])

    def x(self, second: float) -> float:
        begin, end = self.gap
        drawn_second = second - (end - begin) if second >= end else min(second, begin)
        return LEFT + drawn_second * (WIDTH - LEFT - RIGHT) / self.shown_s

    def ticks(self) -> list[float]:
        begin, end = self.gap
        marks = _ticks(self.shown_s)
        if end <= begin:
            return marks
        return [mark for mark in marks if mark <= begin] + [end]


def draw(rows: t.Sequence[Row], title: str, colours: t.Mapping[str, str]) -> str:
    """The picture, as SVG.

    Args:
        rows: from top to bottom.
        title: above them.
        colours: of each kind of bar, in the order of the legend.
    """
    scale = _scale([piece for row in rows for piece in row.bars])
    kinds = list(dict.fromkeys(piece.kind for row in rows for piece in row.bars))
    kinds.sort(key=lambda kind: list(colours).index(kind) if kind in colours else len(colours))
    a_line = (WIDTH - LEFT) // LEGEND_X
    bottom = TOP + ROW * len(rows)
    height = bottom + 24 + LEGEND_ROW * max(1, -(-len(kinds) // a_line))
    size = {"width": str(WIDTH), "height": str(height), "viewBox": f"0 0 {WIDTH} {height}"}
    face = {"font-family": "sans-serif", "font-size": "12"}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **face})
    ET.SubElement(svg, "title").text = printable(title)
    ET.SubElement(svg, "rect", width="100%", height="100%", fill="#ffffff")
    _text(svg, 12, 24, title, size=15)
    for tick in scale.ticks():
        x = scale.x(tick)
        line = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": str(TOP - 6), "y2": str(bottom), "stroke": "#dddddd"}
        ET.SubElement(svg, "line", line)
        _text(svg, x, TOP - 10, f"{round(tick, 2):g} s", anchor="middle")
    if not rows:
        _text(svg, LEFT, TOP, "the record knows of no time")
    for number, row in enumerate(rows):
        _row(svg, TOP + ROW * number, row, scale, colours)
    for number, kind in enumerate(kinds):
        line_number, place = divmod(number, a_line)
        x, y = LEFT + LEGEND_X * place, bottom + 16 + LEGEND_ROW * line_number
        ET.SubElement(svg, "rect", x=f"{x:.0f}", y=str(y), width="12", height="12", fill=colours.get(kind, OTHER))
        _text(svg, x + 17, y + 10, kind or "other")
    return ET.tostring(svg, encoding="unicode", xml_declaration=True) + "\n"


def _scale(bars: t.Sequence[Bar]) -> _Scale:
    span = max([LEAST_S, *(piece.end_s for piece in bars)])
    job = max((piece for piece in bars if piece.kind == "job"), key=lambda piece: piece.seconds, default=None)
    if job is None:
        return _Scale(span)
    rest = max(span - job.seconds, 1.0)
    if job.seconds <= LONG_SHARE * rest:
        return _Scale(span)
    hidden = job.seconds - rest
    begin = job.begin_s + rest / 2
    return _Scale(span, (begin, begin + hidden))


def _row(svg: ET.Element, y: float, row: Row, scale: _Scale, colours: t.Mapping[str, str]) -> None:
    group = ET.SubElement(svg, "g", {"class": "phase"})
    for piece in row.bars:
        x = scale.x(piece.begin_s)
        width = max(1.0, scale.x(piece.end_s) - x)
        place = {"x": f"{x:.1f}", "y": str(y + 3), "width": f"{width:.1f}", "height": str(ROW - 6)}
        rect = ET.SubElement(group, "rect", {**place, "fill": colours.get(piece.kind, OTHER)})
        caption = f"{piece.kind or 'other'}: {piece.name}, from {piece.begin_s:.2f} s to {piece.end_s:.2f} s"
        ET.SubElement(rect, "title").text = printable(caption)
        if scale.gap[1] > scale.gap[0] and piece.begin_s < scale.gap[0] and piece.end_s > scale.gap[1]:
            _text(group, x + width / 2, y + 15, f"... {piece.seconds:.0f} s ...", anchor="middle")
    _text(group, 12, y + 15, row.label)
    if row.figure:
        _text(group, LEFT - 12, y + 15, row.figure, anchor="end")


def _text(parent: ET.Element, x: float, y: float, content: str, *, anchor: str = "start", size: int = 12) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "font-size": str(size)}
    ET.SubElement(parent, "text", place, fill="#222222").text = printable(content)


def _ticks(span_s: float) -> list[float]:
    """At most twelve marks, at 1, 2 or 5 times a power of ten."""
    step = next(step for power in range(-4, 9) for base in (1, 2, 5) if span_s / (step := base * 10.0**power) <= 12)
    return [round(number * step, 6) for number in range(int(span_s / step) + 1)]

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of a job went, as a picture: rows of coloured bars over one scale of seconds."""

from __future__ import annotations

import dataclasses
import typing as t
import xml.etree.ElementTree as ET

from ...text import printable

WIDTH, LEFT, RIGHT, TOP, ROW = 960, 270, 60, 56, 22
LEGEND_X, LEGEND_ROW = 110, 20
GUEST_PHASES = ("disk", "seed", "start", "address", "ready")
"""As the node measures them, one behind the other (`GuestFacts.timings_s`)."""
COLOURS = {
    "hooks": "#b8c4d6",
    "plan": "#4c6a92",
    "nodes": "#c98a2b",
    "record": "#7f7f7f",
    "disk": "#8c6d5a",
    "seed": "#c2b280",
    "start": "#5b8c5a",
    "address": "#3f8f9f",
    "ready": "#a3b84c",
    "job": "#8d5a97",
    "gone": "#b5524a",
}
"""One colour a phase."""
OTHER = "#999999"
LONG_SHARE = 2.0
"""A job that lasts longer than all else by this factor is drawn as long as that, with a gap: the rest stays visible."""
LEAST_S = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """Something that took its time.

    Attributes:
        kind: what gives it its colour.
        begin_s: since the first thing of the job.
    """

    kind: str
    name: str
    begin_s: float
    seconds: float

    @property
    def end_s(self) -> float:
        """Since the first thing of the job."""
        return self.begin_s + self.seconds


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
        shown = second - (end - begin) if second >= end else min(second, begin)
        return LEFT + shown * (WIDTH - LEFT - RIGHT) / self.shown_s

    def ticks(self) -> list[float]:
        begin, end = self.gap
        marks = _ticks(self.shown_s)
        if end <= begin:
            return marks
        return [mark for mark in marks if mark <= begin] + [end]


def rows_of(record: t.Mapping[str, t.Any]) -> list[Row]:
    """The rows of a job's record: the mother superior's steps, then a row for each guest.

    Args:
        record: `record.json`; what is missing or of another form is left out.

    Returns:
        Rows whose time begins with the first thing that the record knows of; () when it knows of no time.
    """
    known = {str(name): span for name, one in _mapping(record.get("phases")).items() if (span := _span(one))}
    if not known:
        return []
    zero = min(begin for begin, _seconds in known.values())
    spans = {name: Bar(_kind(name), name, begin - zero, seconds) for name, (begin, seconds) in known.items()}
    ordered = sorted(spans.values(), key=lambda piece: (piece.begin_s, -piece.seconds))
    rows = [Row("hooks", tuple(piece for piece in ordered if piece.kind == "hooks"))]
    rows += [
        Row(piece.name, (piece,), f"{piece.seconds:.2f} s") for piece in ordered if piece.kind in ("plan", "record")
    ]
    guests = [one for one in _list(record.get("guests")) if isinstance(one, dict)]
    rows += [_guest_row(guest, spans) for guest in guests]
    seen = {str(guest.get("node")) for guest in guests}
    rows += [  # what a node did that has left no guest
        Row(piece.name, (piece,), f"{piece.seconds:.2f} s")
        for piece in ordered
        if piece.kind == "nodes" and piece.name.partition(".")[2] not in seen
    ]
    rest = [piece for piece in ordered if piece.kind == ""]
    rows += [Row(piece.name, (piece,), f"{piece.seconds:.2f} s") for piece in rest]
    return [row for row in rows if row.bars]


def _guest_row(guest: t.Mapping[str, t.Any], spans: t.Mapping[str, Bar]) -> Row:
    node = str(guest.get("node"))
    bars: list[Bar] = []
    present, absent = spans.get(f"present.{node}"), spans.get(f"absent.{node}")
    if present is not None:
        seconds = {k: v for k, v in _mapping(guest.get("seconds")).items() if _is_figure(v)}
        bars += guest_bars(seconds, present.end_s)
    if "prologue" in spans and "epilogue" in spans:
        begin = spans["prologue"].end_s
        bars.append(Bar("job", "job", begin, max(0.0, spans["epilogue"].begin_s - begin)))
    if absent is not None:
        bars.append(Bar("gone", "gone", absent.begin_s, absent.seconds))
    return Row(f"{guest.get('name', 'a guest')} on {node}", tuple(bars))


def guest_bars(seconds: t.Mapping[str, float], end_s: float) -> list[Bar]:
    """What a node says of a guest: how long each phase took; the last ended when the node answered.

    Args:
        seconds: by phase.
        end_s: when the node answered.
    """
    found: list[Bar] = []
    for name in reversed([name for name in GUEST_PHASES if name in seconds]):
        end_s -= seconds[name]
        found.append(Bar(name, name, end_s, seconds[name]))
    return found[::-1]


def draw_record(record: t.Mapping[str, t.Any], title: str) -> str:
    """The picture of a job's record, as SVG.

    Args:
        record: `record.json`.
        title: above it.
    """
    return draw(rows_of(record), title, COLOURS)


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
        ET.SubElement(
            svg, "rect", x=f"{x:.0f}", y=str(y), width="12", height="12", fill=colours.get(kind, OTHER)
        )  # fmt: skip
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
        words = f"{piece.kind or 'other'}: {piece.name}, from {piece.begin_s:.2f} s to {piece.end_s:.2f} s"
        ET.SubElement(rect, "title").text = printable(words)
        if scale.gap[1] > scale.gap[0] and piece.begin_s < scale.gap[0] and piece.end_s > scale.gap[1]:
            _text(group, x + width / 2, y + 15, f"... {piece.seconds:.0f} s ...", anchor="middle")
    _text(group, 12, y + 15, row.label)
    if row.figure:
        _text(group, LEFT - 12, y + 15, row.figure, anchor="end")


def _text(parent: ET.Element, x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "font-size": str(size)}
    ET.SubElement(parent, "text", place, fill="#222222").text = printable(words)


def _ticks(span_s: float) -> list[float]:
    """At most twelve marks, at 1, 2 or 5 times a power of ten."""
    step = next(step for power in range(-4, 9) for base in (1, 2, 5) if span_s / (step := base * 10.0**power) <= 12)
    return [round(number * step, 6) for number in range(int(span_s / step) + 1)]


def _kind(name: str) -> str:
    if name in ("prologue", "epilogue"):
        return "hooks"
    if name.startswith(("present.", "absent.")):
        return "nodes"
    return name if name in COLOURS else ""


def _is_figure(value: object) -> t.TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11


def _span(one: object) -> tuple[float, float] | None:
    facts = _mapping(one)
    begin, seconds = facts.get("began"), facts.get("seconds")
    return (float(begin), float(seconds)) if _is_figure(begin) and _is_figure(seconds) else None


def _mapping(value: object) -> t.Mapping[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[t.Any]:
    return value if isinstance(value, list) else []

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of a job went, as a picture: rows of coloured bars over one scale of seconds."""

from __future__ import annotations

import typing as t

from ...rendering.bar_chart import Bar, Row, draw

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


def rows_of(record: t.Mapping[str, t.Any]) -> list[Row]:
    """Return the rows of a job's record: the mother superior's steps, then a row for each guest.

    Args:
        record: `record.json`; what is missing or of another form is left out.

    Returns:
        Rows whose time begins with the first thing that the record knows of; [] when it knows of no time.
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
    """Return the bars of a guest's phases; the last phase ended when the node answered.

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
    """Return the picture of a job's record, as SVG.

    Args:
        record: `record.json`.
        title: above it.
    """
    return draw(rows_of(record), title, COLOURS)


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

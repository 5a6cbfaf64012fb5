# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of one job, and their picture: a row a phase, time from the start of the prologue."""

from __future__ import annotations

import dataclasses
import typing as t
import xml.etree.ElementTree as ET

WIDTH, LEFT, RIGHT, TOP, ROW = 960, 270, 60, 56, 22
COLOURS = {
    "hooks": "#4c6a92",
    "playbooks": "#c98a2b",
    "guest": "#5b8c5a",
    "job": "#8d5a97",
    "bare boot": "#888888",
}
GUEST_PHASES = ("disk", "seed", "start", "address", "ready")
"""As the node measures them, one behind the other (`GuestFacts.timings_s`)."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """Something that took its time.

    Attributes:
        lane: who was at work: a key of `COLOURS`.
        begin_s: since the start of the prologue.
    """

    lane: str
    name: str
    begin_s: float
    seconds: float


def phases_of(seen: t.Mapping[str, t.Any], boot_s: float) -> list[Phase]:
    """The phases of a job, in the order in which they began.

    Args:
        seen: what was seen of it on its node (`inside/job_watch.py`).
        boot_s: the bare boot of the same pair, drawn from the moment at which the guest was created.
    """
    record = seen["record"]
    known = record["phases"]
    zero = known["prologue"]["began"]

    def lane_of(name: str) -> str:
        return "hooks" if name in ("prologue", "epilogue") else "playbooks"

    found = [Phase(lane_of(name), name, one["began"] - zero, one["seconds"]) for name, one in known.items()]
    present = next((one for one in found if one.name.startswith("present.")), None)
    if present is not None and record["guests"]:
        guest = _guest_phases(record["guests"][0]["seconds"], present.begin_s + present.seconds)
        found += guest
        found += [Phase("bare boot", "bare boot", one.begin_s, boot_s) for one in guest if one.name == "start"]
    ready, first = known["prologue"]["seconds"], seen["first_line"] - zero
    found.append(Phase("job", "shell and ssh", ready, first - ready))
    found.append(Phase("job", "script", first, known["epilogue"]["began"] - zero - first))
    return sorted(found, key=lambda phase: (phase.begin_s, -phase.seconds))


def _guest_phases(seconds: t.Mapping[str, float], end_s: float) -> list[Phase]:
    """The node says how long each took; the last ended when the node answered."""
    found: list[Phase] = []
    for name in reversed([name for name in GUEST_PHASES if name in seconds]):
        end_s -= seconds[name]
        found.append(Phase("guest", name, end_s, seconds[name]))
    return found[::-1]


def draw(phases: t.Sequence[Phase], title: str) -> str:
    """The picture, as SVG.

    Args:
        phases: from top to bottom.
        title: above them.
    """
    span = max(phase.begin_s + phase.seconds for phase in phases)
    scale = (WIDTH - LEFT - RIGHT) / span
    height = TOP + ROW * len(phases) + 44
    size = {"width": str(WIDTH), "height": str(height), "viewBox": f"0 0 {WIDTH} {height}"}
    face = {"font-family": "sans-serif", "font-size": "12"}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **face})
    ET.SubElement(svg, "title").text = title
    ET.SubElement(svg, "rect", width="100%", height="100%", fill="#ffffff")
    _text(svg, 12, 24, title, size=15)
    bottom = TOP + ROW * len(phases)
    for tick in _ticks(span):
        x = LEFT + tick * scale
        line = {"x1": f"{x:.1f}", "x2": f"{x:.1f}", "y1": str(TOP - 6), "y2": str(bottom), "stroke": "#dddddd"}
        ET.SubElement(svg, "line", line)
        _text(svg, x, TOP - 10, f"{tick:g} s", anchor="middle")
    for number, phase in enumerate(phases):
        _row(svg, TOP + ROW * number, phase, scale)
    x = float(LEFT)
    for lane in dict.fromkeys(phase.lane for phase in phases):
        ET.SubElement(
            svg, "rect", x=f"{x:.0f}", y=str(bottom + 16), width="12", height="12", fill=COLOURS[lane]
        )  # fmt: skip
        _text(svg, x + 17, bottom + 26, lane)
        x += 110
    return ET.tostring(svg, encoding="unicode", xml_declaration=True) + "\n"


def _row(svg: ET.Element, y: float, phase: Phase, scale: float) -> None:
    group = ET.SubElement(svg, "g", {"class": "phase"})
    begin, end = f"{phase.begin_s:.2f}", f"{phase.begin_s + phase.seconds:.2f}"
    ET.SubElement(group, "title").text = f"{phase.lane}: {phase.name}, from {begin} s to {end} s"
    x, width = LEFT + phase.begin_s * scale, max(1.0, phase.seconds * scale)
    ET.SubElement(
        group, "rect", x=f"{x:.1f}", y=str(y + 3), width=f"{width:.1f}", height=str(ROW - 6), fill=COLOURS[phase.lane]
    )  # fmt: skip
    _text(group, 12, y + 15, phase.name)
    _text(group, LEFT - 12, y + 15, f"{phase.seconds:.2f} s", anchor="end")


def _text(parent: ET.Element, x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "font-size": str(size)}
    ET.SubElement(parent, "text", place, fill="#222222").text = words


def _ticks(span_s: float) -> list[float]:
    """At most twelve marks, at 1, 2 or 5 times a power of ten."""
    step = next(step for power in range(-2, 6) for base in (1, 2, 5) if span_s / (step := base * 10.0**power) <= 12)
    return [round(number * step, 6) for number in range(int(span_s / step) + 1)]

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of one job, and their picture: a row a phase, time from the start of the prologue."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import timeline_svg
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.bar_chart import Bar, Row
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.bar_chart import draw as draw_rows

COLOURS = {
    "hooks": "#4c6a92",
    "playbooks": "#c98a2b",
    "guest": "#5b8c5a",
    "job": "#8d5a97",
    "bare boot": "#888888",
}


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
        guest = [
            Phase("guest", bar.name, bar.begin_s, bar.seconds)
            for bar in timeline_svg.guest_bars(record["guests"][0]["seconds"], present.begin_s + present.seconds)
        ]
        found += guest
        found += [Phase("bare boot", "bare boot", one.begin_s, boot_s) for one in guest if one.name == "start"]
    ready, first = known["prologue"]["seconds"], seen["first_line"] - zero
    found.append(Phase("job", "shell and ssh", ready, first - ready))
    found.append(Phase("job", "script", first, known["epilogue"]["began"] - zero - first))
    return sorted(found, key=lambda phase: (phase.begin_s, -phase.seconds))


def draw(phases: t.Sequence[Phase], title: str) -> str:
    """The picture, as SVG: a row a phase.

    Args:
        phases: from top to bottom.
        title: above them.
    """
    rows = [
        Row(phase.name, (Bar(phase.lane, phase.name, phase.begin_s, phase.seconds),), f"{phase.seconds:.2f} s")
        for phase in phases
    ]
    return draw_rows(rows, title, COLOURS)

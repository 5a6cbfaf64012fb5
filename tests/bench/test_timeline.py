# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of a job and their picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.bench.timeline import COLOURS, Phase, draw, phases_of

SVG = "{http://www.w3.org/2000/svg}"
SEEN = {
    "first_line": 1006.5,
    "over": 1008.5,
    "record": {
        "phases": {
            "prologue": {"began": 1000.0, "seconds": 6.0},
            "plan": {"began": 1000.5, "seconds": 0.1},
            "present.cn1": {"began": 1000.75, "seconds": 5.0},
            "record": {"began": 1005.8, "seconds": 0.1},
            "epilogue": {"began": 1007.0, "seconds": 1.25},
            "absent.cn1": {"began": 1007.5, "seconds": 0.5},
        },
        "guests": [{"seconds": {"disk": 0.25, "seed": 0.25, "start": 0.5, "address": 3.0, "ready": 0.5}}],
    },
}
"""What was seen of a job: the guest's phases end at 5.75 s, when the node answered."""


def test_phases_begin_where_they_began() -> None:
    """Seconds since the start of the prologue; the node's own durations lie before its answer."""
    found = {phase.name: (phase.lane, phase.begin_s, phase.seconds) for phase in phases_of(SEEN, 4.25)}
    assert found == {
        "prologue": ("hooks", 0.0, 6.0),
        "plan": ("playbooks", 0.5, pytest.approx(0.1)),
        "present.cn1": ("playbooks", 0.75, 5.0),
        "disk": ("guest", 1.25, 0.25),
        "seed": ("guest", 1.5, 0.25),
        "start": ("guest", 1.75, 0.5),
        "bare boot": ("bare boot", 1.75, 4.25),
        "address": ("guest", 2.25, 3.0),
        "ready": ("guest", 5.25, 0.5),
        "record": ("playbooks", pytest.approx(5.8), 0.1),
        "shell and ssh": ("job", 6.0, 0.5),
        "script": ("job", 6.5, 0.5),
        "epilogue": ("hooks", 7.0, 1.25),
        "absent.cn1": ("playbooks", 7.5, 0.5),
    }


def test_phases_come_in_the_order_of_their_beginnings() -> None:
    """What holds another stands above it."""
    found = phases_of(SEEN, 4.25)
    assert found[0].name == "prologue"
    assert [phase.begin_s for phase in found] == sorted(phase.begin_s for phase in found)


def test_picture_is_well_formed_and_has_a_row_a_phase() -> None:
    """Each row's bar lies within the picture; every lane is named."""
    phases = phases_of(SEEN, 4.25)
    svg = ET.fromstring(draw(phases, "a <job> & its guest"))
    assert svg.tag == f"{SVG}svg"
    assert svg.findtext(f"{SVG}title") == "a <job> & its guest"
    rows = [group for group in svg.iter(f"{SVG}g") if group.get("class") == "phase"]
    assert [row.findtext(f"{SVG}text") for row in rows] == [phase.name for phase in phases]
    for row in rows:
        bar = row.find(f"{SVG}rect")
        assert bar is not None
        assert float(bar.get("x", "-1")) >= 0
        assert float(bar.get("x", "0")) + float(bar.get("width", "0")) <= float(svg.get("width", "0"))
    arguments = {text.text for text in svg.findall(f"{SVG}text")}
    assert arguments >= set(COLOURS)


def test_twice_as_long_is_twice_as_wide() -> None:
    """All rows have one scale."""
    svg = ET.fromstring(draw([Phase("hooks", "one", 0.0, 1.0), Phase("job", "two", 1.0, 2.0)], "t"))
    first, second = (group.find(f"{SVG}rect") for group in svg.iter(f"{SVG}g"))
    assert first is not None
    assert second is not None
    assert float(second.get("width", "0")) == pytest.approx(2 * float(first.get("width", "0")), abs=0.2)
    assert float(second.get("x", "0")) == pytest.approx(
        float(first.get("x", "0")) + float(first.get("width", "0")), abs=0.2
    )

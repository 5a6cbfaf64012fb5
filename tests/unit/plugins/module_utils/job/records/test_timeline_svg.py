# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of a job's record: a row for each guest, a colour for each phase."""

from __future__ import annotations

import pathlib
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import html_report, timeline_svg
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.job_record import JobRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import bar_chart

SVG = "{http://www.w3.org/2000/svg}"


def record_of(job_s: float = 2.0) -> dict[str, t.Any]:
    """Two nodes, the second with two guests."""
    seconds = {"disk": 0.25, "seed": 0.25, "start": 0.5, "address": 3.0, "ready": 0.5}
    names = (("vcn1-1", "cn1"), ("vcn2-1", "cn2"), ("vcn2-2", "cn2"))
    return {
        "guests": [{"rank": i, "name": name, "node": node, "seconds": seconds} for i, (name, node) in enumerate(names)],
        "phases": {
            "prologue": {"began": 1000.0, "seconds": 6.0},
            "plan": {"began": 1000.5, "seconds": 0.1},
            "present.cn1": {"began": 1000.5, "seconds": 5.0},
            "present.cn2": {"began": 1000.5, "seconds": 5.25},
            "epilogue": {"began": 1006.0 + job_s, "seconds": 1.0},
            "absent.cn1": {"began": 1006.25 + job_s, "seconds": 0.5},
        },
    }


def test_row_a_guest_and_phases_where_they_were() -> None:
    rows = {row.label: row for row in timeline_svg.rows_of(record_of())}
    assert list(rows) == ["hooks", "plan", "vcn1-1 on cn1", "vcn2-1 on cn2", "vcn2-2 on cn2"]
    bars = {piece.name: (piece.kind, piece.begin_s, piece.seconds) for piece in rows["vcn1-1 on cn1"].bars}
    assert bars == {
        "disk": ("disk", 1.0, 0.25),
        "seed": ("seed", 1.25, 0.25),
        "start": ("start", 1.5, 0.5),
        "address": ("address", 2.0, 3.0),
        "ready": ("ready", 5.0, 0.5),
        "job": ("job", 6.0, 2.0),
        "gone": ("gone", 8.25, 0.5),
    }
    assert [piece.name for piece in rows["vcn2-1 on cn2"].bars][-1] == "job"  # nobody said when it was gone


def test_node_that_left_no_guest_has_a_row_of_its_own() -> None:
    rows = timeline_svg.rows_of({**record_of(), "guests": []})
    assert {row.label for row in rows[2:]} == {"present.cn1", "present.cn2", "absent.cn1"}


@pytest.mark.parametrize("raw", [{}, {"phases": {"prologue": 3}}, {"phases": [], "guests": 3}, {"guests": [{}]}])
def test_record_without_times_is_still_a_picture(raw: dict[str, t.Any]) -> None:
    svg = ET.fromstring(timeline_svg.draw_record(raw, "t"))
    assert "the record knows of no time" in {text.text for text in svg.iter(f"{SVG}text")}


def colours_by_name(svg: ET.Element) -> dict[str, set[str]]:
    """The colours of the bars, by what they say of themselves."""
    found: dict[str, set[str]] = {}
    for piece in svg.iter(f"{SVG}rect"):
        if title := piece.findtext(f"{SVG}title"):
            found.setdefault(title.partition(":")[0], set()).add(piece.get("fill", ""))
    return found


@pytest.mark.parametrize("job_s", [0.0, 2.0, 3600.0, 1e6])
def test_bars_lie_within_the_picture_and_have_one_colour_a_phase(job_s: float) -> None:
    svg = ET.fromstring(timeline_svg.draw_record(record_of(job_s), "a <job> & \x1b its guests"))
    assert svg.findtext(f"{SVG}title") == "a <job> & ? its guests"
    for piece in svg.iter(f"{SVG}rect"):
        if piece.find(f"{SVG}title") is not None:
            assert float(piece.get("x", "-1")) >= bar_chart.LEFT
            assert (
                float(piece.get("x", "0")) + float(piece.get("width", "0")) <= bar_chart.WIDTH - bar_chart.RIGHT + 1.1
            )
    colours = colours_by_name(svg)
    assert {"disk", "ready", "job", "gone", "hooks", "plan"} <= set(colours)
    assert all(len(of_one) == 1 for of_one in colours.values())
    assert len({next(iter(of_one)) for of_one in colours.values()}) == len(colours)


def test_long_job_leaves_room_for_the_rest() -> None:
    """A phase of three seconds is to be seen beside an hour; how long the job was is written on it."""
    svg = ET.fromstring(timeline_svg.draw_record(record_of(3600.0), "t"))
    widths = {
        (piece.findtext(f"{SVG}title") or "").partition(":")[0]: float(piece.get("width", "0"))
        for piece in svg.iter(f"{SVG}rect")
        if piece.find(f"{SVG}title") is not None
    }
    assert widths["address"] > 50
    assert widths["job"] > widths["address"]
    assert "... 3600 s ..." in {text.text for text in svg.iter(f"{SVG}text")}


def test_page_holds_picture_and_tables_and_escapes_all() -> None:
    raw = {**record_of(), "refusal": {"what": "<script>alert(1)</script>"}}
    record = JobRecord("1.head", 1, pathlib.Path("/"), "", raw)
    text = html_report.page(record, "job <1>", [("v<1>",)], [("disk", 0.25)])
    assert "<svg" in text
    assert "<?xml" not in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<td>v&lt;1&gt;</td>" in text
    assert "<td>disk</td><td>0.25</td>" in text

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node drawn for people: in lines of text, with colours on a terminal alone, and as a picture."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import sys
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_topology
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import node_drawing, node_picture

ROOT = pathlib.Path(__file__).resolve().parents[6]
EXAMPLE = ROOT / "docs/admin/node-topology.svg"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert(1)</script>"\x1b[2J&'


def node() -> node_topology.NodeTopology:
    data = json.loads((ROOT / "tests/fixtures/topology/gn1.json").read_text(encoding="utf-8"))
    return node_topology.topology_from_dict(data)


def text_of(topology: node_topology.NodeTopology, width: int = 100) -> list[str]:
    return [line.plain().rstrip() for line in node_drawing.draw_node(topology, width)]


def test_drawing_shows_cells_cores_with_their_threads_pages_and_who_has_what() -> None:
    lines = text_of(node())
    assert lines[0] == "gn1: 2 NUMA cells, 16 cores, 32 threads, 128G of memory"
    assert "cell 0: 64G; 4096 pages of 2M, 4096 free; distances 0:10 1:21" in lines
    assert "  socket 0 cache 0  [0:a 16:a] [1:b 17:b] [2:A 18:A] [3:A 19:A]" in lines
    assert "  socket 1 cache 1  [12:c 28:c] [13:. 29:.] [14:. 30:.] [15:. 31:.]" in lines
    assert {"  gpu 0000:3b:00.0: A", "  gpu 0000:5e:00.0: free", "  nic 0000:af:00.0: in quarantine"} <= set(lines)
    guests = lines[lines.index("B  4712.head.1") + 1 :]
    assert guests[0] == "   vgn1-2: 16G, vCPU 0 on 8, vCPU 1 on 24, vCPU 2 on 9, vCPU 3 on 25, other threads on 1,17"
    assert "   vgn1-3: 8.0G, all threads on 10-12,26-28" in guests
    assert "   devices gpu 0000:3b:00.0" in lines


def test_drawing_keeps_to_the_width_and_draws_every_core() -> None:
    narrow = text_of(node(), 50)
    boxes = [line for line in narrow if "[" in line]
    assert max(map(len, boxes)) <= 50
    assert sum(line.count("[") for line in boxes) == 16


def test_drawing_of_a_node_without_jobs_says_so_and_devices_near_no_cell_are_drawn() -> None:
    free = node().without_jobs()
    device = dataclasses.replace(free.devices[0], cell=node_topology.NO_CELL)
    lines = text_of(dataclasses.replace(free, devices=(device,)))
    assert lines[-1] == "no job has anything of it"
    assert lines[-3:-1] == ["near no cell that is known:", "  gpu 0000:3b:00.0: free"]


def test_drawing_has_letters_for_more_starts_than_there_are_letters() -> None:
    guests = tuple(
        node_topology.HeldGuest(f"{number:03}.head.1", f"v{number}", 1, "", str(number % 32)) for number in range(28)
    )
    holders = node_drawing.Holders(dataclasses.replace(node(), guests=guests, devices=()))
    assert list(holders.letters.values())[-3:] == ["Z", "AA", "AB"]
    assert holders.mark(27) == "ab"


def test_drawing_of_a_core_that_two_starts_share_names_both() -> None:
    guests = (
        node_topology.HeldGuest("1.head.1", "v1", 1, "", "3"),
        node_topology.HeldGuest("2.head.1", "v2", 1, "3", "3"),
    )
    assert node_drawing.Holders(dataclasses.replace(node(), guests=guests, devices=())).mark(3) == "B+a"


def test_print_has_colours_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node_drawing.print_node(node())
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    node_drawing.print_node(node())
    assert "\x1b[" in terminal.getvalue()


def test_names_of_a_node_that_lies_are_text_in_both_drawings() -> None:
    guest = dataclasses.replace(node().guests[0], name=HOSTILE, start=HOSTILE)
    topology = dataclasses.replace(node(), node=f"{HOSTILE}[red]", guests=(guest,))
    assert not any("\x1b" in line for line in text_of(topology))
    picture = node_picture.draw_picture(topology)
    root = ET.fromstring(picture)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "style", "rect", "text"}
    assert "\x1b" not in picture
    assert any("<script>" in (element.text or "") for element in root.iter(f"{SVG}text"))


def test_picture_is_as_high_as_what_it_holds_and_names_each_processor() -> None:
    root = ET.fromstring(node_picture.draw_picture(node()))
    titles = {element.text for element in root.iter(f"{SVG}title")}
    assert {f"processor {number}" for number in range(32)} == {
        (title or "").partition(":")[0] for title in titles if (title or "").startswith("processor ")
    }
    assert "processor 2: 4711.head.1" in titles
    lowest = max(float(element.get("y", "0")) for element in root.iter() if element.get("y"))
    assert lowest < float(root.get("height", "0")) < lowest + 100
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_picture_in_the_manual_is_what_is_drawn_today() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == node_picture.draw_picture(node())

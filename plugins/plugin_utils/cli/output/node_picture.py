# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as a picture (SVG): the same as `node_drawing.py`, for a page or a ticket.

Text of nodes and jobs is text of elements, written by a library: no name can be markup.  Colours follow the reader's
choice of light or dark, and each start has its letter besides.
"""

from __future__ import annotations

import textwrap
import typing as t
import xml.etree.ElementTree as ET

from ....module_utils.text import printable
from ....module_utils.wire.node_topology import NO_CELL, CellFacts, HeldDevice, NodeTopology, numbers
from .node_drawing import (
    STATE_NAMES,
    Holders,
    describe_cell,
    describe_device,
    describe_devices_of,
    describe_guest,
    devices_by_cell,
    summarize,
)

WIDTH, MARGIN, LINE, GAP = 960, 16, 18, 8
THREAD_W, THREAD_H, PAD = 46, 26, 4
DEVICE_W = 286
MARK = 3
"""Characters that a processor has room for besides its number."""
CHARACTERS = 130
"""That a line of text has room for."""
COLOURS = ("#1b78b3", "#b3641b", "#8257c9", "#2f8250", "#bd4560", "#6c7716", "#23807f", "#94592f")
"""Of starts, in turn: each is readable under white text and beside a light or a dark ground."""
STYLE = """
svg { color-scheme: light dark; }
.ground { fill: #ffffff; } .text { fill: #1c1c1c; } .quiet { fill: #5c5c5c; }
.cell { fill: #f3f5f8; stroke: #8a94a3; } .core { fill: #ffffff; stroke: #8a94a3; } .free { fill: #e3e7ec; }
.held { fill: #ffffff; } .bad { stroke: #c0392b; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
.ground { fill: #16191d; } .text { fill: #e8e8e8; } .quiet { fill: #a8b0ba; }
.cell { fill: #20252b; stroke: #66717e; } .core { fill: #16191d; stroke: #66717e; } .free { fill: #2d343c; }
}
"""


def draw_picture(topology: NodeTopology) -> str:
    """Return a node as SVG.

    Args:
        topology: the node's answer.
    """
    return _Picture(topology).finish()


class _Picture:
    """What is drawn from top to bottom."""

    def __init__(self, topology: NodeTopology) -> None:
        self._topology = topology
        self._holders = Holders(topology)
        self._colours = {start: COLOURS[n % len(COLOURS)] for n, start in enumerate(self._holders.letters)}
        self._svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        self._svg.attrib |= {"font-family": "sans-serif", "font-size": "12"}
        ET.SubElement(self._svg, "title").text = printable(summarize(topology))
        ET.SubElement(self._svg, "style").text = STYLE
        ET.SubElement(self._svg, "rect", {"class": "ground", "width": "100%", "height": "100%"})
        self._y = MARGIN + LINE

    def finish(self) -> str:
        self._text(MARGIN, summarize(self._topology), size=15)
        self._y += GAP
        devices = devices_by_cell(self._topology)
        for cell in self._topology.cells:
            self._cell(cell, devices.get(cell.number, []))
        if NO_CELL in devices:
            self._text(MARGIN, "near no cell that is known", kind="quiet")
            self._devices(MARGIN, devices[NO_CELL])
        self._starts()
        height = self._y + MARGIN
        self._svg.attrib |= {"width": str(WIDTH), "height": str(height), "viewBox": f"0 0 {WIDTH} {height}"}
        return ET.tostring(self._svg, encoding="unicode", xml_declaration=True) + "\n"

    def _cell(self, cell: CellFacts, devices: t.Sequence[HeldDevice]) -> None:
        frame = ET.SubElement(self._svg, "rect", {"class": "cell", "rx": "6", "x": str(MARGIN), "y": str(self._y)})
        top = self._y
        self._y += LINE
        self._text(MARGIN + GAP, describe_cell(cell))
        rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for core in cell.cores:
            rows.setdefault((core.socket, core.cache), []).append(numbers(core.threads))
        for (socket, cache), cores in rows.items():
            shared = f", cache {cache}" if cache >= 0 and len(rows) > 1 else ""
            self._text(MARGIN + GAP, f"socket {socket}{shared}", kind="quiet")
            self._cores(cores)
        self._devices(MARGIN + GAP, devices)
        frame.attrib |= {"width": str(WIDTH - 2 * MARGIN), "height": str(self._y - top)}
        self._y += GAP

    def _cores(self, cores: t.Sequence[tuple[int, ...]]) -> None:
        x, high = MARGIN + GAP, THREAD_H + 2 * PAD
        self._y -= LINE - GAP
        for threads in cores:
            width = THREAD_W * len(threads) + PAD
            if x + width > WIDTH - MARGIN - GAP and x > MARGIN + GAP:
                x, self._y = MARGIN + GAP, self._y + high + PAD
            self._box(x, self._y, width, high, "core")
            for place, thread in enumerate(threads):
                self._thread(x + PAD + place * THREAD_W, self._y + PAD, thread)
            x += width + PAD
        self._y += high + LINE

    def _thread(self, x: int, y: int, thread: int) -> None:
        starts = self._holders.starts_at(thread)
        mark = self._holders.mark(thread)
        short = mark if len(mark) <= MARK else f"{mark.partition('+')[0]}+"
        label = f"{thread} {short}" if starts else f"{thread}"
        whose = ", ".join(starts)
        self._labelled(x, y, THREAD_W - PAD, THREAD_H, label, starts, f"processor {thread}: {whose or 'nobody'}")

    def _devices(self, x: int, devices: t.Sequence[HeldDevice]) -> None:
        if not devices:
            return
        left = x
        self._y -= LINE - GAP
        for device in devices:
            if left + DEVICE_W > WIDTH - MARGIN:
                left, self._y = x, self._y + THREAD_H + PAD
            starts = (device.start,) if device.start in self._colours else ()
            about = f"{device.address}: {device.start or STATE_NAMES[device.state]}"
            box = self._labelled(
                left, self._y, DEVICE_W - GAP, THREAD_H, describe_device(device, self._holders), starts, about
            )
            if device.state in ("quarantine", "unusable"):
                box.set("class", "free bad")
            left += DEVICE_W
        self._y += THREAD_H + LINE

    def _labelled(
        self, x: int, y: int, width: int, height: int, label: str, starts: t.Sequence[str], about: str
    ) -> ET.Element:
        """A box with a text in it, in the colour of the first of the starts that have it."""
        box = self._box(x, y, width, height, "free")
        if starts:
            box.attrib.pop("class")
            box.set("fill", self._colours[starts[0]])
        ET.SubElement(box, "title").text = printable(about)
        text = {
            "x": str(x + width // 2),
            "y": str(y + 17),
            "text-anchor": "middle",
            "class": "held" if starts else "text",
        }
        ET.SubElement(self._svg, "text", text).text = printable(label)
        return box

    def _starts(self) -> None:
        self._y += LINE - GAP
        if not self._holders.letters:
            self._text(MARGIN, "no job has anything of it", kind="quiet")
            return
        for start, letter in self._holders.letters.items():
            box = self._box(MARGIN, self._y - 12, 28, 16, "")
            box.set("fill", self._colours[start])
            place = {"x": str(MARGIN + 14), "y": str(self._y), "text-anchor": "middle", "class": "held"}
            ET.SubElement(self._svg, "text", place).text = letter
            self._text(MARGIN + 36, start)
            for guest in self._topology.guests:
                if guest.start == start:
                    self._text(MARGIN + 36, describe_guest(guest), kind="quiet")
            if devices := describe_devices_of(start, self._topology):
                self._text(MARGIN + 36, f"devices {devices}", kind="quiet")
            self._y += PAD
        self._text(MARGIN, "capital: a vCPU's own; small: other threads of its guest, or all of them", kind="quiet")

    def _box(self, x: int, y: int, width: int, height: int, kind: str) -> ET.Element:
        place = {"x": str(x), "y": str(y), "width": str(width), "height": str(height), "rx": "3"}
        return ET.SubElement(self._svg, "rect", {**place, **({"class": kind} if kind else {})})

    def _text(self, x: int, text: str, *, kind: str = "text", size: int = 12) -> None:
        for line in textwrap.wrap(printable(text), CHARACTERS):
            place = {"x": str(x), "y": str(self._y), "class": kind, "font-size": str(size)}
            ET.SubElement(self._svg, "text", place).text = line
            self._y += LINE

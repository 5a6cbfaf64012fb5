# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node in lines of text: its cells, cores, pages and devices, and the letter of the start that has each.

What a node says is shown as text and never as markup: its names are its own.
"""

from __future__ import annotations

import sys
import typing as t

from ....module_utils.slow_libraries import load_library
from ....module_utils.text import format_bytes_short, format_mib, printable
from ....module_utils.wire.node_topology import (
    FREE,
    LEASED,
    NO_CELL,
    QUARANTINE,
    UNUSABLE,
    CellFacts,
    HeldDevice,
    HeldGuest,
    NodeTopology,
    numbers,
)

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
"""Of starts, in turn; their letters say the same where there are no colours."""
NOBODY = "."
STATE_NAMES = {FREE: "free", LEASED: "of a start", QUARANTINE: "in quarantine", UNUSABLE: "not usable"}
"""States of devices as people read them."""
WIDE = 100
"""Columns where nobody looks: cores of a file are not on one endless line."""
_INDENT = "  "


class Holders:
    """Which starts have what of a node, each with a letter of its own.

    Attributes:
        letters: of each start, in the order of their keys.
        vcpus: of each processor, the starts of the guests whose vCPUs have it for themselves.
        others: the same, of guests whose other threads run there, or all threads.
    """

    def __init__(self, topology: NodeTopology) -> None:
        starts = {guest.start for guest in topology.guests} | {one.start for one in topology.devices if one.start}
        self.letters = {start: _letter(number) for number, start in enumerate(sorted(starts))}
        self.vcpus: dict[int, set[str]] = {}
        self.others: dict[int, set[str]] = {}
        for guest in topology.guests:
            for cores in filter(None, guest.vcpu_cores.split(";")):
                _add(self.vcpus, numbers(cores), guest.start)
            _add(self.others, numbers(guest.other_cores), guest.start)

    def starts_at(self, thread: int) -> tuple[str, ...]:
        """Return the starts that have a processor, those of vCPUs first."""
        vcpus = self.vcpus.get(thread, set())
        return (*sorted(vcpus), *sorted(self.others.get(thread, set()) - vcpus))

    def mark(self, thread: int) -> str:
        """Return the letters at a processor: capital for a vCPU, small for other threads; `.` for nobody."""
        vcpus = self.vcpus.get(thread, set())
        letters = ((self.letters[start], start in vcpus) for start in self.starts_at(thread))
        return "+".join(letter if own else letter.lower() for letter, own in letters) or NOBODY


def _add(table: dict[int, set[str]], cores: t.Iterable[int], start: str) -> None:
    for core in cores:
        table.setdefault(core, set()).add(start)


def _letter(number: int) -> str:
    """A, B, .. Z, AA, AB, ..."""
    letters = ""
    number += 1
    while number:
        number, place = divmod(number - 1, 26)
        letters = chr(ord("A") + place) + letters
    return letters


def summarize(topology: NodeTopology) -> str:
    """Return a node in one line."""
    cores = [core for cell in topology.cells for core in cell.cores]
    threads = sum(len(numbers(core.threads)) for core in cores)
    memory = sum(cell.memory_mib for cell in topology.cells)
    parts = [_count(len(topology.cells), "NUMA cell"), _count(len(cores), "core"), _count(threads, "thread")]
    return f"{printable(topology.node)}: {', '.join([*parts, f'{format_mib_short(memory)} of memory'])}"


def describe_cell(cell: CellFacts) -> str:
    """Return a cell in a few words: memory, huge pages, distances."""
    parts = [format_mib_short(cell.memory_mib)]
    for pages in cell.pages:
        if pages.total:
            parts.append(f"{pages.total} pages of {format_page(pages.kib)}, {pages.free} free")
    if " " in cell.distances:
        parts.append(f"distances {cell.distances}")
    return f"cell {cell.number}: {'; '.join(parts)}"


def describe_device(device: HeldDevice, holders: Holders) -> str:
    """Return a device in a few words."""
    whose = holders.letters.get(device.start, "?") if device.state == LEASED else STATE_NAMES[device.state]
    return f"{device.pci_class} {device.address}: {whose}"


def describe_guest(guest: HeldGuest) -> str:
    """Return what a guest has of the node, in a line."""
    parts = [format_mib_short(guest.memory_mib)] if guest.memory_mib else ["being made"]
    if guest.vcpu_cores:
        parts += [f"vCPU {vcpu} on {cores}" for vcpu, cores in enumerate(guest.vcpu_cores.split(";"))]
        io = f" (virtual I/O: at least {guest.io_least} of them)" if guest.io_least else ""
        parts.append(f"other threads on {folded(guest.other_cores)}{io}")
    elif guest.memory_mib:
        parts.append(f"all threads on {folded(guest.other_cores) or 'all cores'}")
    return f"{printable(guest.name)}: {', '.join(parts)}"


def describe_devices_of(start: str, topology: NodeTopology) -> str:
    """Return the devices of a start in a line; "": it has none."""
    return ", ".join(f"{one.pci_class} {one.address}" for one in topology.devices if one.start == start)


def devices_by_cell(topology: NodeTopology) -> dict[int, list[HeldDevice]]:
    """Return the devices of each cell; those that are near none that there is are below `NO_CELL`."""
    known = {cell.number for cell in topology.cells}
    found: dict[int, list[HeldDevice]] = {}
    for device in topology.devices:
        found.setdefault(device.cell if device.cell in known else NO_CELL, []).append(device)
    return found


def format_mib_short(mib: int) -> str:
    """Return MiB in a few characters: `310M`, `1.2G`."""
    return format_bytes_short(mib << 20)


def format_page(kib: int) -> str:
    """Return the size of a page as users write it: `2M`, `1G`, `64K`."""
    return f"{kib}K" if kib % 1024 else format_mib(kib // 1024)


def folded(cores: str) -> str:
    """Return a text of processors with ranges: `0-3,8`."""
    parts: list[list[int]] = []
    for core in sorted(numbers(cores)):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Line(list[tuple[str, str]]):
    """A line of pieces of text, each with the key of the start that gives it its colour, or ""."""

    def plain(self) -> str:
        """Return its text alone."""
        return "".join(text for text, _start in self)


def draw_node(topology: NodeTopology, width: int) -> list[Line]:
    """Return the drawing of a node.

    Args:
        topology: the node's answer.
        width: columns that a line should not be wider than.
    """
    holders = Holders(topology)
    lines = [Line([(summarize(topology), "")])]
    devices = devices_by_cell(topology)
    for cell in topology.cells:
        lines.append(Line([(describe_cell(cell), "")]))
        lines += _draw_cores(cell, holders, width)
        lines += _draw_devices(devices.get(cell.number, []), holders)
    if NO_CELL in devices:
        lines.append(Line([("near no cell that is known:", "")]))
        lines += _draw_devices(devices[NO_CELL], holders)
    lines += _draw_starts(topology, holders)
    return lines


def _draw_cores(cell: CellFacts, holders: Holders, width: int) -> list[Line]:
    """Boxes of cores, a row for each last-level cache, as many beside each other as there is room for."""
    rows: dict[tuple[int, int], list[Line]] = {}
    for core in cell.cores:
        box = Line([("[", "")])
        for number, thread in enumerate(numbers(core.threads)):
            starts = holders.starts_at(thread)
            box.append((f"{' ' if number else ''}{thread}:{holders.mark(thread)}", starts[0] if starts else ""))
        box.append(("]", ""))
        rows.setdefault((core.socket, core.cache), []).append(box)
    lines: list[Line] = []
    for (socket, cache), boxes in rows.items():
        shared = f" cache {cache}" if cache >= 0 and len(rows) > 1 else ""
        begin = f"{_INDENT}socket {socket}{shared}  "
        line = Line([(begin, "")])
        for box in boxes:
            if len(line) > 1 and len(line.plain()) + len(box.plain()) > width:
                lines.append(line)
                line = Line([(" " * len(begin), "")])
            line += [*box, (" ", "")]
        lines.append(line)
    return lines


def _draw_devices(devices: t.Sequence[HeldDevice], holders: Holders) -> list[Line]:
    return [Line([(f"{_INDENT}{describe_device(one, holders)}", one.start)]) for one in devices]


def _draw_starts(topology: NodeTopology, holders: Holders) -> list[Line]:
    if not holders.letters:
        return [Line([("no job has anything of it", "")])]
    lines = [Line()]
    for start, letter in holders.letters.items():
        lines.append(Line([(f"{letter}  {printable(start)}", start)]))
        lines += [Line([(f"   {describe_guest(one)}", "")]) for one in topology.guests if one.start == start]
        if devices := describe_devices_of(start, topology):
            lines.append(Line([(f"   devices {devices}", "")]))
    lines.append(Line([("capital: a vCPU's own; small: other threads of its guest, or all of them; .: nobody's", "")]))
    return lines


def print_node(topology: NodeTopology) -> None:
    """Print the drawing of a node: with colours on a terminal, as plain text elsewhere."""
    if not sys.stdout.isatty():
        for line in draw_node(topology, WIDE):
            print(line.plain().rstrip())
        return
    console = load_library("rich.console").Console(highlight=False)
    make_text = load_library("rich.text").Text
    starts = list(Holders(topology).letters)
    for line in draw_node(topology, console.width):
        text = make_text()
        for piece, start in line:
            text.append(piece, f"bold {COLOURS[starts.index(start) % len(COLOURS)]}" if start else "")
        text.rstrip()
        console.print(text, soft_wrap=True)

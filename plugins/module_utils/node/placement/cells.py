# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sockets, cores, threads and NUMA cells of a guest, as of the cores it stands on: a pure function of those."""

from __future__ import annotations

import itertools
import typing as t

from ...errors import UserFault
from ...frozen import frozen
from ..system import cpus
from .pins import Pins
from .place import GuestCell, divide_memory
from .topology import DISTANCE_HERE, DISTANCE_THERE, Cell, Topology

KEY = "numa"
FARTHEST = 254
"""The greatest distance of ACPI's SLIT that does not mean "unreachable"."""


@frozen
class Shape:
    """What a guest shows of the cores it stands on.

    Attributes:
        cells: of the guest, each with the node's cell that has its memory; (): it has none of its own.
        distances: from each cell to each; () for one cell.
        sockets: of the guest.
        cores: of each socket.
        threads: of each core.
        dedicated: whether each vCPU has one core, on which no other thread of the guest runs.
        page_kib: of its memory; 0: ordinary pages.
    """

    cells: tuple[GuestCell, ...]
    distances: tuple[tuple[int, ...], ...]
    sockets: int
    cores: int
    threads: int
    dedicated: bool
    page_kib: int = 0

    @property
    def host_cells(self) -> str:
        """The node's cells that have its memory, as libvirt writes lists."""
        return cpus.format_cores(sorted({cell.host_cell for cell in self.cells}))

    @property
    def memory_by_cell(self) -> dict[int, int]:
        """MiB of each of the node's cells."""
        found: dict[int, int] = {}
        for cell in self.cells:
            found[cell.host_cell] = found.get(cell.host_cell, 0) + cell.memory_mib
        return found


def mirror(pins: Pins, topology: Topology, ram_mib: int, numa: str, page_mib: int = 0) -> Shape:
    """Return the shape of a guest.

    Args:
        pins: its cores.
        topology: of the node.
        ram_mib: its memory.
        numa: `auto`, `1` or `off` (`GuestSpec.numa`).
        page_mib: of what its memory is made; 0: of ordinary pages.

    Raises:
        UserFault: it cannot be had in one cell; a cell of it has not one page.
    """
    there = {thread: cell for cell in topology.cells for core in cell.cores for thread in core.threads}
    used = {core for cores in (*pins.vcpus, pins.others) for core in cores}
    if unknown := used - topology.threads:
        why = f"this node has no processor {min(unknown)}"
        raise UserFault("the cores of this job", why, "is it switched off? The batch system counts it")
    alone = all(len(cores) == 1 for cores in pins.vcpus)
    dedicated = alone and not {core for cores in pins.vcpus for core in cores}.intersection(pins.others)
    homes = [{there[core].number for core in cores} for cores in pins.vcpus]
    numbers = list(dict.fromkeys(number for home in homes for number in sorted(home)))
    if numa == "1" and len(numbers) > 1:
        why = f"it stands on the NUMA cells {', '.join(map(str, numbers))}"
        raise UserFault(f"{KEY}=1: a guest of the job", why, f"{KEY}=auto, fewer vCPUs, or another map")
    mirrored = numa != "off" and all(len(home) == 1 for home in homes) and any(c.memory_mib for c in topology.cells)
    cells = [cell for number in numbers for cell in topology.cells if cell.number == number] if mirrored else []
    threads = _threads(pins, there) if alone else 1
    sockets = _sockets(pins, there, threads)
    own = [tuple(vcpu for vcpu, home in enumerate(homes) if home == {cell.number}) for cell in cells]
    memory = divide_memory(ram_mib, [len(vcpus) for vcpus in own], page_mib or 1) if cells else []
    if 0 in memory:
        why = f"{ram_mib} MiB are not one page of {page_mib or 1} MiB for each of its {len(memory)} NUMA cells"
        raise UserFault("the memory of a guest of the job", why, "more ram, smaller pages, or numa=1")
    return Shape(
        tuple(
            GuestCell(_with_memory(cell, topology), vcpus, mib)
            for cell, vcpus, mib in zip(cells, own, memory, strict=True)
        ),
        tuple(tuple(_distance(one, other) for other in cells) for one in cells) if len(cells) > 1 else (),
        sockets,
        len(pins.vcpus) // sockets // threads,
        threads,
        dedicated,
        page_mib * 1024 if cells else 0,
    )


def _with_memory(cell: Cell, topology: Topology) -> int:
    """The cell that has the memory: itself, or the nearest that has any."""
    if cell.memory_mib:
        return cell.number
    having = [other for other in topology.cells if other.memory_mib]
    return min(having, key=lambda other: (_distance(cell, other), other.number)).number


def _distance(one: Cell, other: Cell) -> int:
    if one.number == other.number:
        return DISTANCE_HERE
    # libvirt takes no other cell for as near as the cell itself
    return min(FARTHEST, max(DISTANCE_HERE + 1, one.distances.get(other.number, DISTANCE_THERE)))


def _threads(pins: Pins, there: t.Mapping[int, Cell]) -> int:
    """How many vCPUs stand on each physical core; 1 where that differs, or they are no neighbours."""
    siblings = {thread: core.threads for cell in there.values() for core in cell.cores for thread in core.threads}
    runs = [len(list(run)) for _core, run in itertools.groupby(siblings[cores[0]] for cores in pins.vcpus)]
    touched = {siblings[cores[0]] for cores in pins.vcpus}
    return runs[0] if len(set(runs)) == 1 and len(runs) == len(touched) else 1


def _sockets(pins: Pins, there: t.Mapping[int, Cell], threads: int) -> int:
    """How many sockets a guest shows: those of its cores, where each has as many of its vCPUs, one after the other."""
    numbers = {thread: core.socket for cell in there.values() for core in cell.cores for thread in core.threads}
    runs = [len(list(run)) for _socket, run in itertools.groupby(numbers[cores[0]] for cores in pins.vcpus)]
    touched = {numbers[cores[0]] for cores in pins.vcpus}
    alike = len(set(runs)) == 1 and len(runs) == len(touched) and runs[0] % threads == 0
    return len(runs) if alike else 1

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cores of a node as libvirt tells of them: cells, sockets, cores, threads, caches and distances."""

from __future__ import annotations

import typing as t
import xml.etree.ElementTree as ET

from ...errors import NodeFault
from ...frozen import frozen
from ..system import cpus

DISTANCE_HERE, DISTANCE_THERE = 10, 20
"""What ACPI's SLIT says of a cell to itself, and to another one where nobody has written down more."""


@frozen
class Core:
    """One physical core.

    Attributes:
        threads: the processors that the kernel counts in it, ascending: one, or siblings.
        socket: which package it is in.
        cache: which of its cell's last-level caches it shares.
    """

    threads: cpus.Cores
    socket: int
    cache: int


@frozen
class Cell:
    """One NUMA cell.

    Attributes:
        number: as the kernel counts it.
        cores: of it, by their first threads; () for a cell of memory alone.
        memory_mib: of it; 0: it has none.
        pages: how many pages of each size it has set apart, by their KiB; the smallest size is ordinary memory.
        distances: to every cell, by number.
    """

    number: int
    cores: tuple[Core, ...]
    memory_mib: int
    pages: dict[int, int]
    distances: dict[int, int]


@frozen
class Topology:
    """All of a node.

    Attributes:
        cells: by their numbers, ascending; numbers may be missing.
    """

    cells: tuple[Cell, ...]

    @property
    def threads(self) -> frozenset[int]:
        """Every processor that the kernel counts."""
        return frozenset(thread for cell in self.cells for core in cell.cores for thread in core.threads)


def read_topology(capabilities: ET.Element) -> Topology:
    """Read what libvirt's capabilities say of the host.

    Args:
        capabilities: the root of `virsh capabilities`.

    Raises:
        NodeFault: they name no processor, or something in them is of another form.
    """
    try:
        caches = _caches(capabilities)
        cells = [_read_cell(cell, caches) for cell in capabilities.iterfind("host/topology/cells/cell")]
    except (KeyError, ValueError) as error:
        raise NodeFault("the topology of this node", f"libvirt tells it in an unknown form: {error!r}") from error
    topology = Topology(tuple(sorted(cells, key=lambda cell: cell.number)))
    if not topology.threads:
        raise NodeFault("the topology of this node", "libvirt names no processor of it", "virsh capabilities")
    return topology


def _caches(capabilities: ET.Element) -> dict[int, int]:
    """The last-level cache of each processor, by a number of our own: libvirt's are unique within a level alone."""
    banks = list(capabilities.iterfind("host/cache/bank"))
    last = max((int(bank.attrib["level"]) for bank in banks), default=0)
    found: dict[int, int] = {}
    for number, bank in enumerate(bank for bank in banks if int(bank.attrib["level"]) == last):
        found.update(dict.fromkeys(cpus.read(bank.attrib["cpus"]), number))
    return found


def _read_cell(cell: ET.Element, caches: t.Mapping[int, int]) -> Cell:
    cores: dict[cpus.Cores, Core] = {}
    for processor in cell.iterfind("cpus/cpu"):
        number = int(processor.attrib["id"])
        # a processor that is offline has a number alone
        if "siblings" not in processor.attrib:
            continue
        threads = cpus.read(processor.attrib["siblings"])
        cores[threads] = Core(threads, int(processor.attrib["socket_id"]), caches.get(number, -1))
    distances = {int(other.attrib["id"]): int(other.attrib["value"]) for other in cell.iterfind("distances/sibling")}
    pages = {_kib(page, page.attrib["size"]): int(page.text or "0") for page in cell.iterfind("pages")}
    memory = cell.find("memory")
    number = int(cell.attrib["id"])
    return Cell(
        number,
        tuple(sorted(cores.values(), key=lambda core: core.threads)),
        _kib(memory, memory.text or "0") // 1024 if memory is not None else 0,
        pages,
        distances or {number: DISTANCE_HERE},
    )


def _kib(element: ET.Element, text: str) -> int:
    if element.attrib.get("unit", "KiB") != "KiB":
        raise ValueError(f"unit {element.attrib['unit']}")
    return int(text)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Buses by which a guest knows which of its NUMA cells a device is near.

A device on the guest's own root complex is near no cell (`numa_node` -1).  One behind an expander bus (`pxb-pcie`) is
near the cell of that bus.  Each root complex of the node that has devices of the guest gets an expander bus: devices
that share a root complex of the node share one of the guest, so that libraries see which are close to each other.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....frozen import frozen
from ..api import HostDevice

FIRST_BUS = 64
"""Number of the first expander's bus: the guest's own root complex has those below, of which each device takes one."""
LAST_BUS = 254


class Cell(t.Protocol):
    """A cell of a guest (`placement/place.py`)."""

    @property
    def host_cell(self) -> int:
        """The node's cell whose memory it has."""


@frozen
class Expander:
    """An expander bus of a guest.

    Attributes:
        index: of its controller; libvirt counts all PCI controllers of a domain.
        bus: its number in the guest.
        cell: of the guest.
        ports: indexes of the controllers of its root ports, one for each device.
    """

    index: int
    bus: int
    cell: int
    ports: tuple[int, ...]


def arrange(
    devices: t.Sequence[HostDevice], cells: t.Sequence[Cell]
) -> tuple[tuple[HostDevice, ...], tuple[Expander, ...]]:
    """Give the devices of a guest places on buses that name their cells.

    Args:
        devices: of the guest.
        cells: of the guest, in the order in which it counts them; (): it has none, and its devices are near none.

    Returns:
        The devices, of which those near a cell of the guest have a port (`HostDevice.port`), and the expander buses in
        the order of the root complexes' names.
    """
    numbers: dict[int, int] = {}
    for number, cell in enumerate(cells):
        numbers.setdefault(cell.host_cell, number)  # a cell of the node without memory takes its neighbour's
    near = [device for device in devices if device.root and device.numa_node in numbers]
    sources = sorted({(device.root, device.numa_node) for device in near})
    expanders: list[Expander] = []
    ports: dict[str, int] = {}
    index = 1
    for position, source in enumerate(sources):
        behind = [device for device in near if (device.root, device.numa_node) == source]
        mine = tuple(range(index + 1, index + 1 + len(behind)))
        ports.update((device.name, port) for device, port in zip(behind, mine, strict=True))
        bus = FIRST_BUS + position * ((LAST_BUS - FIRST_BUS) // len(sources))
        expanders.append(Expander(index, bus, numbers[source[1]], mine))
        index = mine[-1] + 1
    placed = tuple(dataclasses.replace(device, port=ports.get(device.name, 0)) for device in devices)
    return placed, tuple(expanders)

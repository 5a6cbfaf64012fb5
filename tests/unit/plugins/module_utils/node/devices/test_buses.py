# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Buses of a guest that name the cells which its devices are near: one for each root complex of the node."""

from __future__ import annotations

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.api import HostDevice
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci.buses import Expander, arrange
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.place import GuestCell

CELLS = (GuestCell(2, (0, 1), 512), GuestCell(3, (2, 3), 512))
"""The guest's cells 0 and 1 are cells 2 and 3 of its node."""


def card(name: str, root: str, cell: int) -> HostDevice:
    return HostDevice("pci", name, numa_node=cell, root=root)


def test_devices_of_a_root_complex_share_a_bus_that_names_their_cell() -> None:
    given = (
        card("0000:c9:00.0", "pci0000:c8", 3),
        card("0000:3b:00.0", "pci0000:3a", 2),
        card("0000:ca:00.0", "pci0000:c8", 3),
    )
    devices, expanders = arrange(given, CELLS)
    assert expanders == (Expander(1, 64, 0, (2,)), Expander(3, 159, 1, (4, 5)))
    assert [(device.name, device.port) for device in devices] == [
        ("0000:c9:00.0", 4), ("0000:3b:00.0", 2), ("0000:ca:00.0", 5),
    ]  # fmt: skip


def test_two_root_complexes_of_one_cell_stay_two() -> None:
    _devices, expanders = arrange((card("0000:3b:00.0", "pci0000:3a", 2), card("0000:5e:00.0", "pci0000:5d", 2)), CELLS)
    assert [(one.bus, one.cell) for one in expanders] == [(64, 0), (159, 0)]


def test_device_near_no_cell_of_the_guest_is_where_libvirt_puts_it() -> None:
    given = (
        card("0000:01:00.0", "pci0000:00", -1),
        card("0000:02:00.0", "pci0000:00", 0),
        HostDevice("region", "vtorque-1"),
    )
    assert arrange(given, CELLS) == (given, ())


def test_device_of_a_guest_without_cells_is_where_libvirt_puts_it() -> None:
    given = (card("0000:3b:00.0", "pci0000:3a", 2),)
    assert arrange(given, ()) == (given, ())

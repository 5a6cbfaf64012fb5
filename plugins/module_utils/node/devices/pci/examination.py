# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the PCI devices that the site lists for this node could be handed to a guest now, for the doctor."""

from __future__ import annotations

import dataclasses

from ....wire.pci import PciClass
from ...state.settings import NodeSettings
from .. import leases
from . import inventory, passthrough, preflight, usage


@dataclasses.dataclass(frozen=True, slots=True)
class ExaminedDevice:
    """A device that the site lists.

    Attributes:
        pci_class: of the device.
        lease: which start has it; None: none.
        quarantined: why it is in quarantine; "": it is not.
        faults: what speaks against it; () of one that a start has.
        numa_node: the cell that it is near; -1: not known.
    """

    address: str
    pci_class: PciClass
    lease: leases.Lease | None
    quarantined: str
    faults: tuple[preflight.Fault, ...]
    numa_node: int = -1

    @property
    def is_usable(self) -> bool:
        """Return whether a guest has it, or could have it."""
        return self.lease is not None or not (self.quarantined or self.faults)


def examine(settings: NodeSettings, host: usage.Host | None = None) -> tuple[ExaminedDevice, ...]:
    """Return the devices of this node, each of them once.

    Args:
        settings: say which.
        host: where it is read.

    Raises:
        NodeFault: what starts have cannot be read.
    """
    host = host or passthrough.HOST
    by_device = {lease.device: lease for lease in leases.read_leases(settings)}
    quarantined = {one.device: one.why for one in leases.read_quarantine(settings)}
    used = usage.Usage(host)
    node = preflight.Node(inventory.has_groups(host.sys), inventory.is_unsafe(host.sys), inventory.has_vfio(host.sys))
    found: dict[str, ExaminedDevice] = {}
    for pci_class in settings.pci_classes:
        for address in pci_class.addresses:
            lease = by_device.get(address)
            faults: tuple[preflight.Fault, ...] = ()
            device = inventory.inspect(address, host.sys)
            if lease is None and address not in found:
                chosen = preflight.ChosenDevice(device, pci_class, 0, used.of(device))
                faults = preflight.find_faults([chosen], node, {})
            one = ExaminedDevice(address, pci_class, lease, quarantined.get(address, ""), faults, device.numa_node)
            found.setdefault(address, one)
    return tuple(found.values())

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether PCI devices may be handed to guests: all objections, of all devices at once; nothing is read.

Of a mediated device its driver answers for most: of these those alone of its presence, group, memory, cell and users.

| check | fault of |
|---|---|
| an IOMMU is on, and the device has a group | node |
| interrupts are remapped | node |
| the driver vfio-pci is loaded | node |
| the device is there and answers | node |
| it is of the kind that its class says | site |
| it is no bridge, and has no virtual functions switched on | site |
| the device of which it is a virtual function is up | site |
| all of its group goes along, is a bridge, or has no driver | site |
| nothing uses it | site |
| no other guest has it | retry |
| it can be reset without another device | site |
| locked memory may be had | node |
| its memory regions fit a guest | site |
| it is near the job's cores, where the class says so | user |
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....errors import NodeFault, SiteFault, UserFault, VTorqueError
from ....wire.pci import KINDS, MEDIATED, PciClass
from .inventory import DEAD, VFIO, Device

BRIDGES = (0x0600, 0x0604, 0x0609)
"""Class codes of host bridges and of bridges between buses, which stay with the node."""
WITHOUT_DRIVER = ("", VFIO, "pci-stub")
LOCKED_BESIDES_MIB = 1024
"""What libvirt lets qemu lock besides a guest's memory, for all of its devices (qemuDomainGetMemLockLimitBytes)."""
WINDOW_MIB = 32 << 10
"""For memory regions above 4 GiB in a guest: the default of q35, and of OVMF."""
_RANK = ("node", "site", "user", "retry")
"""Whose fault the error is that holds faults of several owners: the first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What speaks against one device.

    Attributes:
        owner: `node`, `site`, `user`, or `retry`: another time, or elsewhere.
        address: of the device.
    """

    owner: str
    address: str
    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.address}: {self.why} ({self.hint})"


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenDevice:
    """A device that a guest is to have.

    Attributes:
        guest: index of the guest on this node.
        uses: what uses it, in words.
        other_guest: which other guest has it, or "".
    """

    device: Device
    pci_class: PciClass
    guest: int = 0
    uses: tuple[str, ...] = ()
    other_guest: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """What of the node decides.

    Attributes:
        has_groups: whether an IOMMU is on.
        is_unsafe: whether devices may be handed on without interrupt remapping.
        has_vfio: whether the driver is loaded.
        lockable_mib: how much memory a program may lock here; None: as much as it wants.
        cells: near the job's cores; (): not known.
    """

    has_groups: bool = True
    is_unsafe: bool = False
    has_vfio: bool = True
    lockable_mib: int | None = None
    cells: tuple[int, ...] = ()


def find_faults(chosen: t.Sequence[ChosenDevice], node: Node, ram_mib: t.Mapping[int, int]) -> tuple[Fault, ...]:
    """Return all that speaks against handing out these devices; (): nothing does.

    Args:
        chosen: the devices.
        node: this one.
        ram_mib: memory of each guest, by its index.
    """
    return tuple(fault for one in chosen for fault in _faults(one, chosen, node, ram_mib))


def error_of(faults: t.Sequence[Fault], node_name: str) -> VTorqueError:
    """Return one error that holds all faults.

    Args:
        faults: at least one.
        node_name: where.
    """
    owner = min((fault.owner for fault in faults), key=_RANK.index)
    what = f"devices for guests on {node_name}"
    why = "; ".join(map(str, faults))
    if owner == "node":
        return NodeFault(what, why, cause="devices")
    kinds = {"site": SiteFault, "user": UserFault, "retry": VTorqueError}
    return kinds[owner](what, why)


def _faults(
    one: ChosenDevice, chosen: t.Sequence[ChosenDevice], node: Node, ram_mib: t.Mapping[int, int]
) -> t.Iterator[Fault]:
    device, pci_class = one.device, one.pci_class

    def fault(owner: str, why: str, hint: str) -> Fault:
        return Fault(owner, device.address, why, hint)

    if not device.there:
        see = "mdevctl start, and mdevctl list" if pci_class.kind == MEDIATED else "see lspci and pci_classes"
        yield fault("node", f"class {pci_class.name} lists it, and there is no such device", see)
        return
    yield from _of_memory(one, node, ram_mib, fault)
    yield from _of_users(one, fault)
    yield from _of_cell(one, node, fault)
    if device.parent:
        yield from _of_mediated(device, fault)
        return
    yield from _of_node(device, node, fault)
    yield from _of_class(one, fault)
    yield from _of_functions(device, fault)
    if company := _company(one, chosen):
        hint = "list all of them in the class, take their drivers away, or move the card to another place"
        yield fault("site", f"its IOMMU group {device.group} has others: {', '.join(company)}", hint)
    yield from _of_reset(one, chosen, fault)
    yield from _of_window(one, chosen, fault)


_Make = t.Callable[[str, str, str], Fault]


def _of_users(one: ChosenDevice, fault: _Make) -> t.Iterator[Fault]:
    for use in one.uses:
        yield fault("site", use, "end that use, or take the device from pci_classes")
    if one.other_guest:
        yield fault("retry", f"{one.other_guest} has it", "wait for the end of that job")


def _of_cell(one: ChosenDevice, node: Node, fault: _Make) -> t.Iterator[Fault]:
    near = one.device.numa_node
    if one.pci_class.numa and node.cells and near >= 0 and near not in node.cells:
        cells = ", ".join(map(str, node.cells))
        yield fault("user", f"it is near NUMA cell {near}, the job has cores of {cells}", "ask for more cores")


def _of_mediated(device: Device, fault: _Make) -> t.Iterator[Fault]:
    if device.vendor == DEAD:
        why = f"{device.parent}, of which it is a part, does not answer"
        yield fault("node", why, "power the node off and on, or replace the device")
    if not device.group:
        yield fault("node", f"the driver of {device.parent} has not made it ready for vfio", "see dmesg")


def _of_node(device: Device, node: Node, fault: _Make) -> t.Iterator[Fault]:
    if device.vendor == DEAD:
        power = f", power state {device.power}" if device.power else ""
        yield fault("node", f"it does not answer{power}", "power the node off and on, or replace the device")
    if not node.has_groups or not device.group:
        hint = "switch it on in the firmware and for the kernel: intel_iommu=on or amd_iommu=on"
        yield fault("node", "no IOMMU protects the node's memory from it", hint)
    if node.is_unsafe:
        yield fault("node", "interrupts are not remapped", "take allow_unsafe_interrupts away from vfio_iommu_type1")
    if not node.has_vfio:
        yield fault("node", f"the driver {VFIO} is not loaded", f"modprobe {VFIO}")


def _of_memory(one: ChosenDevice, node: Node, ram_mib: t.Mapping[int, int], fault: _Make) -> t.Iterator[Fault]:
    wanted_mib = ram_mib.get(one.guest, 0) + LOCKED_BESIDES_MIB
    if node.lockable_mib is not None and node.lockable_mib < wanted_mib:
        why = f"its guest locks {wanted_mib} MiB of memory, and {node.lockable_mib} MiB may be locked here"
        yield fault("node", why, "LimitMEMLOCK=infinity for libvirtd")


def _of_class(one: ChosenDevice, fault: _Make) -> t.Iterator[Fault]:
    device, kind = one.device, one.pci_class.kind
    if device.code in BRIDGES:
        yield fault("site", f"it is a bridge (class {device.code:04x}), which carries other devices", "see pci_classes")
    elif kind and device.code not in KINDS[kind]:
        codes = " or ".join(f"{code:04x}" for code in KINDS[kind])
        yield fault(
            "site", f"it is of class {device.code:04x}, and {kind} is {codes}", "correct pci_classes, or kind=any"
        )


def _of_functions(device: Device, fault: _Make) -> t.Iterator[Fault]:
    if device.virtual_functions:
        why = f"{device.virtual_functions} virtual functions of it are switched on"
        yield fault("site", why, "list those in its place, or write 0 to its sriov_numvfs")
    if device.physical and not device.physical_driver:
        why = f"{device.physical}, of which it is a virtual function, has no driver"
        yield fault("site", why, "bind that to its driver")


def _goes_along(one: ChosenDevice, chosen: t.Sequence[ChosenDevice]) -> set[str]:
    return {other.device.address for other in chosen if other.guest == one.guest}


def _company(one: ChosenDevice, chosen: t.Sequence[ChosenDevice]) -> list[str]:
    along, to_others = _goes_along(one, chosen), {other.device.address for other in chosen}
    found = []
    for member in one.device.members:
        if member.code in BRIDGES or member.address in along:
            continue
        if member.address in to_others:
            found.append(f"{member.address} (for another guest)")
        elif member.driver not in WITHOUT_DRIVER:
            found.append(f"{member.address} ({member.driver})")
    return found


def _of_reset(one: ChosenDevice, chosen: t.Sequence[ChosenDevice], fault: _Make) -> t.Iterator[Fault]:
    device = one.device
    if not device.resets:
        if one.pci_class.reset:
            hint = "a later job would find what this one left in it; reset=any in pci_classes allows that"
            yield fault("site", "there is no way to reset it", hint)
        return
    if set(device.resets) == {"bus"}:
        stays = [address for address in device.beside if address not in _goes_along(one, chosen)]
        if stays:
            why = f"it can be reset with its bus alone, where others are: {', '.join(stays)}"
            yield fault("site", why, "move the card to a place of its own")


def _of_window(one: ChosenDevice, chosen: t.Sequence[ChosenDevice], fault: _Make) -> t.Iterator[Fault]:
    total = sum(other.device.large_mib for other in chosen if other.guest == one.guest)
    if one.device.large_mib and total > WINDOW_MIB:
        why = f"the devices of its guest have {total} MiB of memory regions, and a guest has room for {WINDOW_MIB}"
        yield fault("site", why, "give each guest fewer of them")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices handed on to guests (VFIO): which, whether they may be, and back again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
import re
import resource
import typing as t
import xml.etree.ElementTree as ET

from ....errors import NodeFault, UserFault, VTorqueError
from ....system.clock import Deadline
from ....time_budget import DEVICE_ATTACH_S, DEVICE_RETURN_S
from ....wire.messages import GuestSpec
from ....wire.pci import MEDIATED, DeviceWish, PciClass
from ...domain.domain_xml import DomainFacts
from ...state.settings import NodeSettings
from ...state.start_lock import lock_alone
from ...system import cpus
from .. import leases
from ..api import HostDevice, Taking
from . import inventory, preflight, sysfs_binding, usage

KIND = "pci"
HOST = usage.Host()
"""Where it is read; tests have places of their own."""
_CAP_SYS_RESOURCE = 24


def is_wanted(spec: GuestSpec) -> bool:
    """Return whether a guest asks for PCI devices."""
    return bool(spec.pci)


def take(taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """See `api.DeviceKind.take`."""
    settings = taking.settings
    with lock_alone(leases.lock_of(settings), settings, taking.deadline):
        picker = Picker(taking)
        picker.pick_all()
        if faults := picker.faults_of(picker.chosen):
            raise preflight.error_of(faults, settings.node_name)
        found: dict[int, tuple[HostDevice, ...]] = {}
        for one in picker.chosen:
            device = one.device
            kind = MEDIATED if device.parent else KIND
            lease = leases.Lease(device.address, taking.key, one.guest, kind, device.driver)
            leases.end_lease(lease.device, settings)  # of this very start, which was begun before
            leases.write_lease(lease, settings)
            found[one.guest] = (*found.get(one.guest, ()), device_of(kind, device))
    return found


def device_of(kind: str, device: inventory.Device, label: str = "", identity: tuple[str, ...] = ()) -> HostDevice:
    """Return a PCI device as a guest is given it.

    Args:
        kind: of the device, as a host device (`api.KINDS`).
        device: as the node has it.
        label: see `HostDevice`.
        identity: see `HostDevice`.
    """
    return HostDevice(
        kind, device.address, numa_node=device.numa_node, root=device.root, label=label, identity=identity
    )


def attach(devices: t.Sequence[HostDevice], _qemu_ids: tuple[int, int], deadline: Deadline) -> None:
    """See `api.DeviceKind.attach`."""
    until = Deadline.after(deadline.left_s(DEVICE_ATTACH_S))
    children = [sysfs_binding.hand_out(device.name, HOST.sys) for device in devices]
    errors = [error for child in children if (error := child.wait(until))]
    if errors:
        raise errors[0]


def give_back(mine: t.Sequence[leases.Lease], settings: NodeSettings) -> tuple[str, ...]:
    """See `api.DeviceKind.give_back`."""
    until = Deadline.after(DEVICE_RETURN_S)
    children = [(lease.device, sysfs_binding.give_back(lease.device, lease.driver, HOST.sys)) for lease in mine]
    return await_return(children, until, settings)


def await_return(
    children: t.Sequence[tuple[str, sysfs_binding.Child]], until: Deadline, settings: NodeSettings
) -> tuple[str, ...]:
    """Wait until devices have come back, and end their leases; one that has not is in quarantine.

    Args:
        children: that give back the devices, each with its device.
        until: when they must have ended.
        settings: say where the leases are.

    Returns:
        What was done, in words.
    """
    done = []
    for device, child in children:
        error = child.wait(until)
        done.append(f"device {device}" + (f", which is in quarantine now: {error.why}" if error else ""))
        with contextlib.suppress(VTorqueError):  # then the lease stays, and the sweep tries it again
            if error:
                leases.quarantine(device, error.why, settings)
            leases.end_lease(device, settings)
    return tuple(done)


class Picker:
    """Chooses devices for one guest after the other, as they are now.

    A class's devices are those that the batch system gave to the job, else the first free ones that nothing speaks
    against; with too few of these the others come along, for what speaks against them.

    Attributes:
        chosen: what was picked so far.
        quarantined: devices of this node in quarantine, by name.
    """

    def __init__(self, taking: Taking) -> None:
        self.chosen: list[preflight.ChosenDevice] = []
        self._taking, self._settings = taking, taking.settings
        self.quarantined = {one.device: one for one in leases.read_quarantine(self._settings)}
        self._leases = {one.device: one.key for one in leases.read_leases(self._settings) if one.key != taking.key}
        self._guests = _of_guests(taking.domains)
        self._ram_mib = {spec.index: spec.ram_mib for spec in taking.guests}
        self._node, self._usage = _node(taking), usage.Usage(HOST)
        self._inspected: dict[str, preflight.ChosenDevice] = {}

    def faults_of(self, chosen: t.Sequence[preflight.ChosenDevice]) -> tuple[preflight.Fault, ...]:
        """Return all that speaks against devices."""
        return preflight.find_faults(chosen, self._node, self._ram_mib)

    def pick_all(self) -> None:
        """Add what all guests wish.

        Raises:
            UserFault: the site has no such class or device here, or the batch system gave the job too few.
            NodeFault: too many of a class are in quarantine.
        """
        for spec in self._taking.guests:
            for wish in spec.pci:
                self.pick(spec, wish)

    def pick(self, spec: GuestSpec, wish: DeviceWish) -> None:
        """Add what a guest wishes."""
        if wish.is_address:
            self._pick_address(spec, wish)
            return
        pci_class = next((one for one in self._settings.pci_classes if one.name == wish.what), None)
        if pci_class is None:
            names = ", ".join(one.name for one in self._settings.pci_classes) or "none"
            why = f"{self._settings.node_name} has no devices of this class (classes: {names})"
            raise UserFault(f"pci={wish}", why, "ask for hosts that have them")
        # what the batch system counts is nobody's who was not given it
        granted = pci_class.granted if pci_class.granted is not None or not pci_class.resource else ()
        addresses = pci_class.addresses if granted is None else granted
        taken = {one.device.address for one in self.chosen}
        left = [address for address in addresses if address not in taken]
        if granted is not None and len(left) < wish.count:
            why = f"the batch system gave the job {len(granted)} of them on {self._settings.node_name}"
            raise UserFault(f"pci={wish}", why, f"submit the job with as many {pci_class.resource} for each host")
        usable = [address for address in left if address not in self.quarantined]
        if len(usable) < wish.count or (granted is not None and len(usable) < len(left)):
            raise self._in_quarantine(wish, [one for one in left if one in self.quarantined])
        free = usable if granted is not None else self.sort(usable, pci_class, spec.index)
        self.chosen += [self.inspect(address, pci_class, spec.index) for address in free[: wish.count]]

    def _pick_address(self, spec: GuestSpec, wish: DeviceWish) -> None:
        pci_class = next((one for one in self._settings.pci_classes if wish.what in one.addresses), None)
        if pci_class is None:
            why = f"the site hands on no such device of {self._settings.node_name}"
            raise UserFault(f"pci={wish}", why, "ask for a class, such as pci=gpu:1")
        counted = bool(pci_class.resource) or pci_class.granted is not None
        if counted and wish.what not in (pci_class.granted or ()):
            why = f"the batch system did not give it to the job on {self._settings.node_name}"
            raise UserFault(f"pci={wish}", why, f"ask for pci={pci_class.name}:1, and for {pci_class.resource}")
        if any(one.device.address == wish.what for one in self.chosen):
            raise UserFault(f"pci={wish}", "two guests of a node cannot have the same device", "vms_per_node=1")
        if wish.what in self.quarantined:
            raise self._in_quarantine(wish, [wish.what])
        self.chosen.append(self.inspect(wish.what, pci_class, spec.index))

    def sort(self, addresses: t.Sequence[str], pci_class: PciClass, guest: int) -> list[str]:
        """Return devices, first those without a fault, of these first those near the job's cores.

        Between equals the order of the site's list decides.
        """

        def order(address: str) -> tuple[bool, bool]:
            one = self.inspect(address, pci_class, guest)
            return bool(self.faults_of([one])), one.device.numa_node not in self._node.cells

        return sorted(addresses, key=order)

    def inspect(self, address: str, pci_class: PciClass, guest: int) -> preflight.ChosenDevice:
        """Return a device as it is for a guest; it is read once."""
        if address not in self._inspected:
            self._inspected[address] = self._read(address, pci_class)
        return dataclasses.replace(self._inspected[address], pci_class=pci_class, guest=guest)

    def _read(self, address: str, pci_class: PciClass) -> preflight.ChosenDevice:
        device = inventory.inspect(address, HOST.sys)
        other = self._guests.get(address) or (f"start {self._leases[address]}" if address in self._leases else "")
        if not other and device.group and _is_open(HOST.dev / "vfio" / device.group):
            other = "another program"
        return preflight.ChosenDevice(device, pci_class, 0, self._usage.of(device), other)

    def _in_quarantine(self, wish: DeviceWish, devices: t.Sequence[str]) -> VTorqueError:
        found = [f"{device}: {self.quarantined[device].why}" for device in devices]
        if not found:
            return UserFault(f"pci={wish}", f"{self._settings.node_name} has fewer of them", "ask for fewer")
        why = f"in quarantine on {self._settings.node_name}: {'; '.join(found)}"
        return NodeFault(f"pci={wish}", why, "vmgr node release, when the device is well again", cause="devices")


def _of_guests(domains: t.Iterable[DomainFacts]) -> dict[str, str]:
    """Return which domains have which PCI and mediated devices, by their addresses and UUIDs."""
    found = {}
    for facts in domains:
        with contextlib.suppress(ET.ParseError, ValueError):
            for element in ET.fromstring(facts.xml).iterfind("devices/*/source/address"):  # noqa: S314 - libvirt's own
                if uuid := element.get("uuid"):
                    found[uuid] = f"guest {facts.name}"
                    continue
                parts = [int(element.get(name, ""), 16) for name in ("domain", "bus", "slot", "function")]
                found["{:04x}:{:02x}:{:02x}.{:x}".format(*parts)] = f"guest {facts.name}"
    return found


def _is_open(group: pathlib.Path) -> bool:
    """Return whether a program has a group, of which vfio lets nobody else open it."""
    try:
        os.close(os.open(group, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _node(taking: Taking) -> preflight.Node:
    return preflight.Node(
        inventory.has_groups(HOST.sys),
        inventory.is_unsafe(HOST.sys),
        inventory.has_vfio(HOST.sys),
        _lockable_mib(HOST.proc),
        _cells(taking.cores),
    )


def _cells(cores: cpus.Cores) -> tuple[int, ...]:
    found = []
    for place in sorted((HOST.sys / "devices/system/node").glob("node[0-9]*")):
        with contextlib.suppress(OSError, ValueError):
            if set(cpus.read((place / "cpulist").read_text(encoding="ascii"))) & set(cores):
                found.append(int(place.name.removeprefix("node")))
    return tuple(found)


def _lockable_mib(proc: pathlib.Path) -> int | None:
    """Return how much memory a program of root's may lock here, in MiB; None: as much as it wants.

    Who may raise limits (CAP_SYS_RESOURCE) has none; a container may have taken that away from all of its programs.
    """
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    with contextlib.suppress(OSError):
        found = re.search(r"^CapEff:\s*([0-9a-f]+)$", (proc / "self/status").read_text(encoding="ascii"), re.MULTILINE)
        if found and int(found[1], 16) >> _CAP_SYS_RESOURCE & 1:
            return None
    return None if hard == resource.RLIM_INFINITY else hard >> 20

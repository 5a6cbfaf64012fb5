# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host devices of a start: taken before its guests are made, and given back after they have gone."""

from __future__ import annotations

import dataclasses
import typing as t

from ...effects import leaves_nothing
from ...errors import UserFault
from ...system.clock import Deadline
from ...wire.messages import GuestSpec
from ..state.settings import NodeSettings
from . import leases
from .api import KINDS, PERSISTENT, HostDevice, Taking, load_examination, load_kind, load_rdma_kind

if t.TYPE_CHECKING:
    from .pci.examination import ExaminedDevice


@leaves_nothing
def any_wanted(specs: t.Iterable[GuestSpec]) -> bool:
    """Return whether any guest asks for a host device."""
    return any(spec.pci or spec.shared_mib or spec.rdma for spec in specs)


def examine(settings: NodeSettings) -> tuple[ExaminedDevice, ...]:
    """Return what there is to say of PCI devices of this node that guests may have (`pci/examination.py`).

    They are those that the site lists, and those of its kind of RDMA devices.

    Raises:
        NodeFault: what starts have cannot be read.
    """
    classes = settings.pci_classes
    if settings.rdma_kind in KINDS:
        classes = (*classes, *load_rdma_kind(settings.rdma_kind).list_classes(settings))
    if not classes:
        return ()
    found: tuple[ExaminedDevice, ...] = load_examination("pci").examine(
        dataclasses.replace(settings, pci_classes=classes)
    )
    return found


def find_rdma_problem(settings: NodeSettings) -> str:
    """Return why no guest of this node could have an RDMA device now, or "": also where the site gives it none."""
    return load_rdma_kind(settings.rdma_kind).find_problem(settings) if settings.rdma_kind in KINDS else ""


def rdma_remedy(settings: NodeSettings) -> str:
    """Return where an administrator looks when `find_rdma_problem` has found one."""
    return load_rdma_kind(settings.rdma_kind).REMEDY


def find_lost(settings: NodeSettings) -> tuple[leases.Lease, ...]:
    """Return the devices of starts that have no lease of them, as after a boot of the node."""
    return load_rdma_kind(settings.rdma_kind).find_lost(settings) if settings.rdma_kind in PERSISTENT else ()


def admit(settings: NodeSettings, key: str, peers: t.Sequence[str]) -> None:
    """Let guests of a start reach those of their job by RDMA devices that the packet filter does not hold.

    Raises:
        VTorqueError: they cannot be reached.
    """
    mine = [lease for lease in leases.read_leases(settings) if (lease.key, lease.kind) == (key, settings.rdma_kind)]
    if mine and settings.rdma_kind in PERSISTENT:
        load_rdma_kind(settings.rdma_kind).admit(mine, peers, settings)


def take(taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """Choose, check and lease the devices of all guests of a start.

    Returns:
        The devices of each guest that has some, by its index on this node.

    Raises:
        VTorqueError: they cannot be had; nothing was touched.
    """
    found: dict[int, tuple[HostDevice, ...]] = {}
    if unknown := {spec.rdma for spec in taking.guests if spec.rdma} - KINDS.keys():
        raise UserFault("vrdma=true", f"no node has devices of the kind {', '.join(unknown)} yet", "vrdma=false")
    for kind in map(load_kind, KINDS):
        if any(map(kind.is_wanted, taking.guests)):
            for index, devices in kind.take(taking).items():
                found[index] = (*found.get(index, ()), *devices)
    return found


def attach(devices: t.Sequence[HostDevice], qemu_ids: tuple[int, int], deadline: Deadline) -> None:
    """Make leased devices ready for their guests, as `api.DeviceKind.attach`.

    Raises:
        VTorqueError: one of them is not.
    """
    if not devices:
        return
    for name in KINDS:
        if mine := [device for device in devices if device.kind == name]:
            load_kind(name).attach(mine, qemu_ids, deadline)


def give_back(settings: NodeSettings, key: str) -> tuple[str, ...]:
    """Give back all devices of a start, whose guests have ended.

    Returns:
        What was done, in words.

    Raises:
        NodeFault: the leases cannot be read.
    """
    if not leases.is_used(settings):
        return ()
    of_start = [lease for lease in (*leases.read_leases(settings), *find_lost(settings)) if lease.key == key]
    if not of_start:
        return ()
    done: list[str] = []
    for name in KINDS:
        if mine := [lease for lease in of_start if lease.kind == name]:
            done += load_kind(name).give_back(mine, settings)
    return tuple(done)


def free(settings: NodeSettings, key: str) -> tuple[str, ...]:
    """Forget all devices of a start of an earlier boot: the node's own start has reset all but the persistent ones.

    Returns:
        The devices.

    Raises:
        NodeFault: the leases cannot be read.
    """
    freed = leases.free(settings, key)
    return (*freed, *give_back(settings, key))

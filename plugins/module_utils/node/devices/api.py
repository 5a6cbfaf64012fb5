# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kind of host devices does in the life of a start: the interface, and the one list of kinds.

A kind is a module with the functions of `DeviceKind` and a fragment of a domain's XML (`templates/devices/`), which is
rendered with `device`.  A start calls them in this order, each under the lock of the start:

take        before anything else of the start: chooses devices, checks them, and notes whose they are (`leases.py`)
attach      before the domains are started, in the process that makes the guests, which has no threads of ours then
give_back   when the domains and processes of the start have ended, whoever ends it: worker, epilogue, or sweep

What was taken is found again by its leases alone, also after a kill at any moment.  A kind whose devices do not come
back puts them in quarantine, and raises nothing.
"""

from __future__ import annotations

import importlib
import typing as t

from ...frozen import frozen
from ...system.clock import Deadline
from ...wire.messages import GuestSpec
from ...wire.pci import PciClass
from ..domain.domain_xml import DomainFacts
from ..state.settings import NodeSettings
from ..system.cpus import Cores
from .leases import Lease

KINDS = {
    "mdev": "pci.mediated",
    "pci": "pci.passthrough",
    "region": "shared_region",
    "rxe": "vrdma.soft_roce",
    "sriov": "vrdma.virtual_function",
    "vhostuser": "vrdma.vhost_user",
}
"""Modules below this package, by the names of their kinds."""
PERSISTENT = ("vhostuser",)
"""Kinds of RDMA devices that the node's next boot finds as the last one left them (`RdmaKind.find_lost`)."""
EXAMINATIONS = {"pci": "pci.examination"}
"""Modules that say which devices of a kind could be handed on now, for the doctor."""


@frozen
class HostCard:
    """A network card that a device is for its guest.

    Attributes:
        mac: its own.
        interface: its address with its network (`10.9.1.1/16`).
        socket: of the process that has the other end of it.
        mtu: its own; 0: as the guest has it.
    """

    mac: str
    interface: str
    socket: str
    mtu: int = 0


@frozen
class HostDevice:
    """A device that a guest has.

    Attributes:
        kind: one of `KINDS`.
        name: of the device in its leases; of a PCI device the address.
        label: what records call it, where that is not its name.
        size_mib: of memory, which is made anew and has no size of its own, in MiB; 0: of all others.
        identity: what it is given before its guest has it, as its kind reads it.
        card: which network card it is for its guest; None: none that the seed sets up.
        shares_memory: whether a process of the node reads and writes its guest's memory.
        numa_node: the node's NUMA cell that it is near; -1: not known, or none.
        root: the root complex of the node through which it is reached (`pci0000:3a`); "": it is no PCI device.
        port: index of the guest's PCI controller that it is plugged into; 0: libvirt chooses one.
    """

    kind: str
    name: str
    label: str = ""
    size_mib: int = 0
    identity: tuple[str, ...] = ()
    card: HostCard | None = None
    shares_memory: bool = False
    numa_node: int = -1
    root: str = ""
    port: int = 0

    @property
    def fragment(self) -> str:
        """The template of its XML."""
        return f"devices/{self.kind}.xml.j2"


@frozen
class Taking:
    """What devices are taken for and from.

    Attributes:
        key: `state.layout.job_key` of the start.
        guests: of the start on this node.
        domains: all that libvirt has here.
        cores: the job's on this node; (): not known.
        deadline: when there must be an answer.
    """

    key: str
    guests: tuple[GuestSpec, ...]
    settings: NodeSettings
    domains: tuple[DomainFacts, ...]
    cores: Cores
    deadline: Deadline


class DeviceKind(t.Protocol):
    """A kind of host devices (see the module's text)."""

    def is_wanted(self, spec: GuestSpec) -> bool:
        """Return whether a guest asks for a device of this kind."""

    def take(self, taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
        """Choose, check and lease the devices of all guests, by the guests' index.

        Raises:
            VTorqueError: they cannot be had; holds all that speaks against it, and nothing was taken or touched.
        """

    def attach(self, devices: t.Sequence[HostDevice], qemu_ids: tuple[int, int], deadline: Deadline) -> None:
        """Make leased devices ready for their guests.

        Args:
            devices: of all guests of the start; one that several guests have comes several times.
            qemu_ids: uid and gid as which libvirt runs qemu, for what qemu opens by itself.
            deadline: when they must be ready.

        Raises:
            VTorqueError: one of them is not.
        """

    def give_back(self, mine: t.Sequence[Lease], settings: NodeSettings) -> tuple[str, ...]:
        """Give devices back to the node, and end their leases.

        Returns:
            What was done, in words.
        """


class RdmaKind(DeviceKind, t.Protocol):
    """A kind of RDMA devices, of which a site has one (`vrdma_kind`).

    Attributes:
        REMEDY: where an administrator looks when there is a problem.
    """

    REMEDY: str

    def find_problem(self, settings: NodeSettings) -> str:
        """Return why no guest of this node could have one now, or ""."""

    def list_classes(self, settings: NodeSettings) -> tuple[PciClass, ...]:
        """Return its PCI devices of this node as a class, to be listed with those that the site lists itself."""

    def find_lost(self, settings: NodeSettings) -> tuple[Lease, ...]:
        """Return what is there of starts that have no lease of it, as after a boot; of kinds in `PERSISTENT` alone."""

    def admit(self, mine: t.Sequence[Lease], peers: t.Sequence[str], settings: NodeSettings) -> None:
        """Let guests reach those of their job; of kinds alone whose guests the packet filter does not hold.

        Args:
            mine: devices of a start.
            peers: addresses of all guests of its job, on this kind of device.
            settings: NodeSettings of this node.

        Raises:
            VTorqueError: they cannot be reached.
        """


def load_rdma_kind(name: str) -> RdmaKind:
    """Return a kind of RDMA devices.

    Args:
        name: one of `wire.messages.RDMA_KINDS` that is in `KINDS`.
    """
    return t.cast(RdmaKind, _load(KINDS[name]))


def load_kind(name: str) -> DeviceKind:
    """Return a kind; only starts that have devices pay for it.

    Args:
        name: one of `KINDS`.
    """
    return t.cast(DeviceKind, _load(KINDS[name]))


def load_examination(name: str) -> t.Any:
    """Return the module that examines the devices of a kind.

    Args:
        name: one of `EXAMINATIONS`.
    """
    return _load(EXAMINATIONS[name])


def _load(name: str) -> t.Any:
    return importlib.import_module(f"{__package__}.{name}")

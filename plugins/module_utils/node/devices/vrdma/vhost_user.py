# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second network card on the site's Open vSwitch with DPDK (vhost-user): frames pass no kernel of the node.

qemu listens at a socket, and a port of ours on the site's bridge connects to it, and reads and writes the guest's
memory.  In the guest it is an ordinary virtio card; where its image has rxe, verbs are made of it.

The port's number on this node is in its name, in the MAC address and in the address of its guest, so that there is no
need to query them.  Rules of nftables see none of its frames: flows of the bridge confine the guest
(`open_vswitch.confine_ports`).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import typing as t

from ....errors import NodeFault, VTorqueError
from ....site_lists.guest_networks import rdma_network
from ....system import files
from ....system.clock import Deadline
from ....wire.messages import GuestSpec
from ....wire.pci import PciClass
from ...state.settings import NodeSettings
from ...state.start_lock import lock_alone
from .. import leases
from ..api import HostCard, HostDevice, Taking
from . import open_vswitch
from .open_vswitch import PREFIX, NewPort, Sender
from .site_kind import refuse_other_kind

KIND = "vhostuser"
REMEDY = "see vrdma_bridge in vtorque.yml, and Open vSwitch on this node (docs/admin/rdma.md)"
MOST = 254
"""Ports of one node: the last byte of an address counts them."""
_CONFINED = "confined"


def is_wanted(spec: GuestSpec) -> bool:
    """Return whether a guest is to have a port."""
    return spec.rdma == KIND


def find_problem(settings: NodeSettings) -> str:
    """See `api.RdmaKind.find_problem`."""
    return open_vswitch.find_problem(settings.rdma_bridge, confine=settings.confine_guests)


def list_classes(_settings: NodeSettings) -> tuple[PciClass, ...]:
    """See `api.RdmaKind.list_classes`: it has none."""
    return ()


def find_lost(settings: NodeSettings) -> tuple[leases.Lease, ...]:
    """See `api.RdmaKind.find_lost`: ports that the database of Open vSwitch has, and no lease; () if it is silent."""
    with contextlib.suppress(NodeFault):
        known = {lease.device for lease in leases.read_leases(settings)}
        ports = [port for port in open_vswitch.list_ports() if port.key and port.name not in known]
        return tuple(leases.Lease(port.name, port.key, 0, KIND) for port in ports)
    return ()


def take(taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """See `api.DeviceKind.take`."""
    settings = taking.settings
    refuse_other_kind(settings, KIND)
    what = f"vrdma on {settings.node_name}"
    settings.mac(0)  # refuses a node without a number before anything is there
    if problem := find_problem(settings):
        raise NodeFault(what, problem, REMEDY, cause="devices")
    wanting = [spec for spec in taking.guests if is_wanted(spec)]
    with lock_alone(leases.lock_of(settings), settings, taking.deadline):
        known = leases.read_leases(settings)
        give_back([one for one in known if (one.kind, one.key) == (KIND, taking.key)], settings)  # begun before
        used = {one.device for one in leases.read_leases(settings)} | {one.name for one in open_vswitch.list_ports()}
        free = [number for number in range(1, MOST + 1) if f"{PREFIX}{number}" not in used]
        if len(free) < len(wanting):
            why = f"{len(wanting)} guests want a port each, and {len(free)} of {MOST} are free"
            raise VTorqueError(what, why, "another time, or fewer guests on a host")
        found: dict[int, tuple[HostDevice, ...]] = {}
        for number, spec in zip(free, wanting, strict=False):
            name = f"{PREFIX}{number}"
            leases.write_lease(leases.Lease(name, taking.key, spec.index, KIND), settings)
            card = HostCard(_mac_of(name, settings), _interface_of(name, settings), str(_socket_of(name, settings)))
            bounds = _CONFINED if settings.confine_guests else ""
            identity = (taking.key, settings.rdma_bridge, str(settings.rdma_vlan or ""), bounds)
            device = HostDevice(KIND, name, f"vrdma:{KIND}", identity=identity, card=card, shares_memory=True)
            found[spec.index] = (device,)
        return found


def attach(devices: t.Sequence[HostDevice], qemu_ids: tuple[int, int], _deadline: Deadline) -> None:
    """See `api.DeviceKind.attach`: the port, which waits for its guest's qemu, and what it lets through of it."""
    [(key, bridge, vlan, bounds)] = {device.identity for device in devices}
    cards = {device.name: t.cast(HostCard, device.card) for device in devices}
    sockets = {name: pathlib.Path(card.socket) for name, card in cards.items()}
    [place] = {socket.parents[1] for socket in sockets.values()}
    files.make_directory(place, 0o711)
    for socket in sockets.values():
        socket.parent.mkdir(mode=0o700, exist_ok=True)
        os.chown(socket.parent, *qemu_ids)  # qemu makes the socket itself
    open_vswitch.add_ports(bridge, [NewPort(name, key, socket, vlan) for name, socket in sockets.items()])
    if bounds:
        senders = [Sender(name, card.mac, card.interface.partition("/")[0]) for name, card in cards.items()]
        open_vswitch.confine_ports(bridge, senders, _flows_file(place, senders))


def admit(mine: t.Sequence[leases.Lease], peers: t.Sequence[str], settings: NodeSettings) -> None:
    """See `api.RdmaKind.admit`."""
    if settings.confine_guests:
        senders = []
        for lease in mine:
            address = _interface_of(lease.device, settings).partition("/")[0]
            others = tuple(peer for peer in peers if peer != address)
            senders.append(Sender(lease.device, _mac_of(lease.device, settings), address, others))
        open_vswitch.confine_ports(settings.rdma_bridge, senders, _flows_file(settings.vhost_user_dir, senders))


def give_back(mine: t.Sequence[leases.Lease], settings: NodeSettings) -> tuple[str, ...]:
    """See `api.DeviceKind.give_back`: the port goes, and then its socket; what Open vSwitch refuses stays leased."""
    if not mine:
        return ()
    names = [lease.device for lease in mine]
    foreign = set()
    with contextlib.suppress(NodeFault, OSError, VTorqueError):
        foreign = {port.name for port in open_vswitch.list_ports() if not port.key}
        open_vswitch.remove_ports(settings.rdma_bridge, [name for name in names if name not in foreign])
        for name in names:
            shutil.rmtree(_socket_of(name, settings).parent, ignore_errors=True)
            leases.end_lease(name, settings)
        return tuple(f"port {name}" for name in names)
    return ()


def _socket_of(name: str, settings: NodeSettings) -> pathlib.Path:
    return settings.vhost_user_dir / name / "socket"


def _flows_file(place: pathlib.Path, senders: t.Sequence[Sender]) -> pathlib.Path:
    """Return a file beside the directories of ports, for ovs-ofctl; no other start has these ports."""
    return place / f"{senders[0].name}.flows"


def _number_of(name: str) -> int:
    return int(name.removeprefix(PREFIX))


def _mac_of(name: str, settings: NodeSettings) -> str:
    """Return the MAC address of a port's guest: as of a virtual function, another than on any bridge of the kernel."""
    mac = settings.mac(_number_of(name))
    return f"{int(mac[:2], 16) ^ 0x08:02x}{mac[2:]}"


def _interface_of(name: str, settings: NodeSettings) -> str:
    network = rdma_network(settings.rdma_bridge, settings.rdma_addresses)
    return f"{network.address((settings.node_number or 0) << 8 | _number_of(name))}/{network.prefix}"

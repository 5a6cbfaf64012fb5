# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network of one job over its nodes: on each a bridge without an address, and between them VXLAN (RFC 7348).

All that a node must know follows from the plan: the number of the network from the start, the guests' MAC addresses
from their ranks, and where the others are from the names of their nodes.  So its table is written once, nothing is
learned, and no multicast is needed.  Two starts on one node never have a network of the same number: the kernel makes
no second device of it, and the later start is tried again, with another number.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import typing as t

from ...errors import SiteFault
from ...frozen import frozen
from ...site_lists.guest_networks import Network
from ...system import files
from ...system.clock import Deadline
from ...time_budget import ADDRESSES_ANSWER_S, SERVER_NAMES_S
from ..state.directories import entries
from ..state.settings import NodeSettings
from . import iproute, reachable
from .addresses import SYS_NET

PORT = 4789
"""UDP port of VXLAN (IANA)."""
OVERHEAD = 50
"""Bytes of the headers around a frame (RFC 7348, over IPv4)."""
_BRIDGE, _TUNNEL = "vtp", "vtx"
_DEVICE = re.compile(rf"({_BRIDGE}|{_TUNNEL})([0-9a-f]{{6}})")
_EVERYBODY = "00:00:00:00:00:00"
"""The entry for frames that are for all guests."""


@frozen
class Peer:
    """Another node of the job.

    Attributes:
        node: its name.
        macs: of the cards of its guests on the network.
    """

    node: str
    macs: tuple[str, ...]


Wanted = tuple[Network, t.Sequence[Peer]]
"""A network, and who else is on it."""


def number_of(key: str, name: str) -> int:
    """Return the number of a network (VNI), from 1 to 2**24 - 1.

    Args:
        key: `state.layout.job_key` of the start; a start again has another number.
        name: of the network.
    """
    return int(hashlib.sha256(f"{key} {name}".encode()).hexdigest()[:6], 16) or 1


def bridge_of(key: str, name: str) -> str:
    """Return the name of the bridge of a network of a start; arguments are those of `number_of`."""
    return f"{_BRIDGE}{number_of(key, name):06x}"


def mac_of(rank: int, card: int) -> str:
    """Return the MAC address of a guest, which is alone on the network with the others of its job.

    Args:
        rank: of the guest.
        card: its number in the guest, from 1: a guest may be on several networks.
    """
    return f"02:76:7{card:x}:{rank >> 16:02x}:{rank >> 8 & 255:02x}:{rank & 255:02x}"


def mtu_of(network: Network, settings: NodeSettings) -> int:
    """Return the MTU of the guests' cards: the site's, or what fits into packets of the nodes."""
    if network.mtu:
        return network.mtu
    return int((SYS_NET / settings.bridge / "mtu").read_text(encoding="ascii")) - OVERHEAD


def create(key: str, wanted: t.Sequence[Wanted], settings: NodeSettings, deadline: Deadline) -> None:
    """Create the networks of a start on this node.

    Args:
        key: `state.layout.job_key` of the start.
        wanted: networks, and who else is on each; (): this node alone.
        settings: NodeSettings of this node.
        deadline: of the making.

    Raises:
        SiteFault: the address of a node is not known here.
        VTorqueError: the kernel has a network of this number, or refuses.
    """
    nodes = sorted({peer.node for _network, peers in wanted for peer in peers})
    where = _resolve(nodes, deadline) if nodes else {}
    files.make_directory(settings.private_dir)
    numbers = [number_of(key, network.name) for network, _peers in wanted]
    # what is written here before anything is there is what the removal goes by
    files.write(settings.private_dir / key, "".join(f"{number:06x}\n" for number in numbers))
    links, table = [], []
    for network, peers in wanted:
        number, mtu = number_of(key, network.name), mtu_of(network, settings)
        bridge, tunnel = f"{_BRIDGE}{number:06x}", f"{_TUNNEL}{number:06x}"
        links += [
            f"link add {bridge} mtu {mtu} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
            # one after the other: a device that is up before has an address of IPv6
            f"link set {bridge} addrgenmode none",
            f"link set {bridge} up",
        ]
        if peers:
            links += [
                f"link add {tunnel} mtu {mtu} type vxlan id {number} dstport {PORT} nolearning",
                f"link set {tunnel} addrgenmode none",
                f"link set {tunnel} master {bridge} up",
            ]
        for peer in peers:
            table.append(f"fdb append {_EVERYBODY} dev {tunnel} dst {where[peer.node]} self permanent")
            table += [f"fdb replace {mac} dev {tunnel} dst {where[peer.node]} self static" for mac in peer.macs]
    iproute.run_batch("ip", links, deadline)
    if table:
        iproute.run_batch("bridge", table, deadline)


def remove(key: str, settings: NodeSettings) -> tuple[str, ...]:
    """Take away the networks of a start, after its guests.

    Args:
        key: `state.layout.job_key` of the start.
        settings: NodeSettings of this node.

    Returns:
        What was removed, as words.

    Raises:
        VTorqueError: a device would not go.
    """
    path = settings.private_dir / key
    numbers = _numbers(path)
    here = [device for number in numbers for device in (f"{_TUNNEL}{number}", f"{_BRIDGE}{number}") if _is_here(device)]
    if here:
        iproute.run_batch("ip", [f"link del {device}" for device in here], Deadline.after(ADDRESSES_ANSWER_S))
    path.unlink(missing_ok=True)
    return tuple(f"private network {number}" for number in numbers)


def keys(settings: NodeSettings) -> tuple[str, ...]:
    """Return the starts that have networks here, by their keys."""
    return tuple(path.name for path in entries(settings.private_dir))


def find_lost(settings: NodeSettings) -> tuple[str, ...]:
    """Return devices of such networks that no start has."""
    # devices first: a start writes its numbers down before it has any
    here = sorted(path.name for path in SYS_NET.glob("vt[px]*"))
    known = {number for path in entries(settings.private_dir) for number in _numbers(path)}
    found = map(_DEVICE.fullmatch, here)
    return tuple(match[0] for match in found if match and match[2] not in known)


def _numbers(path: pathlib.Path) -> list[str]:
    """The numbers that a start has written down; [] when it has none, or none any more."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").split()
    return []


def _is_here(device: str) -> bool:
    return (SYS_NET / device).exists()


def _resolve(nodes: t.Sequence[str], deadline: Deadline) -> dict[str, str]:
    known = reachable.find_addresses(nodes, Deadline.after(deadline.left_s(SERVER_NAMES_S)))
    found = {}
    for node in nodes:
        usable = [address for address in known.get(node, ()) if not address.startswith(("127.", "0."))]
        if not usable:
            why = "has no IPv4 address here, and guests of its job are there"
            raise SiteFault(f"node {node}", why, "see /etc/hosts and name servers")
        found[node] = usable[0]
    return found

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's cards on further networks: their MAC addresses and addresses, which nobody has to be asked for.

On a bridge of the site a guest has the address of its node's number and its slot, as in its MAC address: no other guest
of the site has it at the same time, and no server gives it out.  On a network of its job alone it has that of its rank.
"""

from __future__ import annotations

import typing as t

from ...errors import NodeFault, SiteFault, UserFault
from ...frozen import frozen
from ...site_lists.guest_networks import RDMA, Network, read_addresses
from ...state.layout import job_key
from ...system.clock import Deadline
from ...wire.messages import NodePart
from ..state.settings import NodeSettings
from . import addresses, nft_rules, private, vlans


@frozen
class Card:
    """A card of a guest on a further network.

    Attributes:
        network: on which it is.
        bridge: to which it is connected.
        tap: its network device on the node.
        mac: its own.
        address: its own, IPv4.
        mtu: its own; 0: as the guest has it.
    """

    network: Network
    bridge: str
    tap: str
    mac: str
    address: str
    mtu: int = 0

    @property
    def interface(self) -> str:
        """The address with its network, as one sets it (`10.9.1.1/16`)."""
        return f"{self.address}/{self.network.prefix}"

    @property
    def guest(self) -> nft_rules.Guest:
        """As the packet filter has it."""
        return nft_rules.Guest(self.tap, self.mac, self.address, self.network.private, bool(self.network.tag))


def find_networks(names: str, settings: NodeSettings) -> tuple[Network, ...]:
    """Return the networks that a request has chosen, by this node's own list.

    Args:
        names: as in `GuestSpec.networks`.
        settings: NodeSettings of this node.

    Raises:
        UserFault: this node's list has one of them not.
    """
    known = {network.name: network for network in settings.networks}
    chosen = names.split("+") if names else []
    if unknown := [name for name in chosen if name not in known]:
        why = f"{settings.node_name} has no such network; it has {', '.join(known) or 'none'}"
        raise UserFault(f"network={unknown[0]}", why, "see networks in vtorque.yml, the same on all hosts")
    return tuple(known[name] for name in chosen)


def check_networks(networks: t.Iterable[Network]) -> None:
    """Check that this node has what guests are to be connected to.

    Args:
        networks: of the site.

    Raises:
        NodeFault: a bridge is missing, is something else, or is down; or as `vlans.check`.
    """
    for network in networks:
        if network.private:
            continue
        if network.tag:
            vlans.check(network)
            continue
        why = ""
        try:
            addresses.bridge_index(network.device)
        except NodeFault as fault:
            why = fault.why
        else:
            why = "" if addresses.is_up(network.device) else "is down"
        if why:
            hint = "see networks in vtorque.yml"
            raise NodeFault(f"bridge {network.device} of network {network.name}", why, hint, cause="bridge")


def cards_of(networks: t.Iterable[Network], slot: int, rank: int, key: str, settings: NodeSettings) -> tuple[Card, ...]:
    """Return the cards of a guest.

    Args:
        networks: in the order of its cards.
        slot: of the guest.
        rank: of the guest.
        key: `state.layout.job_key` of its start.
        settings: NodeSettings of this node.

    Raises:
        SiteFault: the node has no number, or a network no address for this guest.
        UserFault: the job has more guests than its own network has addresses.
    """
    found = []
    for number, network in enumerate(networks, 1):
        tap = settings.tap_name(slot, number)
        if network.private:
            found.append(_private_card(network, rank, number, tap, key, settings))
            continue
        mac = settings.mac(slot, number)
        address = network.address((settings.node_number or 0) << 8 | slot)
        if not address:
            what = f"network {network.name}: {network.addresses} has no address for a guest of {settings.node_name}"
            why = f"its node_number is {settings.node_number}, and 256 addresses belong to each number"
            raise SiteFault(what, why, "give the network more addresses, or the node a lower number")
        bridge = vlans.bridge_of(network) if network.tag else network.device
        found.append(Card(network, bridge, tap, mac, address, network.mtu))
    return tuple(found)


def _private_card(network: Network, rank: int, number: int, tap: str, key: str, settings: NodeSettings) -> Card:
    address = network.address(rank + 1)
    if not address:
        what = f"network={network.name}: {network.addresses} has no address for the guest of rank {rank}"
        raise UserFault(what, "the job has more guests than the network addresses", "ask for fewer guests")
    mac, mtu = private.mac_of(rank, number), private.mtu_of(network, settings)
    return Card(network, private.bridge_of(key, network.name), tap, mac, address, mtu)


def create_networks(part: NodePart, settings: NodeSettings, deadline: Deadline, step: t.Callable[[str], None]) -> None:
    """Create the networks that a start has for itself, and the bridges of VLANs; nothing where it has neither.

    Args:
        part: what is asked; its guests, and the nodes that have such.
        settings: NodeSettings of this node.
        deadline: of the making.
        step: may end the making before.

    Raises:
        VTorqueError: they cannot be created.
    """
    each, nodes = len(part.guests), part.peers.split()
    wanted = []
    chosen = find_networks(part.guests[0].networks, settings)
    if tagged := [network for network in chosen if network.tag]:
        step("the bridges of VLANs")
        vlans.create(tagged, settings, deadline)
    for number, network in enumerate(chosen, 1):
        if network.private:
            peers = [
                private.Peer(node, tuple(private.mac_of(place * each + index, number) for index in range(each)))
                for place, node in enumerate(nodes)
                if node != part.node
            ]
            wanted.append((network, peers))
    if wanted:
        step("the private networks")
        private.create(job_key(part.job_id, part.start), wanted, settings, deadline)


def format_addresses(cards: t.Iterable[Card]) -> str:
    """Return the addresses of cards as `GuestFacts.networks` has them."""
    return " ".join(f"{card.network.name}={card.address}" for card in cards)


def list_confined_devices(networks: str, slot: int, settings: NodeSettings) -> tuple[str, ...]:
    """Return the devices of further cards of a guest that have rules; that of `RDMA` has flows in their place.

    Args:
        networks: of the guest, as `format_addresses` has them.
        slot: of the guest.
        settings: NodeSettings of this node.
    """
    free = {network.name for network in settings.networks if not network.confined}
    names = enumerate(read_addresses(networks), 1)
    return tuple(settings.tap_name(slot, number) for number, name in names if name not in {*free, RDMA})


def confined(networks: str, slot: int, settings: NodeSettings) -> t.Iterator[tuple[str, nft_rules.Guest]]:
    """Yield each card of a guest that the rules of guests hold, with the name of its network.

    Args:
        networks: of the guest, as `format_addresses` has them.
        slot: of the guest.
        settings: NodeSettings of this node.
    """
    known = {network.name: network for network in settings.networks}
    for number, (name, address) in enumerate(read_addresses(networks).items(), 1):
        if name in known and known[name].confined and not known[name].private:
            yield name, nft_rules.Guest(settings.tap_name(slot, number), settings.mac(slot, number), address)

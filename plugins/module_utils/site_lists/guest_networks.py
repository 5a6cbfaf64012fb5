# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks that guests may have besides the first: the site's list of them, one line each, and what a request chose.

The first network (`bridge`) is that of every guest: by it the node finds its guests, and the job enters them.
"""

from __future__ import annotations

import itertools
import re
import typing as t

from ..frozen import frozen

NAME = r"[a-z][a-z0-9]{0,14}"
"""Part of host names (`vcn1-1-fast`), so without a dash."""
MOST = 3
"""Further networks of one guest."""
CHOSEN = rf"({NAME}(\+{NAME}){{0,{MOST - 1}}})?"
"""Names of networks in the order of a guest's cards."""
_PAIR = rf"{NAME}=[0-9.]{{7,15}}"
ADDRESSES = rf"({_PAIR}( {_PAIR}){{0,{MOST}}})?"
"""A guest's addresses on these, in the same order; and last that of its card on `RDMA`."""
RDMA = "vrdma"
"""What stands for the network of the cards that `vrdma_kind: vhostuser` gives, where names of networks are used."""

BRIDGE, VLAN, VXLAN = "bridge", "vlan", "vxlan"
KINDS = (BRIDGE, VLAN, VXLAN)
_POOL, _MTU = r"[0-9./]{9,18}", r"[0-9]{3,5}"
_CARD = r"[A-Za-z0-9._-]{1,15}"
_YES_NO = {"yes": True, "no": False}
OPTIONS: dict[str, dict[str, str]] = {
    BRIDGE: {"bridge": _CARD, "addresses": _POOL, "mtu": _MTU, "confined": "yes|no"},
    VLAN: {"device": _CARD, "tag": "[1-9][0-9]{0,3}", "addresses": _POOL, "mtu": _MTU},
    VXLAN: {"addresses": _POOL, "mtu": _MTU},
}
"""For each kind what may stand in its line, and in which form."""
FORM = (
    "a line `name kind option=value ...`: `fast bridge bridge=br1 addresses=10.9.0.0/16 mtu=9000`"
    " or `store vlan device=eth1 tag=120 addresses=10.10.0.0/16` or `mine vxlan addresses=172.31.0.0/16`"
)
REFUSED_KINDS = {
    "macvtap": "the packets of such a card pass no bridge, where guests are confined; give the card a bridge"
    " (kind bridge) or a VLAN (kind vlan)",
}
"""Kinds for which people look, and what they take instead."""
_OF_FREE_GUESTS = {
    VLAN: "else guests on other networks could send frames with its tag",
    VXLAN: "else guests could send into the networks of other jobs, by the packets that carry them",
}
"""Why these kinds do not go with guests that may send anything."""
_NEEDED = ("bridge", "device", "tag", "addresses")
_LEAST_MTU, _MOST_MTU = 576, 65535
_MOST_TAG = 4094
"""IEEE 802.1Q; 4095 is reserved."""


@frozen
class Network:
    """A network of the site's.

    Attributes:
        name: as users ask for it.
        kind: one of `KINDS`.
        device: the bridge that all jobs share, or the card or bridge that carries the VLAN; "": each job has a network
            of its own, over its nodes.
        addresses: from which guests have theirs, an IPv4 network.
        mtu: of the guests' cards; 0: as the guest has it (bridge), or what fits into the nodes' packets (vxlan).
        confined: whether the rules of guests (`confine_guests`) hold there, too.
        tag: of the VLAN; 0: the network is none.
    """

    name: str
    kind: str
    device: str
    addresses: str
    mtu: int = 0
    confined: bool = True
    tag: int = 0

    @property
    def place(self) -> str:
        """What no other network of the site may be: the bridge, or the VLAN of a device."""
        return f"{self.device}.{self.tag}" if self.tag else self.device

    @property
    def private(self) -> bool:
        """Return whether each job has such a network for itself."""
        return self.kind == VXLAN

    @property
    def prefix(self) -> int:
        """How many bits of an address are the network's."""
        return int(self.addresses.partition("/")[2])

    def address(self, number: int) -> str:
        """Return the address of a number, or "" where the network has none of it.

        Args:
            number: within the network.
        """
        first, size = _span(self.addresses)
        return _text(first + number) if 0 < number < size - 1 else ""


def read_line(line: str) -> Network:
    """Return the network that a line of the site's configuration describes.

    Args:
        line: as `FORM` says.

    Raises:
        ValueError: it is of no usable form; the text says what is wrong.
    """
    name, kind, *fields = (*line.split()[:20], "", "")
    if not re.fullmatch(NAME, name):
        raise ValueError(f"the name is a word of at most 15 small letters and digits; {FORM}")
    if kind in REFUSED_KINDS:
        raise ValueError(f"{kind}: this version has no such kind: {REFUSED_KINDS[kind]}")
    if kind not in KINDS:
        raise ValueError(f"the kind is one of {', '.join(KINDS)}; {FORM}")
    values: dict[str, str] = {}
    for field in filter(None, fields):
        option, _equals, value = field.partition("=")
        form = OPTIONS[kind].get(option)
        if form is None or option in values or not re.fullmatch(form, value):
            raise ValueError(f"{field[:80]}: not so; options of {kind}: {', '.join(OPTIONS[kind])}, each once; {FORM}")
        values[option] = value
    if missing := [option for option in OPTIONS[kind] if option in _NEEDED and option not in values]:
        raise ValueError(f"{missing[0]}= is missing; {FORM}")
    if (tag := int(values.get("tag", "0"))) > _MOST_TAG:
        raise ValueError(f"tag={tag}: from 1 to {_MOST_TAG}")
    mtu = int(values.get("mtu", "0"))
    if mtu and not _LEAST_MTU <= mtu <= _MOST_MTU:
        raise ValueError(f"mtu={mtu}: from {_LEAST_MTU} to {_MOST_MTU}")
    return Network(
        name,
        kind,
        values.get("bridge", values.get("device", "")),
        read_pool(values["addresses"]),
        mtu,
        _YES_NO[values.get("confined", "yes")],
        tag,
    )


def read_pool(text: str) -> str:
    """Return a network as it is written; `ipaddress` would cost each hook 2 ms.

    Args:
        text: `10.9.0.0/16`.

    Raises:
        ValueError: it is none that guests can have addresses of; the text says why.
    """
    octet = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    if not re.fullmatch(rf"{octet}(\.{octet}){{3}}/([89]|[12][0-9])", text):
        raise ValueError(f"addresses={text}: an IPv4 network from /8 to /29, such as 10.9.0.0/16")
    first, size = _span(text)
    if first % size:
        raise ValueError(f"addresses={text}: the network is {_text(first - first % size)}/{text.partition('/')[2]}")
    if first >> 24 in (0, 127) or first >> 24 >= 224:
        raise ValueError(f"addresses={text}: no addresses for hosts")
    return text


def rdma_network(bridge: str, addresses: str) -> Network:
    """Return the network of the cards that `vrdma_kind: vhostuser` gives.

    Args:
        bridge: of Open vSwitch.
        addresses: from which guests have theirs.

    Raises:
        ValueError: as `read_pool`.
    """
    return Network(RDMA, BRIDGE, bridge, read_pool(addresses))


def _span(network: str) -> tuple[int, int]:
    """The first address of a network, as a number, and how many it has."""
    text, _slash, prefix = network.partition("/")
    return int.from_bytes(bytes(map(int, text.split("."))), "big"), 1 << (32 - int(prefix))


def _text(address: int) -> str:
    return ".".join(map(str, address.to_bytes(4, "big")))


def format_line(network: Network) -> str:
    """Return the line that `read_line` reads."""
    options = {
        "device" if network.tag else "bridge": network.device,
        "tag": str(network.tag or ""),
        "addresses": network.addresses,
        "mtu": str(network.mtu or ""),
        "confined": "" if network.confined else "no",
    }
    return " ".join([network.name, network.kind, *(f"{key}={text}" for key, text in options.items() if text)])


def read_addresses(text: str) -> dict[str, str]:
    """Return the addresses of a guest by the names of its networks, in the order of its cards.

    Args:
        text: of the form `ADDRESSES`.
    """
    return dict(t.cast("tuple[str, str]", tuple(pair.split("=", 1))) for pair in text.split())


def find_contradictions(
    networks: t.Sequence[Network], bridge: str, node_number: int | None, *, confine: bool
) -> t.Iterator[str]:
    """Yield what does not go together in the site's list.

    Args:
        networks: the list.
        bridge: of the first network.
        node_number: of this node; None: it has none yet.
        confine: whether guests are confined.
    """
    names = [network.name for network in networks]
    yield from (f"{name} is there twice" for name in sorted({name for name in names if names.count(name) > 1}))
    places = [bridge, *(network.place for network in networks)]
    free = [network.name for network in networks if not network.confined]
    for network in networks:
        if why := _OF_FREE_GUESTS.get(network.kind):
            if not confine:
                yield f"{network.name}: kind {network.kind} needs confine_guests: {why}"
            elif free:
                yield f"{network.name}: kind {network.kind} does not go with confined=no of {free[0]}: {why}"
        if network.private:
            continue
        if places.count(network.place) > 1:
            what = "VLAN" if network.tag else "bridge"
            yield f"{network.name}: {network.place} is the {what} of another network, too"
        if node_number is not None and not network.address(node_number << 8 | 255):
            yield (
                f"{network.name}: {network.addresses} has no addresses for guests of node_number {node_number}"
                " (256 for each number)"
            )
    spans = sorted((*_span(network.addresses), network.name) for network in networks)
    for (first, size, name), (other_first, _size, other) in itertools.pairwise(spans):
        if name != other and other_first < first + size:
            yield f"{other}: its addresses are those of {name}, too"


def objection(chosen: t.Sequence[str], networks: t.Sequence[Network]) -> str:
    """Return why these cannot be had, or "".

    Args:
        chosen: names.
        networks: the site's list.
    """
    names = [network.name for network in networks]
    if not names:
        return "this site has no further networks (networks)"
    if unknown := [name for name in chosen if name not in names]:
        return f"this site has no network {unknown[0]}; it has {', '.join(names)}"
    return f"at most {MOST} networks" if len(chosen) > MOST else ""

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lease is put into use by messages to the kernel (rtnetlink(7)): to begin a program takes longer than its work."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import typing as t

from .dhcp_message import Lease

NEW_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 20, 24
ERROR = 2
REQUEST, ACKNOWLEDGE, REPLACE, CREATE = 0x1, 0x4, 0x100, 0x400
LINK_MTU, ADDRESS, LOCAL, BROADCAST, LIFETIMES = 4, 1, 2, 4, 6
DESTINATION, CARD, GATEWAY = 1, 4, 5
MAIN_TABLE, BY_BOOT, UNICAST, ON_LINK = 254, 3, 1, 4
ANYWHERE, THIS_LINK = 0, 253
"""Scopes of a route."""
ANSWER_S = 2.0
LEAST_MTU = 576


def messages_of(card: int, lease: Lease) -> t.List[t.Tuple[int, bytes]]:
    """Return what the kernel is to do for a lease, as kinds of messages and their bodies.

    The kernel itself ends an address that nobody renews.

    Args:
        card: its number.
        lease: of the card.
    """
    out = []
    if lease.mtu >= LEAST_MTU:
        body = struct.pack("BxHiII", socket.AF_UNSPEC, 0, card, 0, 0) + _attribute(
            LINK_MTU, struct.pack("I", lease.mtu)
        )
        out.append((NEW_LINK, body))
    interface = ipaddress.IPv4Interface(f"{lease.address}/{lease.prefix}")
    body = struct.pack("BBBBi", socket.AF_INET, lease.prefix, 0, ANYWHERE, card)
    body += _attribute(LOCAL, interface.packed) + _attribute(ADDRESS, interface.packed)
    body += _attribute(BROADCAST, interface.network.broadcast_address.packed)
    # preferred and valid, then two times that the kernel writes; a lease without end has the kernel's own number for it
    body += _attribute(LIFETIMES, struct.pack("IIII", lease.seconds, lease.seconds, 0, 0))
    out.append((NEW_ADDRESS, body))
    for text, router_text in lease.routes:
        network, router = ipaddress.IPv4Network(text), ipaddress.IPv4Address(router_text)
        direct = int(router) == 0
        # a router that this network does not hold is reached all the same
        flags = 0 if direct or router in interface.network else ON_LINK
        scope = THIS_LINK if direct else ANYWHERE
        body = struct.pack(
            "BBBBBBBBI", socket.AF_INET, network.prefixlen, 0, 0, MAIN_TABLE, BY_BOOT, scope, UNICAST, flags
        )
        body += _attribute(DESTINATION, network.network_address.packed) if network.prefixlen else b""
        body += b"" if direct else _attribute(GATEWAY, router.packed)
        out.append((NEW_ROUTE, body + _attribute(CARD, struct.pack("I", card))))
    return out


def use_lease(card: str, lease: Lease) -> None:
    """Give a card what its lease says; what the kernel refuses is missing, and `ready` finds that there is no way."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as way:
        way.settimeout(ANSWER_S)
        for number, (kind, body) in enumerate(messages_of(socket.if_nametoindex(card), lease), 1):
            with contextlib.suppress(OSError):
                _request(way, number, kind, body)


def _request(way: socket.socket, number: int, kind: int, body: bytes) -> None:
    # a link is there, and changes
    flags = REQUEST | ACKNOWLEDGE | (0 if kind == NEW_LINK else REPLACE | CREATE)
    way.send(struct.pack("IHHII", 16 + len(body), kind, flags, number, 0) + body)
    while True:
        answer = way.recv(4096)
        _length, answered, _flags, its, _port = struct.unpack_from("IHHII", answer)
        if (answered, its) == (ERROR, number):
            (status,) = struct.unpack_from("i", answer, 16)
            if status:
                raise OSError(-status, os.strerror(-status))
            return


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("HH", 4 + len(value), kind) + value.ljust((len(value) + 3) & ~3, b"\0")

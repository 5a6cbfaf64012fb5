# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DHCP's messages (RFC 2131, 2132, 3442), in packets of IPv4."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import struct
import typing as t

DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6
COOKIE = b"\x63\x82\x53\x63"
WANTED = bytes((1, 3, 6, 15, 26, 51, 54, 119, 121))
"""Mask, routers, name servers, domain, MTU, lease, server, search list, classless routes."""
FOREVER = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True)
class Lease:
    """What a DHCP server gives.

    Attributes:
        routes: each a network, and the router to it; "0.0.0.0": none.
        seconds: how long; `FOREVER` for no end.
    """

    address: str
    prefix: int
    server: bytes
    seconds: int
    routes: t.Tuple[t.Tuple[str, str], ...] = ()
    name_servers: t.Tuple[str, ...] = ()
    search: t.Tuple[str, ...] = ()
    mtu: int = 0


def dhcp_question(kind: int, mac: str, number: bytes, hostname: str, **about: bytes) -> bytes:
    """Return a packet of IPv4 from a client without an address, to everybody.

    Args:
        kind: DISCOVER or REQUEST.
        mac: of the card, which is the client's identity too.
        number: of this exchange, four bytes.
        hostname: the server may want to know it.
        about: `address` that is wished for, `server` whose offer is taken, `current` address of who renews.
    """
    card = bytes.fromhex(mac.replace(":", ""))
    options = [(53, bytes([kind])), (61, b"\x01" + card), (12, hostname.partition(".")[0].encode()), (55, WANTED)]
    options += [(code, about[name]) for code, name in ((50, "address"), (54, "server")) if about.get(name)]
    current = about.get("current") or bytes(4)
    # answered to everybody: nobody else could hear it before there is an address
    message = struct.pack("!4B4sHH4s12x16s192x4s", 1, 1, 6, 0, number, 0, 0x8000, current, card, COOKIE)
    message += b"".join(bytes([code, len(value)]) + value for code, value in options) + b"\xff"
    message = message.ljust(300, b"\0")
    datagram = struct.pack("!4H", 68, 67, 8 + len(message), 0) + message
    source, everybody = current, b"\xff" * 4
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 16, 20 + len(datagram), 0, 0, 64, 17, 0, source, everybody)
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + datagram


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def dhcp_answer(packet: bytes, mac: str, number: bytes) -> t.Tuple[int, Lease | None] | None:
    """Read a packet of IPv4.

    Returns:
        Its kind and what it gives; None when it is no answer to this client's question.
    """
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != 17:
        return None
    datagram = packet[(packet[0] & 15) * 4 :]
    message = datagram[8:]
    if len(message) < 240 or datagram[2:4] != b"\x00\x44" or message[236:240] != COOKIE:
        return None
    if message[0] != 2 or message[4:8] != number or message[28:34] != bytes.fromhex(mac.replace(":", "")):
        return None
    options: t.Dict[int, bytes] = {}
    place = 240
    while place + 1 < len(message) and message[place] != 255:
        code, length = message[place], message[place + 1]
        if code == 0:
            place += 1
            continue
        options[code] = options.get(code, b"") + message[place + 2 : place + 2 + length]
        place += 2 + length
    kind = options.get(53, b"\0")[0] if options.get(53) else 0
    try:
        return kind, _lease(message[16:20], options) if kind in (OFFER, ACK) else None
    except (ValueError, struct.error, IndexError, UnicodeDecodeError):
        return None


def _lease(address: bytes, options: t.Mapping[int, bytes]) -> Lease:
    def addresses(data: bytes) -> t.Tuple[str, ...]:
        return tuple(str(ipaddress.IPv4Address(data[at : at + 4])) for at in range(0, len(data) - 3, 4))

    mask = ipaddress.IPv4Network(f"0.0.0.0/{ipaddress.IPv4Address(options.get(1, bytes(4)))}")
    own = ipaddress.IPv4Address(address)
    if int(own) == 0 or own.is_multicast or own.is_loopback or mask.prefixlen == 0:
        raise ValueError(f"{own} is no address of a host")
    routes = (
        _classless(options[121])
        if 121 in options
        else tuple(("0.0.0.0/0", to) for to in addresses(options.get(3, b""))[:1])
    )
    domain = options.get(15, b"").rstrip(b"\0").decode("ascii")
    search = _names(options[119]) if 119 in options else (domain,) if domain else ()
    (seconds,) = struct.unpack("!I", options.get(51, b"\xff" * 4))
    return Lease(
        str(own), mask.prefixlen, options.get(54, b"")[:4], seconds, routes, addresses(options.get(6, b"")),
        tuple(name for name in search if re.fullmatch("[A-Za-z0-9._-]{1,253}", name)),
        struct.unpack("!H", options[26])[0] if 26 in options else 0,
    )  # fmt: skip


def _classless(data: bytes) -> t.Tuple[t.Tuple[str, str], ...]:
    routes = []
    while data:
        width = data[0]
        size = (width + 7) // 8
        if width > 32 or len(data) < 5 + size:
            raise ValueError("routes that are cut off")
        network = ipaddress.IPv4Network((data[1 : 1 + size].ljust(4, b"\0"), width), strict=False)
        routes.append((str(network), str(ipaddress.IPv4Address(data[1 + size : 5 + size]))))
        data = data[5 + size :]
    return tuple(routes)


def _names(data: bytes) -> t.Tuple[str, ...]:
    """Names as DNS writes them (RFC 1035, 4.1.4); a reference only leads back."""
    names = []
    place = 0
    while place < len(data):
        labels: t.List[str] = []
        at, end = place, 0
        while data[at]:
            if data[at] & 0xC0:
                target = (data[at] & 0x3F) << 8 | data[at + 1]
                end, at = end or at + 2, target if target < at else len(data)
                continue
            labels.append(data[at + 1 : at + 1 + data[at]].decode("ascii"))
            at += 1 + data[at]
        names.append(".".join(labels))
        place = end or at + 1
    return tuple(names)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hear of the neighbour table from the kernel, by rtnetlink(7): what is in it, and each change as it happens.

Two messages of an interface that never changes are read and written here by hand (linux/netlink.h, rtnetlink.h,
neighbour.h).  pyroute2 0.9 takes 190 ms of processor time and 25 MiB to load, which each node would pay for each job;
this module takes 0.1 ms.  `ip monitor neigh` has no JSON (iproute2 6.1), and does not ask again for what it missed.
What can be asked once, `ip -json` is asked (`iproute.py`).  This module goes when `ip -json monitor` writes JSON on all
distributions that we support, or when pyroute2 loads in less than 20 ms.
"""

from __future__ import annotations

import socket
import struct
import typing as t

from ...frozen import frozen

HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
NEIGHBOUR = struct.Struct("=BBHiHBB")
"""ndmsg: family, two pads, interface, state, flags, type."""
ATTRIBUTE = struct.Struct("=HH")
"""rtattr: length, type."""
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
NLM_F_REQUEST, NLM_F_DUMP = 0x001, 0x300
RTMGRP_NEIGH = 4
NDA_DST, NDA_LLADDR, NDA_CACHEINFO = 1, 2, 3
CACHE_INFO = struct.Struct("=IIII")
"""nda_cacheinfo: ticks since it was confirmed, used, updated; how many hold it."""
NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE, NUD_PERMANENT = 0x02, 0x04, 0x08, 0x10, 0x80
DUMPED = 1
"""The sequence number of what was asked; what the kernel tells by itself has 0."""
BUFFER = 1 << 20


@frozen
class Entry:
    """An entry of the table, or the news of one.

    Attributes:
        index: the kernel's number of the interface.
        family: of the address.
        state: NUD_*, or'ed.
        address: packed.
        mac: in small letters with colons; "": the kernel does not know it (yet).
        dumped: it was there when it was asked for.
        confirmed: ticks of the kernel's clock since the neighbour was last heard of; 0: not told.
    """

    index: int
    family: int
    state: int
    address: bytes
    mac: str
    dumped: bool
    confirmed: int = 0

    @property
    def text(self) -> str:
        """The address as people write it; "" when it is none of an internet."""
        if (self.family, len(self.address)) not in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            return ""
        return socket.inet_ntop(self.family, self.address)


def messages(data: bytes) -> t.Iterator[tuple[int, int, bytes]]:
    """The messages of a datagram: type, sequence number, content; what is broken off is left out."""
    while len(data) >= HEADER.size:
        length, kind, _flags, sequence, _port = HEADER.unpack_from(data)
        if not HEADER.size <= length <= len(data):
            return
        yield kind, sequence, data[HEADER.size : length]
        data = data[_aligned(length) :]


def read_entry(sequence: int, content: bytes) -> Entry | None:
    """The entry of an RTM_NEWNEIGH; None when it is too short to be one."""
    if len(content) < NEIGHBOUR.size:
        return None
    family, _pad, _pad2, index, state, _flags, _kind = NEIGHBOUR.unpack_from(content)
    found = dict(_attributes(content[NEIGHBOUR.size :]))
    mac = found.get(NDA_LLADDR, b"").hex(":")
    ages = found.get(NDA_CACHEINFO, b"")
    confirmed = CACHE_INFO.unpack_from(ages)[0] if len(ages) >= CACHE_INFO.size else 0
    return Entry(index, family, state, found.get(NDA_DST, b""), mac, sequence == DUMPED, confirmed)


def _attributes(data: bytes) -> t.Iterator[tuple[int, bytes]]:
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if not ATTRIBUTE.size <= length <= len(data):
            return
        yield kind, data[ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def dump_request() -> bytes:
    """Return a request for the whole table."""
    body = NEIGHBOUR.pack(0, 0, 0, 0, 0, 0, 0)
    return HEADER.pack(HEADER.size + len(body), RTM_GETNEIGH, NLM_F_REQUEST | NLM_F_DUMP, DUMPED, 0) + body


def _open(groups: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    opened.bind((0, groups))
    return opened


class Table:
    """The table, dumped once and then heard of.

    Args:
        index: of the interface that is of interest; None: any.

    Attributes:
        socket: for a poll: readable when there is news.
    """

    def __init__(self, index: int | None) -> None:
        self._index = index
        self._fresh = NUD_REACHABLE | NUD_PERMANENT
        # what a guest that spoke first leaves; of an entry that was there before it says nothing
        self._spoken = self._fresh | NUD_STALE | NUD_DELAY | NUD_PROBE
        self._before: set[tuple[str, bytes]] = set()
        # first the subscription, then the question: nothing falls between
        self.socket = _open(RTMGRP_NEIGH)
        self._request_dump()
        self.socket.setblocking(False)

    def _request_dump(self) -> None:
        self.socket.send(dump_request())

    def read(self) -> t.Iterator[tuple[str, str]]:
        """Fresh pairs of MAC address and address since the last call; never waits.

        IPv4 comes before IPv6, and then who was heard of last: a guest that got another address has two for a while.
        """
        news = list(enumerate(self._fresh_entries()))
        news.sort(key=lambda one: (one[1].family == socket.AF_INET6, one[1].confirmed, -one[0]))
        return iter([(entry.mac, entry.text) for _number, entry in news])

    def _fresh_entries(self) -> t.Iterator[Entry]:
        while True:
            try:
                data = self.socket.recv(BUFFER)
            except BlockingIOError:
                return
            except OSError:
                self._request_dump()  # the buffer ran over (ENOBUFS): the table still has what was missed
                continue
            for kind, sequence, content in messages(data):
                entry = read_entry(sequence, content) if kind == RTM_NEWNEIGH else None
                if entry is not None and self._is_fresh(entry):
                    yield entry

    def _is_fresh(self, entry: Entry) -> bool:
        if not entry.mac or not entry.text or self._index not in (None, entry.index):
            return False
        pair = (entry.mac, entry.address)
        if entry.state & self._fresh or (not entry.dumped and pair not in self._before and entry.state & self._spoken):
            return True
        if entry.dumped:
            self._before.add(pair)
        return False

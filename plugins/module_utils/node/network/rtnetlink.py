# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel knows of addresses, by rtnetlink(7): an interface's own, and its neighbour table.

A few messages of an interface that never changes are written here by hand (linux/netlink.h, rtnetlink.h, if_addr.h,
neighbour.h): to load a library for all of netlink takes half of the processor time of a node's part of a job.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import typing as t

from ...errors import VTorqueError
from ...frozen import frozen

HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
NEIGHBOUR = struct.Struct("=BBHiHBB")
"""ndmsg: family, two pads, interface, state, flags, type."""
INTERFACE_ADDRESS = struct.Struct("=BBBBI")
"""ifaddrmsg: family, length of the prefix, flags, scope, interface."""
ATTRIBUTE = struct.Struct("=HH")
"""rtattr: length, type."""
ERROR = struct.Struct("=i")
"""nlmsgerr: a negative errno; 0: done as it was asked."""
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWADDR, RTM_GETADDR = 20, 22
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x001, 0x004, 0x300
RTMGRP_NEIGH = 4
NDA_DST, NDA_LLADDR, NDA_CACHEINFO = 1, 2, 3
CACHE_INFO = struct.Struct("=IIII")
"""nda_cacheinfo: ticks since it was confirmed, used, updated; how many hold it."""
IFA_ADDRESS = 1
NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE, NUD_PERMANENT = 0x02, 0x04, 0x08, 0x10, 0x80
DUMPED = 1
"""The sequence number of what was asked; what the kernel tells by itself has 0."""
BUFFER = 1 << 20
ANSWER_S = 5.0
"""The kernel answers while it is asked; this is for one that does not."""


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
        return _text(self.family, self.address)


def _text(family: int, address: bytes) -> str:
    if (family, len(address)) not in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
        return ""
    return socket.inet_ntop(family, address)


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


def written(kind: int, flags: int, entry: Entry | None = None) -> bytes:
    """A request about one entry, or about all of them."""
    body = NEIGHBOUR.pack(entry.family if entry else 0, 0, 0, entry.index if entry else 0, 0, 0, 0)
    if entry is not None:
        body += ATTRIBUTE.pack(ATTRIBUTE.size + len(entry.address), NDA_DST) + entry.address
    return HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | flags, DUMPED, 0) + body


def _open(groups: int = 0) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    opened.bind((0, groups))
    return opened


def read_addresses(index: int) -> tuple[str, ...]:
    """The addresses of an interface.

    Args:
        index: the kernel's number of the interface.

    Raises:
        VTorqueError: the kernel does not tell them.
    """
    found = []
    with _open() as peer:
        for kind, _sequence, content in _answer(peer, written(RTM_GETADDR, NLM_F_DUMP), "the interfaces' addresses"):
            if kind == RTM_NEWADDR and len(content) >= INTERFACE_ADDRESS.size:
                family, _length, _flags, _scope, its = INTERFACE_ADDRESS.unpack_from(content)
                address = dict(_attributes(content[INTERFACE_ADDRESS.size :])).get(IFA_ADDRESS, b"")
                if its == index and (text := _text(family, address)):
                    found.append(text)
    return tuple(found)


def read_all() -> tuple[Entry, ...]:
    """The whole neighbour table, as it is now.

    Raises:
        VTorqueError: the kernel does not tell it.
    """
    with _open() as peer:
        answer = _answer(peer, written(RTM_GETNEIGH, NLM_F_DUMP), "the neighbour table")
        found = [read_entry(sequence, content) for kind, sequence, content in answer if kind == RTM_NEWNEIGH]
    return tuple(filter(None, found))


def forget(entry: Entry) -> bool:
    """Have the kernel forget an entry.

    Returns:
        False: there was none any more.

    Raises:
        VTorqueError: the kernel does not.
    """
    with _open() as peer:
        try:
            list(_answer(peer, written(RTM_DELNEIGH, NLM_F_ACK, entry), f"the neighbour {entry.text}"))
        except FileNotFoundError:
            return False
    return True


def _answer(peer: socket.socket, request: bytes, what: str) -> t.Iterator[tuple[int, int, bytes]]:
    """The messages that come in answer, until the kernel has said all.

    Raises:
        FileNotFoundError: the kernel says that there is none.
        VTorqueError: it says something else, or nothing.
    """
    peer.settimeout(ANSWER_S)
    try:
        peer.send(request)
        while True:
            for kind, sequence, content in messages(peer.recv(BUFFER)):
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    (number,) = ERROR.unpack_from(content)
                    if number:
                        raise OSError(-number, os.strerror(-number))
                    return
                yield kind, sequence, content
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise
        raise VTorqueError(what, f"the kernel's answer: {error.strerror or error}") from error


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
        self._ask()
        self.socket.setblocking(False)

    def _ask(self) -> None:
        self.socket.send(written(RTM_GETNEIGH, NLM_F_DUMP))

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
                self._ask()  # the buffer ran over (ENOBUFS): the table still has what was missed
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

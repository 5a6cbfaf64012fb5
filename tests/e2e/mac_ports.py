# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Behind which port of the lab's switch the MAC addresses of guests are, from one moment to another.

A guest that has moved is behind another port for good.  Two guests with one MAC, which both speak, let the switch learn
it here and there by turns: so an address that returns to a port which it had left was at two places.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import struct
import subprocess
import typing as t

from lab.system.namespaces import join_network
from lab.system.network import SWITCH
from lab.system.state import State

from .conftest import Site

GUESTS = "52:54:00:"
"""What the MAC address of each guest begins with."""
MARK = "02:00:00:00:00:fe"
"""An address of nobody: what comes before it was read."""
HEADER, NEIGHBOUR = struct.Struct("=IHHII"), struct.Struct("=BxxxiHBB")
NEW_NEIGHBOUR, LINK_ADDRESS, NEIGHBOURS = 28, 2, 4
"""RTM_NEWNEIGH, NDA_LLADDR and RTMGRP_NEIGH (rtnetlink(7)), by which a bridge reports what it has learned."""
AF_BRIDGE, RECEIVE_BUFFER_FORCE = 7, 33
"""Of the kernel; Python has no name for them."""
PATIENCE_S = 600.0


@contextlib.contextmanager
def one_port_each(site: Site) -> t.Iterator[dict[str, list[str]]]:
    """Fail if the MAC address of a guest was behind two ports while this lasted; yields what `learned` does."""
    with learned(site) as seen:
        yield seen
    assert not at_two_places(seen), seen


@contextlib.contextmanager
def learned(site: Site) -> t.Iterator[dict[str, list[str]]]:
    """Yield for each MAC address of a guest the nodes at whose ports it was, in their order; filled in at the end."""
    name = State(site.directory).name(SWITCH)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:  # whose network alone is the switch's
        reports, ports = thread.submit(_listen, name).result()
    seen: dict[str, list[str]] = {}
    with reports:
        yield seen
        change = ("ip", "netns", "exec", name, "bridge", "fdb", "{}", MARK, "dev", "v-fe", "master", "static")
        for verb in ("add", "del"):
            subprocess.run([word.format(verb) for word in change], check=True, timeout=PATIENCE_S)
        marked = False
        while not marked:
            for mac, node in _read(reports, ports):
                marked = marked or mac == MARK
                if mac.startswith(GUESTS) and seen.setdefault(mac, [])[-1:] != [node]:
                    seen[mac].append(node)


def at_two_places(seen: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """Return the addresses that have returned to a port which they had left."""
    return [mac for mac, nodes in seen.items() if len(set(nodes)) < len(nodes)]


def _listen(namespace: str) -> tuple[socket.socket, dict[int, str]]:
    """Return what hears all that bridges of a namespace learn, and the nodes at its ports by their numbers."""
    join_network(namespace)
    reports = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    reports.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCE, 1 << 24)
    reports.settimeout(PATIENCE_S)
    reports.bind((0, NEIGHBOURS))
    ports = {number: name[2:] for number, name in socket.if_nameindex() if name.startswith("v-")}
    return reports, ports


def _read(reports: socket.socket, ports: t.Mapping[int, str]) -> list[tuple[str, str]]:
    """Return MAC addresses and nodes of the next report; one that was lost, because too many came, is an OSError."""
    data, found = reports.recv(1 << 16), []
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)[:2]
        message, data = data[HEADER.size : length], data[(length + 3) & ~3 :]
        if kind != NEW_NEIGHBOUR:
            continue
        family, number = NEIGHBOUR.unpack_from(message)[:2]
        if family == AF_BRIDGE and number in ports:
            found += [(mac, ports[number]) for mac in _link_addresses(message[NEIGHBOUR.size :])]
    return found


def _link_addresses(attributes: bytes) -> t.Iterator[str]:
    while len(attributes) >= 4:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == LINK_ADDRESS:
            yield attributes[4:length].hex(":")
        attributes = attributes[(max(length, 4) + 3) & ~3 :]

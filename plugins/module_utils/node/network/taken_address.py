# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another host has got the address of a guest that was away: its lease may have ended meanwhile."""

from __future__ import annotations

import contextlib
import socket
import time
import typing as t

from ...system.clock import Deadline
from ...time_budget import ADDRESS_PROBE_S
from . import iproute

DISCARD = 9
REQUESTS = 2
"""One of them, or its answer, may be lost."""
LOOK_S = 0.05


def find_holders(own: t.Mapping[str, str], bridge: str, deadline: Deadline) -> dict[str, str]:
    """Return the MAC address of each other host that answers for one of these addresses.

    The kernel asks by ARP before it sends anything, as RFC 5227 has it for who wants an address; that it asks a second
    time within `ADDRESS_PROBE_S` is by having it forget that it did.  A node that has no address of the guests' network
    asks nobody.

    Args:
        own: MAC addresses of guests that are not on the network, by their IPv4 addresses.
        bridge: at which they were.
        deadline: of whoever asks.

    Raises:
        NodeFault: `ip` cannot be run.
        VTorqueError: there is no such bridge, or no answer.
    """
    wanted = {address: mac for address, mac in own.items() if ":" not in address}
    if not wanted:
        return {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _request in range(REQUESTS):
            for address in wanted:
                iproute.forget_neighbour(address, bridge, deadline)
                with contextlib.suppress(OSError):  # no way there: nobody of the guests' network hears it
                    probe.sendto(b"", (address, DISCARD))
            until = Deadline.after(min(ADDRESS_PROBE_S / REQUESTS, deadline.left_s()))
            while not until.passed:
                time.sleep(LOOK_S)
                there = {address: mac for mac, address in iproute.read_neighbours(bridge, deadline)}
                held = {address: there.get(address, mac) for address, mac in wanted.items()}
                if found := {address: mac for address, mac in held.items() if mac != wanted[address]}:
                    return found
    return {}

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DHCP client, without a program to start."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import socket
import time
import typing as t

from .dhcp_message import ACK, DISCOVER, NAK, OFFER, REQUEST, Lease, dhcp_answer, dhcp_question

TRIES_S = (0.3, 0.5, 1.0, 2.0, 4.0, 4.0, 8.0, 8.0, 16.0, 16.0)
ASKED_S = (0.3, 0.7)
"""How long each question waits for its answer; of the address of before, and of any."""


class Dhcp:
    """The client of the one card.

    Args:
        way: takes packets of IPv4, and gives those that come; a test's own, or a socket of the card.
    """

    def __init__(self, way: socket.socket, mac: str, hostname: str) -> None:
        self._way, self._mac, self._hostname = way, mac, hostname

    def ask(self, address: str = "") -> Lease | None:
        """Ask for a lease: for the address of before first, which one answer settles.

        The server decides either way, so that no two guests have one address.

        Returns:
            It; None when no server answered.
        """
        if address and (lease := self._request(ASKED_S, address=ipaddress.IPv4Address(address).packed)):
            return lease
        for seconds in TRIES_S:
            offer = self._talk(DISCOVER, (seconds,), OFFER)
            if offer is None:
                continue
            about = {"address": ipaddress.IPv4Address(offer.address).packed, "server": offer.server}
            if lease := self._request((0.5, 1.0), **about):
                return lease
        return None

    def renew(self, lease: Lease) -> Lease | None:
        """Ask for the same again, while it is valid."""
        return self._request((1.0, 2.0, 4.0), current=ipaddress.IPv4Address(lease.address).packed)

    def _request(self, tries_s: t.Sequence[float], **about: bytes) -> Lease | None:
        return self._talk(REQUEST, tries_s, ACK, **about)

    def _talk(self, kind: int, tries_s: t.Sequence[float], due: int, **about: bytes) -> Lease | None:
        number = os.urandom(4)
        for seconds in tries_s:
            limit = time.monotonic() + seconds
            with contextlib.suppress(OSError):
                self._way.send(dhcp_question(kind, self._mac, number, self._hostname, **about))
            while (left := limit - time.monotonic()) > 0:
                ready, _writable, _broken = select.select([self._way], [], [], left)
                if not ready:
                    break
                answer = dhcp_answer(self._way.recv(4096), self._mac, number)
                if answer is None:
                    continue
                if answer[0] == NAK:
                    return None
                if answer[0] == due and answer[1] is not None:
                    return answer[1]
        return None


def way_of(card: str) -> socket.socket:
    """Return a socket of all packets of IPv4 of a card, which sends to everybody."""
    way = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    way.bind((card, 0x0800))
    return _Everybody(way, card)  # type: ignore[return-value]


class _Everybody:
    """A packet socket: it needs to be told each time where a packet goes."""

    def __init__(self, way: socket.socket, card: str) -> None:
        self._way, self._card = way, card

    def fileno(self) -> int:
        return self._way.fileno()

    def send(self, packet: bytes) -> int:
        return self._way.sendto(packet, (self._card, 0x0800, 0, 0, b"\xff" * 6))

    def recv(self, size: int) -> bytes:
        return self._way.recv(size)

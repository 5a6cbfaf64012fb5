# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node speaks with the root of its guests: over a virtio channel, without a network and without a login.

The guest's side is `templates/guest/agent.sh`.  Whoever is root in the guest writes there what they like, so what is
heard is bounded and believed in nothing but that this guest said it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import pathlib
import re
import secrets
import selectors
import socket
import typing as t

from ...errors import VTorqueError
from ...frozen import frozen
from ...system.clock import Deadline
from .console import plain

HEARD = 1 << 16
"""Bytes of an answer that are read: the guest keeps the last 8 KiB of what an order wrote."""
LEAST_S = 1


@frozen
class Channel:
    """The way to one guest.

    Attributes:
        name: of the guest.
        socket: the node's end (`NodeSettings.agent_socket`).
        token: with which the guest says that it is the one (`GuestFile.token`).
    """

    name: str
    socket: pathlib.Path
    token: str


@frozen
class OrderResult:
    """How an order ended in a guest.

    Attributes:
        status: exit status; 124: it was ended at its deadline.
        output: the last of what it wrote, on either stream, harmless on a terminal.
    """

    status: int
    output: str


def greet(channel: Channel, deadline: Deadline) -> None:
    """See that a guest listens.

    Args:
        channel: to it.
        deadline: when it must have answered.

    Raises:
        VTorqueError: it is not heard, or says nonsense.
    """
    with _Talk(channel, "", deadline) as talk:
        talk.peer.settimeout(max(0.1, deadline.left_s(86_400.0)))
        while not talk.read_greeting():
            pass


def order_all(orders: t.Sequence[tuple[Channel, str]], deadline: Deadline, *, verb: str = "") -> dict[str, OrderResult]:
    """Have a script run by the root of each guest, all at the same time.

    Args:
        orders: to whom, and what: text for a POSIX sh.
        deadline: when all must have answered; the scripts themselves are ended then.
        verb: what comes before the order; "": it is a script.

    Returns:
        How each ended, by the guest's name.

    Raises:
        VTorqueError: a guest is not heard, or says nonsense.
    """
    with contextlib.ExitStack() as stack:
        talks = [stack.enter_context(_Talk(channel, script, deadline, verb)) for channel, script in orders]
        selector = stack.enter_context(selectors.DefaultSelector())
        for talk in talks:
            selector.register(talk.peer, selectors.EVENT_READ, talk)
        while selector.get_map():
            for key, _events in selector.select(deadline.left_s(86_400.0)):
                talk = key.data
                talk.read_reply()
                if talk.done is not None:
                    selector.unregister(talk.peer)
            if deadline.passed and selector.get_map():
                silent = ", ".join(key.data.channel.name for key in selector.get_map().values())
                raise VTorqueError(f"guest {silent}", "did not answer on its channel in time")
        return {talk.channel.name: t.cast(OrderResult, talk.done) for talk in talks}


class _Talk:
    """One order to one guest."""

    def __init__(self, channel: Channel, script: str, deadline: Deadline, verb: str = "") -> None:
        self.channel = channel
        self._verb = verb.encode("ascii")
        self.done: OrderResult | None = None
        self._script = script.encode("utf-8", "surrogateescape")
        self._deadline = deadline
        self._heard = b""
        self._word = secrets.token_hex(8)
        self._greeted = False
        self.peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> _Talk:
        self.peer.settimeout(max(0.1, self._deadline.left_s(86_400.0)))
        try:
            self.peer.connect(str(self.channel.socket))
        except OSError as error:
            self.peer.close()
            raise VTorqueError(f"guest {self.channel.name}", f"its channel cannot be opened: {error}") from error
        self._send(f"hello {self._word}\n".encode())
        return self

    def __exit__(self, *_error: object) -> None:
        self.peer.close()

    def read_reply(self) -> None:
        """Read what there is; give the order when the guest listens."""
        self._read_more()
        while self.done is None and b"\n" in self._heard:
            line, _newline, self._heard = self._heard.partition(b"\n")
            if self._greeted:
                self.done = self._read(line)
            elif self._is_greeting(line):
                self._greeted = True
                seconds = max(LEAST_S, int(self._deadline.left_s(86_400.0)))
                self._send(b"%s%d %d\n" % (self._verb, seconds, len(self._script)) + self._script)

    def read_greeting(self) -> bool:
        """Read what there is; returns whether the guest listens."""
        self._read_more()
        *lines, self._heard = self._heard.split(b"\n")
        return any(map(self._is_greeting, lines))

    def _is_greeting(self, line: bytes) -> bool:
        # before that: the end of a talk that was broken off, and what it says when it begins to be heard
        return line == f"vtorque-agent {self.channel.token} {self._word}".encode()

    def _read_more(self) -> None:
        try:
            data = self.peer.recv(HEARD)
        except OSError as error:
            raise VTorqueError(f"guest {self.channel.name}", f"its channel broke: {error}") from error
        if not data:
            raise VTorqueError(f"guest {self.channel.name}", "its channel was closed: it may have ended")
        self._heard += data
        if len(self._heard) > HEARD:
            raise VTorqueError(f"guest {self.channel.name}", "its root writes nonsense to its channel")

    def _send(self, data: bytes) -> None:
        try:
            self.peer.sendall(data)
        except OSError as error:
            raise VTorqueError(f"guest {self.channel.name}", f"its channel broke: {error}") from error

    def _read(self, line: bytes) -> OrderResult:
        found = re.fullmatch(rb"([0-9]{1,3}) ([A-Za-z0-9+/=]*)", line)
        try:
            if found is None:
                raise ValueError
            text = base64.b64decode(found[2], validate=True).decode("utf-8", "replace")
        except (ValueError, binascii.Error):
            raise VTorqueError(f"guest {self.channel.name}", "its answer is of no known form") from None
        return OrderResult(int(found[1]), "\n".join(map(plain, text.splitlines())))

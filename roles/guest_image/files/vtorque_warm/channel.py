# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The channel to the node: its lines, and the order that comes over it."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import time
import typing as t

from .guest import Guest, apply
from .order import MAX_PAYLOAD, Order, OrderError, parse_order
from .system import StepError

CHANNEL = "org.vtorque.0"
MAX_LINE = 256
MAX_SECONDS = 600
LINE_S = 5.0
"""For the rest of a line, once it has begun."""
REFUSED = 1


class Channel:
    """The way to the node: a character device that ends whenever nobody listens there.

    Args:
        descriptor: of it, open for both.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._heard = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def send(self, text: str) -> bool:
        """Write a line; with nobody there it waits, or is refused: then False."""
        try:
            os.write(self._descriptor, f"{text}\n".encode())
        except OSError:
            return False
        return True

    def line(self) -> str | None:
        """The next line; None: the node does not listen any more.

        Raises:
            OrderError: it is too long, or its rest does not come in time.
        """
        limit: float | None = None
        while b"\n" not in self._heard:
            if len(self._heard) > MAX_LINE:
                self._heard = b""
                raise OrderError(f"a line of more than {MAX_LINE} bytes")
            if self._heard and limit is None:
                limit = time.monotonic() + LINE_S
            if not self._hear(limit):
                self._heard = b""
                return None
        line, _newline, self._heard = self._heard.partition(b"\n")
        return line.decode("ascii", "replace")

    def exactly(self, count: int, seconds: float) -> bytes:
        """So many bytes.

        Raises:
            OrderError: they do not come in time, or the node hangs up.
        """
        limit = time.monotonic() + seconds
        while len(self._heard) < count:
            if not self._hear(limit):
                self._heard = b""
                raise OrderError("the node hung up before its order had come whole")
        content, self._heard = self._heard[:count], self._heard[count:]
        return content

    def _hear(self, limit: float | None) -> bool:
        """Read what there is; False: nobody is there.

        Raises:
            OrderError: nothing comes in time.
        """
        left_ms = None if limit is None else max(0.0, (limit - time.monotonic()) * 1000)
        events = self._poll.poll(left_ms)
        if not events:
            self._heard = b""
            raise OrderError("what the node sent is not whole")
        if not events[0][1] & select.POLLIN:
            return False
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            return False
        self._heard += data
        return bool(data)


def serve(channel: Channel, token: str, guest: Guest) -> Order:
    """Answer the node until a first order was carried out.

    Raises:
        StepError: a step failed; the node has been answered.
    """
    while True:
        if not channel.send(f"vtorque-agent {token}"):
            time.sleep(0.2)
            continue
        listening = True
        while listening:
            try:
                order, listening = _obey(channel, token, guest)
            except OrderError as error:
                channel.send(_answer(f"order: {error}"))
                continue
            except StepError as error:
                channel.send(_answer(str(error)))
                raise
            if order is not None:
                return order


def _obey(channel: Channel, token: str, guest: Guest) -> t.Tuple[Order | None, bool]:
    line = channel.line()
    arrived = time.monotonic()
    if line is None:
        return None, False
    kind, _blank, rest = line.partition(" ")
    if kind == "hello" and re.fullmatch("[A-Za-z0-9]{1,64}", rest):
        return None, channel.send(f"vtorque-agent {token} {rest}")
    found = re.fullmatch("warm ([1-9][0-9]{0,2}) ([1-9][0-9]{0,6})", line)
    if not found or int(found[1]) > MAX_SECONDS or int(found[2]) > MAX_PAYLOAD:
        raise OrderError("no line that a template knows")
    order = parse_order(channel.exactly(int(found[2]), int(found[1])), arrived)
    apply(order, guest)
    channel.send("0 ")
    return order, True


def _answer(text: str) -> str:
    return f"{REFUSED} {base64.b64encode(text.encode()[:4096]).decode()}"


def open_port(guest: Guest) -> int:
    """Open the channel to the node.

    Raises:
        StepError: there is none.
    """
    places = guest.path("sys/class/virtio-ports")
    for place in sorted(places.iterdir()) if places.is_dir() else ():
        with contextlib.suppress(OSError):
            if (place / "name").read_text().strip() == CHANNEL:
                return os.open(guest.path(f"dev/{place.name}"), os.O_RDWR | os.O_CLOEXEC)
    raise StepError("no channel to the node: is virtio_console in this image's kernel?")

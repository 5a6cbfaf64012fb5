# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the parts talk: one JSON document a line over unix sockets in one shared directory."""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t

    from .loop import Loop

    Message = dict[str, t.Any]

SOCKETS = "/run/lab-torque"


def server_socket(directory: str, host: str) -> str:
    """The socket by which `host` reaches the server."""
    return f"{directory}/{host}.sock"


def mom_socket(directory: str, host: str) -> str:
    """The socket of the MOM of `host`, for root's processes."""
    return f"{directory}/{host}.mom"


def interactive_directory(directory: str) -> str:
    """Where a waiting `qsub -I` listens."""
    return f"{directory}/interactive"


def peer_uid(connection: socket.socket) -> int:
    """Who is at the other end, as the kernel says."""
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def listen(path: str, mode: int) -> socket.socket:
    """A listening socket at `path`, there only once it can be used; what an ended daemon left there is replaced."""
    new = f"{path}.new"
    if os.path.lexists(new):
        os.unlink(new)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(new)
    os.chmod(new, mode)  # noqa: PTH101
    listener.listen(128)
    os.rename(new, path)  # noqa: PTH104
    return listener


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps(message).encode("ascii") + b"\n"


def ask(path: str, message: Message) -> Message:
    """Send one request and wait for its answer, for ever if need be, as Torque's commands do.

    Raises:
        ConnectionRefusedError: nobody serves the socket, or the server went away before it answered.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
            connection.sendall(encode(message))
            return receive(connection)
        except (FileNotFoundError, ConnectionError) as error:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused") from error


def receive(connection: socket.socket) -> Message:
    """Read one line.

    Raises:
        ConnectionResetError: the other end closed before the line was complete.
    """
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = connection.recv(1 << 20)
        if not part:
            raise ConnectionResetError("the connection was closed")
        parts.append(part)
    answer: Message = json.loads(b"".join(parts))
    return answer


class Link:
    """A connection served by a loop: whole messages in, messages out in order, never blocking."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        on_message: t.Callable[[Link, Message], None],
        on_close: t.Callable[[Link], None],
    ) -> None:
        self.loop = loop
        self.connection = connection
        self.on_message = on_message
        self.on_close = on_close
        self._in = bytearray()
        self._out = bytearray()
        self._last = False
        self.open = True
        connection.setblocking(False)
        loop.watch(connection.fileno(), selectors.EVENT_READ, self._ready)

    def send(self, message: Message) -> None:
        """Queue a message; one for a closed connection is dropped."""
        if self.open:
            self._out += encode(message)
            self._write()

    def say(self, text: bytes) -> None:
        """Queue what is no message but a text for a person, and end the connection when it is sent."""
        if self.open:
            self._last = True
            self._out += text
            self._write()

    def close(self) -> None:
        """End the connection without calling `on_close`."""
        if self.open:
            self.open = False
            self.loop.forget(self.connection.fileno())
            self.connection.close()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if self.open and events & selectors.EVENT_READ:
            self._read()

    def _write(self) -> None:
        try:
            while self._out:
                del self._out[: self.connection.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._lost()
            return
        if self._last and not self._out:
            self._lost()
            return
        waiting = selectors.EVENT_WRITE if self._out else 0
        self.loop.watch(self.connection.fileno(), selectors.EVENT_READ | waiting, self._ready)

    def _read(self) -> None:
        try:
            data = self.connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._in += data
        while self.open and b"\n" in self._in:
            line, _newline, rest = bytes(self._in).partition(b"\n")
            self._in = bytearray(rest)
            try:
                message = json.loads(line)
            except ValueError:
                self._lost()
                return
            self.on_message(self, message)

    def _lost(self) -> None:
        if self.open:
            self.close()
            self.on_close(self)

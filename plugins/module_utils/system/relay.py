# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes carried both ways between a socket and a pair of descriptors, as those of an ssh connection."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import threading
import typing as t

CHUNK = 1 << 18


def carry(sock: socket.socket, source: int, sink: int) -> None:
    """Carry bytes both ways until both ends have no more; the end of one way is handed on.

    Args:
        sock: a connected socket; it is closed at the end.
        source: what is read from it goes to the socket; it stays open.
        sink: what the socket gives is written to it; it is closed when the socket has no more.
    """
    back = threading.Thread(target=_give, args=(sock, sink), daemon=True, name="relay")
    back.start()
    with contextlib.suppress(OSError):
        while data := os.read(source, CHUNK):
            sock.sendall(data)
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
    back.join()
    sock.close()


def _give(sock: socket.socket, sink: int) -> None:
    with contextlib.suppress(OSError):
        while data := sock.recv(CHUNK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(sink, rest) :]
    with contextlib.suppress(OSError):
        os.close(sink)


def connect(path: pathlib.Path, timeout_s: float) -> socket.socket:
    """Return a socket that is connected to the one of this path.

    Raises:
        OSError: nobody listens there.
    """
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(timeout_s)
        found.connect(str(path))
        found.settimeout(None)
    except BaseException:
        found.close()
        raise
    return found


class Listener:
    """A socket of a path; whoever connects to it is handed over, in a thread of their own.

    Args:
        path: of the socket; it must not be there.
        uid: who may connect, besides root.
        serve: takes a connection.
    """

    def __init__(self, path: pathlib.Path, uid: int, serve: t.Callable[[socket.socket], None]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._serve = serve
        try:
            self._socket.bind(str(path))
            path.chmod(0o600)
            os.chown(path, uid, -1)
            self._socket.listen(8)
        except BaseException:
            self._socket.close()
            raise
        threading.Thread(target=self._accept, daemon=True, name=f"relay {path.name}").start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._socket.accept()[0]
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Nobody is let in any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

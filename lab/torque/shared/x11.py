# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qsub -X`: the display of the submitting user, at the front end and at the node, as TORQUE 6.1.3 has it.

The facts are those of its sources: x11_get_proto (qsub_functions.c), x11_create_display (mom_inter.c),
setup_x11_forwarding (start_exec.c) and port_forwarding.c.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t

XAUTH = "/usr/bin/xauth"
FIRST, END = 50, 500
"""Numbers of the displays that a MOM offers; the second is none any more (X11OFFSET, MAX_DISPLAYS)."""


def authority(display: str) -> str:
    """What may use a display: `protocol:data:screen`, the value of the job's attribute forward_x11; "" for none.

    Args:
        display: the user's DISPLAY.
    """
    name = f"unix:{display.removeprefix('localhost:')}" if display.startswith("localhost:") else display
    try:
        done = subprocess.run([XAUTH, "list", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return ""
    fields = done.stdout.decode().partition("\n")[0].split()
    screen = display.partition(":")[2].partition(".")[2] or "0"
    return f"{fields[1]}:{fields[2]}:{screen}" if len(fields) == 3 else ""


def reach(display: str) -> socket.socket:
    """A connection to the X server itself.

    Args:
        display: `unix:7.0`, `:7` or `host:7`.

    Raises:
        OSError: nobody listens there.
        ValueError: it is no display.
    """
    host, _colon, rest = display.rpartition(":")
    number = int(rest.partition(".")[0])
    if host in ("", "unix"):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.connect(f"/tmp/.X11-unix/X{number}")  # noqa: S108 - where X servers listen
        return server
    return socket.create_connection((host, 6000 + number))


def offer(asked: str, home: str) -> tuple[str, list[socket.socket]]:
    """Listen for X clients on this node's loopback, and put the user's cookie where they look for it.

    Args:
        asked: the job's forward_x11.
        home: the user's, who this process is already.

    Returns:
        The value of DISPLAY, and what listens.

    Raises:
        OSError: no display is free, or xauth is not there.
        ValueError: `asked` is none.
    """
    protocol, data, screen = asked.split(":")
    number, listeners = _listen()
    lines = f"remove unix:{number}.{int(screen)}\nadd unix:{number}.{int(screen)} {protocol} {data}\n"
    # what xauth says and how it ends is nobody's concern there
    subprocess.run([XAUTH, "-q", "-"], input=lines.encode(), env={"HOME": home, "PATH": "/usr/bin:/bin"}, check=False)
    return f"localhost:{number}.{int(screen)}", listeners


def _listen() -> tuple[int, list[socket.socket]]:
    for number in range(FIRST, END):
        listeners = []
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with contextlib.suppress(OSError):
                listeners.append(socket.create_server((address, 6000 + number), family=family, backlog=10))
        if listeners:
            return number, listeners
    raise OSError("no display is free")


def serve(listeners: t.Sequence[socket.socket], further: t.Callable[[], socket.socket]) -> None:
    """Carry every connection on, for ever.

    Args:
        listeners: where X clients, or the other half of this program, connect.
        further: makes the way on for one of them.
    """
    while True:
        ready, _w, _x = select.select(listeners, [], [])
        for listener in ready:
            client, _address = listener.accept()
            threading.Thread(target=_join, args=(client, further), daemon=True).start()


def _join(client: socket.socket, further: t.Callable[[], socket.socket]) -> None:
    try:
        server = further()
    except (OSError, ValueError) as error:
        os.write(2, f"qsub: display: {error}\n".encode())
        client.close()
        return
    with client, server:
        back = threading.Thread(target=_carry, args=(server, client), daemon=True)
        back.start()
        _carry(client, server)
        back.join()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qsub -I`: waits for the job, then is its terminal."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import termios
import threading
import tty
import typing as t

from ..shared import wire, x11
from ..shared.options import Site, no_server, site


def main(job: dict[str, t.Any], command: str, display: str = "") -> int:
    """Submit, wait, carry the terminal's bytes until the job ends; the status is 0, whatever the job's.

    Args:
        display: what X clients of the job are connected with (`-X`); "" for none.
    """
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        sys.stderr.write("qsub: standard input and output must be a terminal for interactive job submission\n")
        return 1
    here = site()
    name = f"{os.getuid()}.{secrets.token_hex(8)}"
    path = f"{wire.interactive_directory(here.sockets)}/{name}"
    job["interactive"] = {"socket": name, "command": command}
    listener = wire.listen(path, 0o600)
    try:
        return _submit(job, listener, display, here)
    finally:
        listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _submit(job: dict[str, t.Any], listener: socket.socket, display: str, here: Site) -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(wire.server_socket(here.sockets, here.host))
        connection.sendall(wire.encode({"op": "submit", "job": job}))
        answer = wire.receive(connection)
    except (FileNotFoundError, ConnectionError):
        no_server("qsub", here.server)
    if answer["code"]:
        sys.stderr.write(f"qsub: submit error ({answer['text']})\n")
        return int(answer["code"]) & 0xFF
    sys.stdout.write(f"qsub: waiting for job {answer['job']} to start\n")
    sys.stdout.flush()
    terminal = _wait(connection, listener)
    if terminal is not None:
        sys.stdout.write(f"qsub: job {answer['job']} ready\n\n")
        sys.stdout.flush()
        if display:
            # the job's end is the end of this process, and of the display with it
            threading.Thread(target=x11.serve, args=([listener], lambda: x11.reach(display)), daemon=True).start()
        _relay(terminal)
    sys.stdout.write(f"\nqsub: job {answer['job']} completed\n")
    return 0


def _wait(connection: socket.socket, listener: socket.socket) -> socket.socket | None:
    """The MOM's connection, or None when the server says that the job is over."""
    watched: list[socket.socket] = [listener, connection]
    while True:
        ready, _w, _x = select.select(watched, [], [])
        if listener in ready:
            terminal, _address = listener.accept()
            if wire.peer_uid(terminal) == 0:
                return terminal
            terminal.close()
        elif connection.recv(4096):
            return None
        else:
            watched.remove(connection)


def _relay(terminal: socket.socket) -> None:
    size = shutil.get_terminal_size()
    term = os.environ.get("TERM", "dumb")
    terminal.sendall(wire.encode({"term": term, "rows": size.lines, "columns": size.columns}))
    before = termios.tcgetattr(0)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    tty.setraw(0, termios.TCSADRAIN)
    watched: list[t.Any] = [terminal, 0]
    try:
        while True:
            ready, _w, _x = select.select(watched, [], [])
            if terminal in ready:
                data = terminal.recv(65536)
                if not data:
                    return
                os.write(1, data)
            if 0 in ready:
                typed = os.read(0, 65536)
                if not typed:
                    terminal.shutdown(socket.SHUT_WR)
                    watched.remove(0)
                else:
                    terminal.sendall(typed)
    except ConnectionError:
        return
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-shell on a terminal, as `qsub -I` starts it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import socket
import struct
import subprocess
import termios
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

if t.TYPE_CHECKING:
    from .conftest import JobPlace

PATIENCE_S = 120
XAUTH = shutil.which("xauth") or ""
COOKIE = "00112233445566778899aabbccddeeff"


class Terminal:
    """A job's shell on a terminal of its own, as `qsub -I` gives it one; the record is named by its parent."""

    def __init__(self, place: JobPlace, *arguments: str, more: t.Mapping[str, str] | None = None, **changes: t.Any):
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(self.master)
        termios.tcsetwinsize(slave, (33, 99))

        def ready(shell: ProcessId) -> None:
            place.make_ready(shell, **changes)

        extra = {"PBS_ENVIRONMENT": "PBS_INTERACTIVE", "TERM": "xterm", "SPECIAL": "it's\nthere", **(more or {})}
        self.process = place.start(arguments, extra=extra, ready=ready, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.seen = b""

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def until(self, pattern: bytes) -> re.Match[bytes]:
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 1)[0]:
                try:
                    self.seen += os.read(self.master, 4096)
                except OSError as error:  # the other side has closed it
                    raise AssertionError(self.seen) from error
        return found

    def end(self) -> int:
        drained = True
        while drained:
            try:
                drained = bool(os.read(self.master, 4096))
            except OSError:
                drained = False
        os.close(self.master)
        return self.process.wait(timeout=PATIENCE_S)


def test_interactive_session(job_place: JobPlace) -> None:
    terminal = Terminal(job_place)
    terminal.type(
        b'stty -echo; PS1=; tty; echo "<$SPECIAL>"; echo size $(stty size) $TERM $PBS_NP $0; echo end$((1+1))\n'
    )
    seen = terminal.until(rb"end2\r\n") and terminal.seen
    assert b"<it's\r\nthere>" in seen
    assert b"/dev/pts/" in seen
    assert re.search(rb"size 33 99 xterm 3 ", seen)
    terminal.type(b"sleep 1000\n")
    job_place.wait_until(lambda: bool(job_place.processes(b"sleep\x001000")))
    terminal.type(b"\x03")
    job_place.wait_until(lambda: not job_place.processes(b"sleep\x001000"))
    terminal.type(b"exit 44\n")
    assert terminal.end() == 44


def test_lost_guest_ends_the_session_and_gives_the_terminal_back(job_place: JobPlace) -> None:
    terminal = Terminal(job_place)
    terminal.type(b"echo up$((1+1)); sleep 1000\n")
    terminal.until(rb"up2\r\n")
    assert termios.tcgetattr(terminal.master)[3] != terminal.before[3]
    job_place.lose()
    terminal.until(rb"\r\nvtorque: guest v1-1 on node1 was lost: it crashed\r\n")
    assert termios.tcgetattr(terminal.master)[3] == terminal.before[3]
    assert terminal.end() == 69


@pytest.mark.parametrize("status", [0, 7, 255])
def test_interactive_command(job_place: JobPlace, status: int) -> None:
    """`qsub -I -x`: as `-c COMMAND`; 255 of the command is not taken for a broken connection."""
    terminal = Terminal(job_place, "-c", f"echo \"$SPECIAL\" 'a  b'; exit {status}")
    terminal.until(rb"it's\r\nthere a  b\r\n")
    assert terminal.end() == status


def test_interactive_record_is_the_parents(job_place: JobPlace) -> None:
    """The prologue's parent is the shell's parent then (recorded on TORQUE 6.1.3)."""
    path = job_place.write_script(b"")
    assert path.exists()
    script = f"import os, sys; sys.exit(os.spawnv(os.P_WAIT, {str(job_place.program)!r}, [{str(job_place.program)!r}]))"
    program, job_place.program = job_place.program, job_place.root / "parent"
    job_place.program.write_text(f"#!/usr/bin/python3\n{script}\n")
    job_place.program.chmod(0o755)
    try:
        terminal = Terminal(job_place)
        terminal.type(b"exit 45\n")
        assert terminal.end() == 45
    finally:
        job_place.program = program


def test_interactive_refusal(job_place: JobPlace) -> None:
    terminal = Terminal(job_place, user="bob")
    terminal.until(rb"vtorque: nothing was run: the record is for bob")
    assert terminal.end() == 1


def greeting(cookie: str) -> bytes:
    """What an X client says first: byte order, version 11.0, the name of its cookie and the cookie."""
    name = b"MIT-MAGIC-COOKIE-1"
    return struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), 16) + name + bytes(2) + bytes.fromhex(cookie)


def users_screen() -> tuple[socket.socket, int]:
    """What the MOM listens on for `qsub -X`, and the number of the display."""
    for number in range(50, 1000):
        screen = socket.socket()
        try:
            screen.bind(("127.0.0.1", 6000 + number))
        except OSError:
            screen.close()
            continue
        screen.listen()
        screen.settimeout(PATIENCE_S)
        return screen, number
    raise AssertionError("no display is free")


@pytest.mark.skipif(not XAUTH, reason="the node's side needs xauth")
def test_display_of_the_user_is_in_the_guest(job_place: JobPlace) -> None:
    """`qsub -I -X`: what an X client in the guest says arrives at the user's screen, with the real cookie."""
    job_place.of_the_guest("xauth.sh", job_place.root / "xauth")
    screen, number = users_screen()
    with screen:
        file = job_place.root / "home/.Xauthority"
        command = [XAUTH, "-q", "-f", str(file), "add", f"unix:{number}.0", "MIT-MAGIC-COOKIE-1", COOKIE]
        subprocess.run(command, check=True, timeout=60)
        os.chown(file, job_place.uid, job_place.uid)
        before = file.read_bytes()
        terminal = Terminal(job_place, more={"DISPLAY": f"localhost:{number}.0", "XAUTHORITY": "/elsewhere"})
        terminal.type(b'stty -echo; echo "<$DISPLAY> <$XAUTHORITY>"\n')
        there = terminal.until(rb"<localhost:([0-9]+)\.0> <(\S+)>")
        assert there[2].decode() == f"{job_place.root}/x11/authority"
        listed = subprocess.run([XAUTH, "-f", there[2], "list"], capture_output=True, check=True, timeout=60, text=True)
        found = re.fullmatch(r"\S+  MIT-MAGIC-COOKIE-1  ([0-9a-f]{32})\n", listed.stdout)
        assert found
        assert found[1] != COOKIE
        with socket.create_connection(("127.0.0.1", 6000 + int(there[1])), timeout=PATIENCE_S) as client:
            client.sendall(greeting(found[1]))
            seen, _address = screen.accept()
            with seen:
                seen.settimeout(PATIENCE_S)
                assert seen.recv(48, socket.MSG_WAITALL) == greeting(COOKIE)
        terminal.type(b"exit 46\n")
        assert terminal.end() == 46
        assert file.read_bytes() == before


def test_guest_without_xauth_is_told_in_one_line(job_place: JobPlace) -> None:
    terminal = Terminal(job_place, more={"DISPLAY": "localhost:50.0"})
    terminal.type(b'stty -echo; PS1=; echo "<$DISPLAY>"; exit 47\n')
    terminal.until(rb"vtorque: no display in the guest \(qsub -X\): its image has no xauth")
    terminal.until(rb"<>")
    assert b"X11 forwarding request failed" not in terminal.seen
    assert terminal.end() == 47


@pytest.mark.parametrize("display", ["", ":0", "localhost:10.0", "fe:50.0", "localhost:50", "localhost:50.0; x"])
def test_display_that_is_not_the_batch_systems_is_dropped(job_place: JobPlace, display: str) -> None:
    """With `-V` or `-v` it names a screen of the host where the job was submitted."""
    terminal = Terminal(job_place, more={"DISPLAY": display} if display else None)
    terminal.type(b'stty -echo; PS1=; echo "<$DISPLAY>"; exit 0\n')
    terminal.until(rb"<>")
    assert terminal.end() == 0
    assert b"no display" not in terminal.seen

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-shell on a terminal, as `qsub -I` starts it."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import ProcessId

if t.TYPE_CHECKING:
    from .conftest import JobPlace

PATIENCE_S = 120


class Terminal:
    """A job's shell on a terminal of its own, as `qsub -I` gives it one; the record is named by its parent."""

    def __init__(self, place: JobPlace, *arguments: str, **changes: t.Any):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (33, 99))

        def ready(shell: ProcessId) -> None:
            place.make_ready(shell, **changes)

        extra = {"PBS_ENVIRONMENT": "PBS_INTERACTIVE", "TERM": "xterm", "SPECIAL": "it's\nthere"}
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


def test_a_lost_guest_ends_the_session_and_gives_the_terminal_back(job_place: JobPlace) -> None:
    terminal = Terminal(job_place)
    before = termios.tcgetattr(terminal.master)
    terminal.type(b"echo up$((1+1)); sleep 1000\n")
    terminal.until(rb"up2\r\n")
    assert termios.tcgetattr(terminal.master)[3] != before[3]
    job_place.lose()
    terminal.until(rb"\r\nvtorque: guest v1-1 on node1 was lost: it crashed\r\n")
    assert termios.tcgetattr(terminal.master)[3] == before[3]
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

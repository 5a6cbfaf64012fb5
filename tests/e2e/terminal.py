# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user at a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from .conftest import CHECKOUT, LAB, Site


class Terminal:
    """A user's terminal on the front end with one command on it.

    Args:
        size: rows and columns.
    """

    def __init__(self, site: Site, *arguments: str, size: tuple[int, int] = (24, 80)) -> None:
        self.site = site
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = subprocess.Popen([*LAB, "on", "fe", "--user", "alice", "--", *arguments], cwd=CHECKOUT,
                                        env=site.environment, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)  # fmt: skip
        os.close(slave)
        self.seen = ""

    def expect(self, text: str, timeout_s: float = 900) -> None:
        """Read until the text was written; everything read is in `seen`."""
        end = time.monotonic() + timeout_s
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come; seen: {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    chunk = os.read(self.master, 65536)
                except OSError:
                    chunk = b""
                assert chunk, f"the terminal closed before {text!r}; seen: {self.seen!r}"
                self.seen += chunk.decode(errors="replace")

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self.master, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self.master, b"\x03")

    def close(self) -> int:
        """Read until the terminal closes, and return the command's exit status."""
        with contextlib.suppress(OSError):  # EIO: the other side of the terminal is gone
            while chunk := os.read(self.master, 65536):
                self.seen += chunk.decode(errors="replace")
        os.close(self.master)
        return self.process.wait(timeout=900)

    @property
    def job_id(self) -> str:
        """The job of the session."""
        found = re.search(self.site.batch.session_id, self.seen)
        assert found, self.seen
        return found[1]

    def end_session(self) -> int:
        """Read until the terminal closes, and return the session's exit status when its job is over."""
        status = self.close()
        facts = self.site.wait_state(self.job_id, "C")
        return status if self.site.batch.session_tells else int(facts["exit_status"])

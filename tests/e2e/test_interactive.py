# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interactive jobs: a terminal in rank 0."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import time

from .conftest import CHECKOUT, LAB, Site


class Terminal:
    """A user's terminal with one command on it."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([*LAB, *arguments], cwd=CHECKOUT, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)  # fmt: skip
        os.close(slave)
        self.seen = ""

    def expect(self, text: str, timeout_s: float = 180) -> None:
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

    def close(self) -> int:
        """Read until the terminal closes, and return the command's exit status."""
        with contextlib.suppress(OSError):  # EIO: the other side of the terminal is gone
            while chunk := os.read(self.master, 65536):
                self.seen += chunk.decode(errors="replace")
        os.close(self.master)
        return self.process.wait(timeout=60)


def test_interactive_session_is_in_the_guest(site: Site) -> None:
    """A prompt in the guest, a terminal there, and the session's exit status in the job's."""
    terminal = Terminal("on", "fe", "--user", "alice", "--", "vsub", "-I")
    terminal.expect("ready")
    terminal.type('echo "name=$(hostname) tty=$(tty | cut -c1-8)"')
    terminal.expect("tty=/dev/pts")
    assert "name=vcn" in terminal.seen
    terminal.type("exit 9")
    terminal.close()
    job_id = next(word for word in terminal.seen.split() if word.endswith(".fe"))
    assert site.wait_state(job_id, "C")["exit_status"] == "9"

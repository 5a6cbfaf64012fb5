# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the expected host key answers at an address: one ssh that logs in nowhere.

OpenSSH itself judges the key: it is asked to log in without any means to do so, and says whether it got as far as being
refused.  Nothing of the user's is touched by that.

Its words are believed, and a peer can put words of its own into them before it has proved any key: the text of a
disconnect is shown with its line ends (log.c of OpenSSH 8.0 to 10.5 lets them pass to standard error).  No message of
ssh's begins with a peer's words, though, before the key is proven.  So the refusal counts when standard error holds it
from its first byte on and nothing else; the last line alone can be a peer's.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import typing as t

from ...system.clock import Deadline
from ...system.process.environment import TOOL_ENVIRONMENT
from ...wire.ssh_options import GUEST_PROBE, option_arguments
from .console import plain

PROBE_USER = "vtorque-probe"
OUTPUT_LIMIT = 8192
"""Bytes of ssh's words that are kept: the first, for these are its own."""


def write_known_hosts(path: pathlib.Path, host_key: str) -> None:
    """The one key that may answer; ssh asks for it by an alias, so the file is good for every candidate."""
    kind, key = host_key.split()[:2]
    path.write_text(f"vtorque-guest {kind} {key}\n", encoding="ascii")


class SshProbe:
    """Find out whether the expected key answers at an address.

    Args:
        ssh: the program.
        known_hosts: a file of ours that holds the key that must answer (`write_known_hosts`).
        address: where.
        timeout_s: seconds for the connection.
    """

    def __init__(self, ssh: pathlib.Path, known_hosts: pathlib.Path, address: str, timeout_s: float) -> None:
        self.address = address
        self.deadline = Deadline.after(timeout_s + 1.0)
        options = (
            *GUEST_PROBE,
            f"UserKnownHostsFile={known_hosts}",
            "HostKeyAlias=vtorque-guest",
            f"ConnectTimeout={max(1, int(timeout_s))}",
        )
        argv = [str(ssh), "-F", "none", "-T", *option_arguments(options)]
        self.process = subprocess.Popen(
            [*argv, "-l", PROBE_USER, "--", address, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=TOOL_ENVIRONMENT,
        )
        self.received = b""
        os.set_blocking(self.fileno(), False)

    def fileno(self) -> int:
        """See `readiness.Probe`."""
        return t.cast("t.IO[bytes]", self.process.stderr).fileno()

    def answer(self) -> str | None:
        """See `readiness.Probe`; why it is not ready is ssh's message."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.fileno(), 4096):
                self.received = (self.received + data)[:OUTPUT_LIMIT]
            self.process.wait()  # it has closed its standard error: it is ending
        if self.process.poll() is None:
            if not self.deadline.passed:
                return None
            self.process.kill()
        self.end()
        banner = self.received.decode("utf-8", "replace")
        if self._refused(banner) or self.process.returncode == 0:
            return "right"
        if (
            "Host key verification failed" in banner
            or "HOST IDENTIFICATION HAS CHANGED" in banner
            or "no matching host key type" in banner
        ):
            return "wrong"
        lines = [plain(line) for line in banner.splitlines() if line.strip()]
        return "; ".join(lines)[:200] or f"ssh ended with status {self.process.returncode}"

    def _refused(self, output: str) -> bool:
        """Return whether ssh got as far as being refused, which is behind the proof of the key.

        The form is that of `userauth` (sshconnect2.c, the same in OpenSSH 7.9 to 10.5); a banner of the guest's sshd
        is not shown at this level of the log, and ssh looks at no key of root's that it could complain of.
        """
        refusal = rf"{PROBE_USER}@{re.escape(self.address)}: Permission denied \([^\r\n]*\)\."
        return re.fullmatch(refusal, output.rstrip("\r\n")) is not None

    def end(self) -> None:
        """See `readiness.Probe`."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        t.cast("t.IO[bytes]", self.process.stderr).close()

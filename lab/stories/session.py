# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command on a terminal of its own, into which one line is typed."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import time
import typing as t

AFTER = ("$ ", "# ")
"""How a shell's prompt ends: what is typed before it may be lost."""


def type_line(command: t.Sequence[str], ready: str, line: str, timeout_s: float) -> tuple[int, str]:
    """Run a command until it ends, and type a line at the first prompt after it is ready.

    Args:
        command: gets a terminal for its own, as salloc wants it.
        ready: what it shows before a prompt comes.
        line: what is typed.
        timeout_s: after it the command is ended.

    Returns:
        Its exit status, and all that the terminal showed.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    end, seen, is_typed = time.monotonic() + timeout_s, "", False
    try:
        with contextlib.suppress(OSError):  # EIO: nobody has the other side any more
            while select.select([master], [], [], max(0, end - time.monotonic()))[0]:
                chunk = os.read(master, 65536)
                if not chunk:
                    break
                seen += chunk.decode(errors="replace")
                if not is_typed and ready in seen and seen.partition(ready)[2].endswith(AFTER):
                    os.write(master, line.encode() + b"\n")
                    is_typed = True
    finally:
        os.close(master)  # a hangup for whoever is still at it
        if time.monotonic() > end:
            process.kill()
        status = process.wait(timeout=60)
    return status, seen

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes have written to TCP connections and the other end has not acknowledged yet, as /proc tells."""

from __future__ import annotations

import contextlib
import pathlib
import re
import typing as t

PROC = pathlib.Path("/proc")
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")
_ESTABLISHED = "01"


def unacknowledged_bytes(pids: t.Iterable[int]) -> int:
    """Return how many bytes that processes have written to open connections are not acknowledged yet.

    The kernel gives a connection up on which such bytes wait for a quarter of an hour (tcp(7): tcp_retries2).

    Args:
        pids: the processes; one that has ended has none.
    """
    return sum(map(_of_process, pids))


def _of_process(pid: int) -> int:
    process, inodes, found = PROC / str(pid), set(), 0
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if named := _SOCKET.fullmatch(str(descriptor.readlink())):
                    inodes.add(named[1])
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                # proc(5): the state, both queues in hexadecimal, and the inode of the socket
                fields = line.split()
                if fields[3] == _ESTABLISHED and fields[9] in inodes:
                    found += int(fields[4].partition(":")[0], 16)
    return found

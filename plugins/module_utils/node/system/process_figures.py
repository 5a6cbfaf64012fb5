# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest's process uses, by the kernel's files alone: they answer whatever the process does.

/proc/<pid>/stat                        processor time of all threads, those that have ended too
/proc/<pid>/status                      memory, now and at most
/proc/<pid>/task/<tid>/schedstat        how long a thread was ready and had no processor (proc(5), sched-stats.rst)
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re

from ...frozen import frozen

PROC = pathlib.Path("/proc")
PID_FILES = pathlib.Path("/run/libvirt/qemu")
"""Where libvirt writes the processes of its domains."""
_VCPU = re.compile(rb"(CPU [0-9]{1,5}|ALL CPUs)/(KVM|TCG)")
"""As qemu calls its threads where libvirt starts it (debug-threads=on)."""
_TICKS_S = os.sysconf("SC_CLK_TCK")


@frozen
class ProcessFigures:
    """What a guest's process has used so far.

    Attributes:
        cpu_s: processor time, in seconds.
        wait_s: seconds in which its vCPUs were ready and waited for a processor of the node, all of them together;
            None: the kernel keeps no such figures, or its threads have no names.
        memory_bytes: that it has now.
        peak_bytes: the most that it has had.
    """

    cpu_s: float
    wait_s: float | None
    memory_bytes: int
    peak_bytes: int


def read_pid(guest: str, pid_files: pathlib.Path = PID_FILES) -> int | None:
    """Return the number of a guest's process; None: libvirt has written none."""
    try:
        return int((pid_files / f"{guest}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def read_figures(pid: int, proc: pathlib.Path = PROC) -> ProcessFigures | None:
    """Read what a process has used; None: it has ended.

    Args:
        pid: its number.
        proc: where the kernel shows it.
    """
    place = proc / str(pid)
    try:
        # the name, which may hold anything, stands in brackets
        fields = (place / "stat").read_bytes().rpartition(b")")[2].split()
        status = (place / "status").read_bytes()
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_S
    except (OSError, IndexError, ValueError):
        return None
    sizes = {key: int(found[1]) * 1024 if (found := _size(key, status)) else 0 for key in (b"VmRSS", b"VmHWM")}
    return ProcessFigures(cpu_s, _waited(place), sizes[b"VmRSS"], sizes[b"VmHWM"])


def _size(key: bytes, status: bytes) -> re.Match[bytes] | None:
    return re.search(rb"^" + key + rb":\s+([0-9]+) kB$", status, re.MULTILINE)


def _waited(place: pathlib.Path) -> float | None:
    found = []
    with contextlib.suppress(OSError):
        for task in (place / "task").iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it ended meanwhile
                if _VCPU.fullmatch((task / "comm").read_bytes().strip()):
                    found.append(int((task / "schedstat").read_bytes().split()[1]))
    return sum(found) / 1e9 if found else None

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of a process: its number, its start time and the boot."""

from __future__ import annotations

import pathlib

from ...effects import leaves_nothing
from ...frozen import frozen


@frozen
@leaves_nothing
class ProcessId:
    """A process that cannot be mistaken for a later one of the same number.

    Attributes:
        pid: process id.
        start_ticks: its start time in clock ticks since boot (field 22 of /proc/PID/stat).
    """

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}.{self.start_ticks}"

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Raises FileNotFoundError when there is no such process."""
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # the command's name may hold blanks and parentheses: count from the last one
        return cls(pid, int(text.rpartition(")")[2].split()[19]))


@leaves_nothing
def boot_id() -> str:
    """The kernel's name for this boot; a record of another boot speaks of nothing that lives."""
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

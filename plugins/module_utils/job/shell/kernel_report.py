# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What OSv's kernel reports of a program's end, for an image without our launcher.

With `--verbose` it prints `program NAME returned N` by itself when main has returned anything but 0 (core/app.cc,
run_main); of a 0 it says nothing, and nothing of what `exit()` was called with, which ends the guest.
"""

from __future__ import annotations

import re

VERBOSE = "--verbose"
_NUMBER = re.compile(rb"-?[0-9]{1,10}")
_LONGEST = 11


def is_verbose(command_line: str) -> bool:
    """Return whether a kernel reports statuses.

    Args:
        command_line: as OSv has it: options first, in which a backslash stands before a blank that does not end one.
    """
    for word in re.findall(r"(?:\\.|[^\\\s])+", command_line):
        if not word.startswith("-"):
            return False
        if word == VERBOSE:
            return True
    return False


class KernelReport:
    """Takes the kernel's report out of what the job prints.

    Args:
        program: its path, as it was started.
    """

    def __init__(self, program: str) -> None:
        self._mark = f"program {program} returned ".encode()
        self._held = b""
        self.status: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Return what of this is the job's own; all that can be known is returned at once."""
        data = self._held + data
        own = []
        while True:
            before, mark, rest = data.partition(self._mark)
            if not mark:
                lengths = range(min(len(self._mark) - 1, len(data)), 0, -1)
                keep = next((n for n in lengths if data.endswith(self._mark[:n])), 0)
                own.append(data[: len(data) - keep])
                self._held = data[len(data) - keep :]
                return b"".join(own)
            line, newline, after = rest.partition(b"\n")
            own.append(before)
            if not newline and len(line) <= _LONGEST:
                self._held = mark + line
                return b"".join(own)
            if newline and _NUMBER.fullmatch(line):
                self.status = int(line) & 0xFF
                data = after
            else:
                own.append(mark)
                data = rest

    def rest(self) -> bytes:
        """Return what was held back when the stream ended."""
        held, self._held = self._held, b""
        return held

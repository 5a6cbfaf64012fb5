# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a node, as root: the greatest memory that each program of ours ever had there, until standard input ends.

Says `true` when it looks.  When it has been told to end: a JSON list of [began, program, MiB], one for each process.
Began is in seconds since the epoch; a process's greatest memory is the kernel's own figure (VmHWM), read often.
"""

from __future__ import annotations

import json
import pathlib
import re
import select
import sys
import time

PERIOD_S = 0.2
PROGRAM = re.compile(rb"mikelangelo\.vtorque\.plugins\.plugin_utils\.cli\.((?:hook\0)?[a-z_.]+)")


def look(seen: dict[tuple[int, bytes], tuple[float, str, float]]) -> None:
    """Add every process of ours that there is, with the most memory that it has had so far."""
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line, status = (place / "cmdline").read_bytes(), (place / "status").read_bytes()
            began = (place / "stat").read_bytes().rpartition(b")")[2].split()[19]
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        program, peak = PROGRAM.search(line), re.search(rb"VmHWM:\s+([0-9]+) kB", status)
        if program and peak:
            key = (int(place.name), began)
            first = seen[key][0] if key in seen else time.time()
            seen[key] = (first, program[1].replace(b"\0", b" ").decode(), int(peak[1]) / 1024)


def main() -> None:
    """Look until the end of standard input."""
    seen: dict[tuple[int, bytes], tuple[float, str, float]] = {}
    print("true", flush=True)
    while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
        look(seen)
    json.dump([*seen.values()], sys.stdout)


if __name__ == "__main__":
    main()

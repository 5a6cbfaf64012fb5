# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: the greatest memory of all that a job makes run there, until standard input ends.

Counted is the proportional share (PSS: memory that several processes share counts once, in parts) of every process that
was not there before and is no copy of one that was (the MOM's own children), without the hypervisor and its guest.

Says `true` when it is watching, then {"peak_mib", "programs": {name: MiB at that moment}}.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import select
import sys

PERIOD_S = 0.03
"""Looking costs time itself: a job that is watched is not measured otherwise."""
PROC = pathlib.Path("/proc")
HYPERVISOR = ("qemu", "libvirtd", "virtqemud", "virtlogd", "virtlockd", "swtpm", "dnsmasq")


def command_lines() -> dict[int, bytes]:
    """Every process that is a program, by its number."""
    found = {}
    for entry in os.scandir(PROC):
        if entry.name.isdigit():
            try:
                line = (PROC / entry.name / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            if line:
                found[int(entry.name)] = line
    return found


def pss_kib(pid: int) -> int:
    """A process's share of memory; 0 when it is gone."""
    try:
        found = re.search(rb"^Pss: +([0-9]+) kB", (PROC / str(pid) / "smaps_rollup").read_bytes(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def name_of(line: bytes) -> str:
    """A short name for a command line: a Python module by its last part, anything else by its program."""
    fields = line.decode(errors="replace").split("\0")
    program = fields[0].rpartition("/")[2]
    if program.startswith("python") and "-m" in fields[:-1]:
        return fields[fields.index("-m") + 1].rpartition(".")[2]
    return program


def look(before: dict[int, bytes]) -> dict[str, float]:
    """The memory of every program of the job, in MiB."""
    known = set(before.values())
    found: dict[str, float] = {}
    for pid, line in command_lines().items():
        name = name_of(line)
        if pid not in before and line not in known and not name.startswith(HYPERVISOR):
            found[name] = found.get(name, 0.0) + pss_kib(pid) / 1024
    return found


def main() -> None:
    """Look until the end of standard input."""
    before = command_lines()
    print("true", flush=True)
    peak: dict[str, float] = {}
    while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
        now = look(before)
        if sum(now.values()) > sum(peak.values()):
            peak = now
    print(json.dumps({"peak_mib": sum(peak.values()), "programs": peak}), flush=True)


if __name__ == "__main__":
    main()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a mother superior, as root: see the next job become ready, and what its prologue cost.

ready_watch [false]     without the processor time (`cpu_s`), which only Torque's hooks tell

Says `true` when it is watching, then {"job", "ready", "cpu_s"}: when the ready record was written, in seconds since
the epoch; and the processor time of the prologue: of its process, of all that it waited for, directly or not
(ansible-playbook, ssh, vtorque-node), and of the worker that stays with the guests.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import sys
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LOOK_S = 0.02
READY = "ready.json"
PROC = pathlib.Path("/proc")


def fields_of(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on, [] when the process is gone."""
    try:
        # the command's name may hold blanks and parentheses: count from the last one
        return (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def own_s(fields: list[str]) -> float:
    """Processor time of a process: user and system (proc(5), fields 14 and 15)."""
    return sum(map(int, fields[11:13])) * TICK_S


def waited_s(fields: list[str]) -> float:
    """Processor time of all that it waited for (fields 16 and 17)."""
    return sum(map(int, fields[13:15])) * TICK_S


def workers() -> dict[int, list[str]]:
    """The workers that stay with guests: sessions of their own, of `vtorque-node`."""
    found = {}
    for entry in os.scandir(PROC):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (PROC / entry.name / "cmdline").read_bytes()
                fields = fields_of(int(entry.name))
                if b".vtorque_node" in line and fields and fields[3] == entry.name:
                    found[int(entry.name)] = fields
    return found


def wait_ready(watcher: t.Any, jobs: pathlib.Path) -> pathlib.Path:
    """The ready record of the next start; says `true` when none can be missed any more."""
    import inotify_simple

    flags = inotify_simple.flags
    places = {watcher.add_watch(str(jobs), flags.CREATE): jobs}
    print("true", flush=True)
    while True:
        for event in watcher.read():
            path = places[event.wd] / event.name
            if event.mask & flags.ISDIR:
                places[watcher.add_watch(str(path), flags.CREATE | flags.MOVED_TO)] = path
            elif event.name == READY:
                return path


def prologue_s(shell: int) -> float:
    """What the process that becomes the job's shell has waited for: the prologue, as soon as it is over.

    Raises:
        SystemExit: the process has ended.
    """
    while fields := fields_of(shell):
        if spent := waited_s(fields):
            return spent
        select.select([], [], [], LOOK_S)
    raise SystemExit(f"process {shell} ended before its prologue")


def main() -> None:
    """See one job."""
    import inotify_simple

    former = set(workers())
    with contextlib.closing(inotify_simple.INotify()) as watcher:
        jobs = layout.RUN_DIR / "jobs"
        files.make_directory(jobs)
        path = wait_ready(watcher, jobs)
    record = files.read_json(path)
    seen = {"job": record["job_id"], "ready": path.stat().st_mtime}
    if not sys.argv[1:]:
        cpu_s = prologue_s(record["shell"]["pid"])
        cpu_s += sum(own_s(fields) + waited_s(fields) for pid, fields in workers().items() if pid not in former)
        seen["cpu_s"] = cpu_s
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()

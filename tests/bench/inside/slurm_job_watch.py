# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node of Slurm, as root: see the next batch job from its first line to its end.

slurm_job_watch DIRECTORY     where the job writes `slurm-N.out`

Says `true` when it is watching, then {"job", "first_line", "over", "record"}: seconds since the epoch at which the
script's first output reached its file, and at which the controller had heard that the Epilog is over.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files

OUT = re.compile(r"slurm-([0-9]+)\.out")
AT_WORK = frozenset({"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"})
CLUSTER = "lab"
LOOK_S = 0.02


def first_line(directory: pathlib.Path, watcher: t.Any) -> tuple[str, float]:
    """Return a job's number when its first line was written, and when that was."""
    while True:
        for event in watcher.read():
            with contextlib.suppress(FileNotFoundError):
                facts = (directory / event.name).stat()
                if (found := OUT.fullmatch(event.name)) and facts.st_size:
                    return found.group(1), facts.st_mtime_ns / 1e9


def await_end(number: str) -> float:
    """Return when the job was over."""
    line = ["squeue", "-h", "-t", "all", "-j", number, "-o", "%T"]
    while True:
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
        if done.stdout.strip() not in AT_WORK:
            return time.time()
        time.sleep(LOOK_S)


def record_of(job_id: str) -> dict[str, t.Any]:
    """Return what the job left, of its newest start."""
    directory = layout.STATE_DIR / "records"
    starts = layout.starts_of(job_id, directory)
    return files.read_json(directory / layout.job_key(job_id, starts[-1]) / "record.json") if starts else {}


def main() -> None:
    """See one job."""
    import inotify_simple

    directory = pathlib.Path(json.loads(sys.argv[1]))
    with contextlib.closing(inotify_simple.INotify()) as watcher:
        watcher.add_watch(str(directory), inotify_simple.flags.MODIFY)
        print("true", flush=True)
        number, first = first_line(directory, watcher)
    seen = {"job": number, "first_line": first, "over": await_end(number)}
    print(json.dumps({**seen, "record": record_of(f"{number}.{CLUSTER}")}), flush=True)


if __name__ == "__main__":
    main()

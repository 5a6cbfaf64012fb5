# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: see the next batch job from its first line to its end.

Says `true` when it is watching, then {"job", "first_line", "over", "record"}: seconds since the epoch at which the
script's first output reached the MOM's spool, and at which the MOM had its epilogue back and took the file away.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import time
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files

OUT = ".OU"


def watch(spool: pathlib.Path, watcher: t.Any) -> tuple[str, float | None, float]:
    """Until the job is over.

    Returns:
        Its id; when its first line was written, None when none was; when it was over.
    """
    import inotify_simple

    first: float | None = None
    while True:
        for event in watcher.read():
            if not event.name.endswith(OUT):
                continue
            if event.mask & inotify_simple.flags.DELETE:
                return event.name.removesuffix(OUT), first, time.time()
            with contextlib.suppress(FileNotFoundError):
                facts = (spool / event.name).stat()
                if first is None and facts.st_size:
                    first = facts.st_mtime_ns / 1e9


def record_of(job_id: str) -> dict[str, t.Any]:
    """What the job left, of its newest start."""
    directory = layout.STATE_DIR / "records"
    starts = layout.starts_of(job_id, directory)
    if not starts:
        return {}
    return files.read_json(directory / layout.job_key(job_id, starts[-1]) / "record.json")


def main() -> None:
    """See one job."""
    import inotify_simple

    spool = pathlib.Path(policy_file.load().torque_home) / "spool"
    with contextlib.closing(inotify_simple.INotify()) as watcher:
        watcher.add_watch(str(spool), inotify_simple.flags.MODIFY | inotify_simple.flags.DELETE)
        print("true", flush=True)
        job_id, first, over = watch(spool, watcher)
    print(json.dumps({"job": job_id, "first_line": first, "over": over, "record": record_of(job_id)}), flush=True)


if __name__ == "__main__":
    main()

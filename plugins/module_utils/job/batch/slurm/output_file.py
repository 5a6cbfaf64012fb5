# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output file of a batch job that did not run: what its owner would look for there is appended by the owner.

Whatever the path leads to, only the owner's rights touch it: the process that opens it has given up root's for good.
"""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

from ....system import supervised
from ..shared import owner_process

if t.TYPE_CHECKING:
    from ..api import BatchJob

WRITE_S = 3.0
"""Seconds for a file server to take a few lines."""
MOST_BYTES = 4096
PATH_BYTES = 4096
NOTIFIED = 400
"""Characters that a terminal is told."""
SHELL, DD = "/bin/sh", "/bin/dd"
PRIVATE = 'umask 077 && exec "$@"'
"""The owner's own umask is not known here; the lines are theirs alone."""
DEFAULT, OF_ARRAY = "slurm-%j.out", "slurm-%A_%a.out"


def path_of(form: t.Mapping[str, t.Any], number: str) -> str:
    """Return the output file of a job by what `squeue --json` says of it; "": it is none, or not known exactly.

    Args:
        form: of the job.
        number: of the job.
    """
    member = form["array_task_id"]
    directory, name = form["current_working_directory"], form["standard_output"]
    if not form["batch_flag"] or not directory.startswith("/"):
        return ""
    known: dict[str, str] = {
        "%%": "%",
        "%j": number,
        "%J": number,
        "%u": form["user_name"],
        "%x": form["name"],
        "%A": number,
    }
    if member is not None:
        known |= {"%A": str(form["array_job_id"]), "%a": str(member)}
    name = name or (DEFAULT if member is None else OF_ARRAY)
    parts = re.split(r"(%.)", name)
    if any(part.startswith("%") and part not in known for part in parts):
        return ""  # of a node, a step or a task
    found = "".join(known.get(part) or part for part in parts)
    path = found if found.startswith("/") else f"{directory}/{found}"
    return path if "\0" not in path and len(os.fsencode(path)) < PATH_BYTES else ""


def one_line(lines: t.Sequence[str]) -> str:
    """Return lines for a terminal as one."""
    return " ".join(" ".join(lines).split())[:NOTIFIED]


def append(job: BatchJob, path: str, lines: t.Sequence[str], *, timeout_s: float) -> bool:
    """Append lines to a file as a job's owner.

    Args:
        job: whose owner it is.
        path: of the file; "": it is not known, and nothing is written.
        lines: printable.
        timeout_s: seconds, of which it takes a few at most.

    Returns:
        Whether they were written.
    """
    owner = owner_process.become_owner(job.euser, job.egroup) if path else None
    if owner is None:
        return False
    # a pipe without a reader is not waited for, and what is there is not truncated
    command = (
        *owner,
        SHELL,
        "-c",
        PRIVATE,
        "sh",
        DD,
        f"of={path}",
        "oflag=append,nonblock",
        "conv=notrunc",
        "status=none",
    )
    data = "".join(f"{line}\n" for line in lines).encode(errors="replace")[:MOST_BYTES]
    with pathlib.Path(os.devnull).open("wb") as nowhere:
        try:
            return supervised.run(command, timeout_s=min(timeout_s, WRITE_S), log=nowhere, stdin=data)[0] == 0
        except OSError:
            return False

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

from ....system.process import supervised
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
NO_MEMBER = 0xFFFFFFFE
"""What `%a` is where a job is in no array (NO_VAL)."""


def path_of(form: t.Mapping[str, t.Any], number: str) -> str:
    """Return the output file of a job by what Slurm says of it; "": it is none, or not known exactly.

    What stands for what in its name was seen on 22.05.8: a letter that Slurm does not know is left as it is, a number
    has at least as many digits as are asked for, and a name with a backslash is taken without any and as it is.

    Args:
        form: of the job.
        number: of the job.
    """
    member = form["array_task_id"]
    directory, name = form["current_working_directory"], form["standard_output"]
    if not form["batch_flag"] or not directory.startswith("/"):
        return ""
    array = number if member is None else str(form["array_job_id"])
    numbers = {"j": number, "J": number, "A": array, "a": str(NO_MEMBER if member is None else member)}
    known: dict[str, str] = {
        **dict.fromkeys("nt", "0"),  # the script runs on the job's first node, as its first task
        **numbers,
        "%": "%",
        "u": form["user_name"],
        "x": form["name"],
        "N": form["batch_host"],
        "s": "batch",
    }
    name = name or (DEFAULT if member is None else OF_ARRAY)
    found = []
    for text, width, letter in re.findall(r"([^%]+|%(?=[^%A-Za-z0-9]|$))|%([0-9]*)([A-Za-z%])", name):
        if text or letter not in known:
            found.append(text or f"%{width}{letter}")
        elif not known[letter] or len(width) > 1 + width.startswith("0") or (width and not known[letter].isdecimal()):
            return ""  # not seen
        else:
            found.append(known[letter].rjust(int(width or 0), "0"))
    name = name.replace("\\", "") if "\\" in name else "".join(found)
    path = name if name.startswith("/") else f"{directory}/{name}"
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

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths and names of what one start of a job leaves in /run and /var/lib."""

from __future__ import annotations

import enum
import pathlib
import re

from ..effects import leaves_nothing
from ..errors import VTorqueError
from ..wire.messages import JOB_ID

RUN_DIR = pathlib.Path("/run/vtorque")
"""What is true until the next boot at the latest."""
STATE_DIR = pathlib.Path("/var/lib/vtorque")
"""Guests, slots, copies of images, and the records of jobs."""
CONSOLE = "console"
"""In the run directory of a start in OSv: the way to the console of its guest."""
CONSOLE_END = ".console.log"
"""Beside a record, behind a guest's name: the end of what it wrote on its console."""

RECORD, LOG = "record.json", "vtorque.log"
"""In the directory of a record: what outlives the job, and what vTorque did for it."""
USED, ALONE, SUPERIOR = "used.json", "alone.json", "superior.json"
"""There, too, on each node: what its guests used, whether the job had it for itself, and who led the start."""
IO_CORES = "io-cores.json"
MOVED = "moved.json"
"""There, too, on each node: how many cores virtual I/O used, and since when (`node/io_cores/changes.py`)."""
SAMPLES, SERIES = "samples.jsonl", "series.json"
"""There, too: what each node measured of its guests, and where the job was led what all nodes handed over of that."""

RUNNING = "running"
"""Beside the records, on the front end: how jobs stand that run (`job/records/transfer/running.py`)."""

# in the run directory of a start
JOB = "job.json"
"""The batch server's word on the job, of when the start began; root's alone, with all that the submitter wrote."""
INVENTORY = "job.pbs_nodefile.yml"
PLAN = "plan.json"
"""Root's alone, for it holds the keys."""
ASKED = "asked.json"
"""What was asked of this node before the playbook."""
READY, JOB_KEY, KNOWN_HOSTS = "ready.json", "job_key", "known_hosts"
SHELL_FILES = (READY, JOB_KEY, KNOWN_HOSTS)
"""What lets the job's shell run the job."""
REFUSAL, VERDICT, ERROR, LOST = "refusal.json", "verdict.json", "error.json", "lost.json"
PARKED = "parked"
"""There once the guests of a start are in a checkpoint in which its job is to rest."""
EARLY = "early.json"
"""The token of the ssh that was begun before the job's shell."""


class StepFile(enum.StrEnum):
    """What the steps of a job's playbooks leave in the run directory: a file for each node, or for each phase."""

    GUESTS = "guests"
    BARE = "bare"
    PHASE = "phase"
    UPDATES = "updates"
    USED = "used"
    SERIES = "series"
    CONSOLES = "consoles"
    MOVES = "moves"
    ERROR = "error"
    REPLACED = "replaced"
    """Of a node that failed, and whose place a spare node of the job has taken."""

    def of(self, name: str) -> str:
        """Return the name of the file of a node or a phase."""
        return f"{self}.{name}.json"

    @property
    def pattern(self) -> str:
        """The names of all files of this kind, for `glob`."""
        return self.of("*")

    def name_of(self, file: str) -> str:
        """Return the node or phase that a file of this kind is of."""
        return file.removeprefix(f"{self}.").removesuffix(".json")


@leaves_nothing
def job_key(job_id: str, start: int) -> str:
    """The name under which everything of one start of a job is kept: `4711.head.1`, `72-1.head.1`.

    Array members are spelled as Torque spells their script files, without brackets (torque.md).

    Args:
        job_id: as the batch system names it.
        start: Torque's start_count.

    Returns:
        A name without `/` and brackets.

    Raises:
        VTorqueError: `job_id` is not of the form of a job id.
    """
    if not re.fullmatch(JOB_ID, job_id) or ".." in job_id:
        raise VTorqueError(f"job id {job_id[:80]!r}", "not of the form number.server or number[index].server")
    return f"{job_id.replace('[', '-').replace(']', '')}.{int(start)}"


_KEY = re.compile(r"([0-9]+)(?:-([0-9]+))?\.(.+)\.([0-9]+)")


@leaves_nothing
def start_of(key: str) -> tuple[str, int] | None:
    """Job id and start that a key was made of (`job_key`).

    Args:
        key: the name of a directory.

    Returns:
        None: it is no such name.
    """
    found = _KEY.fullmatch(key)
    if not found:
        return None
    member = f"[{found[2]}]" if found[2] else ""
    return f"{found[1]}{member}.{found[3]}", int(found[4])


@leaves_nothing
def run_directory(job_id: str, start: int, run_dir: pathlib.Path = RUN_DIR) -> pathlib.Path:
    """Where root keeps what is true of a running job on its mother superior.

    Args:
        job_id: the job.
        start: Torque's start_count.
        run_dir: root's directory of what is true while jobs run.

    Returns:
        Its path; nothing is made.

    Raises:
        VTorqueError: `job_id` is not of the form of a job id.
    """
    return run_dir / "jobs" / job_key(job_id, start)


@leaves_nothing
def starts_of(job_id: str, directory: pathlib.Path) -> tuple[int, ...]:
    """The starts of a job of which a directory (of runs, guests or records) holds something, in order.

    Args:
        job_id: the job.
        directory: holds one directory a start.

    Returns:
        Numbers of starts.
    """
    spelled = re.escape(job_key(job_id, 0).removesuffix("0"))
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return tuple(sorted(int(m[1]) for name in names if (m := re.fullmatch(spelled + r"([0-9]{1,10})", name))))

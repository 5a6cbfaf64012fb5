# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a MOM that is started again does with the jobs of the one before it (catch_child.c, init_abort_jobs, of 6.1.3).

With `-p`, Torque's own default, jobs go on: the new MOM looks for the end of their sessions, and since it is not their
parent takes 0 for their exit status (mom_mach.c, scan_non_child_tasks: "actually unknown").  Without it, here, nothing
of them stays, and the server queues them again.
"""

from __future__ import annotations

import json
import typing as t

from ..shared import wire
from ..shared.job import Job
from ..shared.log import Log
from . import hooks
from .sister import NodeDaemon
from .superior import Superior


class RestartedDaemon(NodeDaemon, t.Protocol):
    """What a MOM offers to what takes up the jobs of the one before it."""

    superiors: dict[str, Superior]
    helped: dict[str, Job]
    log: Log

    def over(self, superior: Superior, obituary: wire.Message) -> None:
        """Hear that a job which this node led has ended."""

    def remove_cgroups_but(self, going_on: set[str]) -> None:
        """Remove the cgroups that an earlier MOM made."""


def go_on(mom: RestartedDaemon) -> None:
    """Take up the jobs whose session lives, as their mother superior, and those that this node helps with."""
    for path in sorted(mom.files.stored.glob("*.json")):
        job = Job.from_json(json.loads(path.read_text()))
        if job.names[0] != mom.host:
            mom.helped[job.id] = job
            continue
        session = living_session(mom, job)
        if session:
            mom.superiors[job.id] = Superior(mom, job, mom.over)
            mom.superiors[job.id].go_on(session)
            mom.log.write("Job", job.id, "attempting to recover job in state RUNNING")


def living_session(mom: RestartedDaemon, job: Job) -> int:
    """The session that the task file of a job names, while the process that leads it is the same; else 0."""
    task = mom.files.of(job, "TK")
    if not task.exists():
        return 0
    session, began = task.read_text().split()
    return int(session) if hooks.process_fields(int(session))[19:20] == [began] else 0


def clear(mom: RestartedDaemon) -> None:
    """Kill the sessions and drop the files of jobs that do not go on."""
    going_on = {job.hashname for job in (*mom.helped.values(), *(one.job for one in mom.superiors.values()))}
    ids = {*mom.helped, *mom.superiors}
    for task in mom.files.jobs.glob("*.TK"):
        session, began = task.read_text().split()
        if task.stem not in going_on and hooks.process_fields(int(session))[19:20] == [began]:
            hooks.kill_session(int(session))
    for left in (*mom.files.jobs.iterdir(), *mom.files.stored.iterdir()):
        if left.suffix in (".JB", ".SC", ".TK", ".json") and left.stem not in going_on:
            left.unlink()
    for left in (mom.files.home / "aux").iterdir():
        if left.name not in ids:
            left.unlink()
    mom.remove_cgroups_but(ids)

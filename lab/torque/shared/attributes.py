# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shown of a job, to whom, in the recorded order of attributes."""

from __future__ import annotations

import time
import typing as t

from . import resources
from .job import COMPLETE, HELD, RUNNING, SUSPENDED, Job
from .show import Attribute

MANAGER_ONLY = frozenset({"substate", "hashname", "queue_rank", "forward_x11"})


def escape_variable(value: str) -> str:
    """A value of Variable_List: commas, quotes and backslashes are escaped."""
    for character in "\\,\"'":
        value = value.replace(character, "\\" + character)
    return value


def job_attributes(job: Job, is_owner: bool, is_manager: bool) -> list[Attribute]:
    """All that this viewer may see of a job."""
    printed = [*_head(job), *_middle(job), *_tail(job)]
    result = []
    for name, value in printed:
        if name in MANAGER_ONLY and not is_manager:
            continue
        if name == "Variable_List" and not (is_manager or is_owner):
            continue
        if isinstance(value, dict):
            hidden = () if is_manager else ("neednodes",)
            result += [(name, resource, text) for resource, text in value.items() if resource not in hidden]
        elif value not in ("", None):
            result.append((name, "", str(value)))
    return result


def account(kind: str, job: Job) -> str:
    """The text of a line of the accounts, in the order of Torque 6 (acct_job, account_jobend)."""
    entries = [("user", job.user), ("group", job.group)]
    entries += [("account", job.account)] if job.account else []
    entries += [("jobname", job.name), ("queue", job.queue)]
    times = {"ctime": job.ctime, "qtime": job.qtime, "etime": job.etime, "start": int(job.started)}
    entries += [(name, str(value)) for name, value in times.items()]
    entries += [("owner", job.owner), ("exec_host", job.exec_host)]
    entries += [(f"Resource_List.{name}", value) for name, value in job.resources.items()]
    if kind == "E":
        ended = {"session": job.session_id, "end": job.comp_time, "Exit_status": job.exit_status}
        entries += [(name, str(value)) for name, value in ended.items()]
        entries += [(f"resources_used.{name}", value) for name, value in job.used.items()]
    return "".join(f"{name}={value} " for name, value in entries)


Shown = t.Iterator[tuple[str, t.Any]]


def _head(job: Job) -> Shown:
    yield "Job_Name", job.name
    yield "Job_Owner", job.owner
    yield "resources_used", job.used
    yield "job_state", job.state
    yield "queue", job.queue
    yield "server", job.server
    yield "Account_Name", job.account
    yield "Checkpoint", "u"
    yield "ctime", job.ctime
    yield "Error_Path", job.error_path
    yield "exec_host", job.exec_host
    yield "group_list", job.group_list
    if job.index is None or job.holds:
        yield "Hold_Types", job.holds or "n"
    if job.interactive is not None:
        yield "interactive", "True"
    yield "Join_Path", job.join
    yield "Keep_Files", job.keep
    yield "Mail_Points", job.mail_points
    yield "Mail_Users", job.mail_users
    yield "mtime", job.mtime
    yield "Output_Path", job.output_path


def _middle(job: Job) -> Shown:
    yield "Priority", job.priority
    yield "qtime", job.qtime or None
    yield "Rerunable", "True" if job.rerunable else "False"
    yield "Resource_List", job.resources
    if job.start_count:
        yield "session_id", job.session_id
    yield "Shell_Path_List", job.shell
    yield "substate", job.substate
    yield "Variable_List", ",".join(f"{name}={escape_variable(value)}" for name, value in job.variables.items())
    yield "euser", job.user
    yield "egroup", job.group
    if job.start_count:
        yield "hashname", job.hashname
    yield "queue_rank", job.rank
    yield "queue_type", "E"
    yield "comment", job.comment
    yield "etime", job.etime or None
    yield "exit_status", job.exit_status


def _tail(job: Job) -> Shown:
    yield "forward_x11", job.forward_x11
    yield "submit_args", job.submit_args
    yield "job_array_id", job.index
    yield "job_array_request", job.array
    if job.umask is not None:
        yield "umask", f"{job.umask:o}"
    if job.start_count:
        yield "start_time", int(job.started)
        if job.state in (RUNNING, SUSPENDED):
            limit = resources.parse_time(job.resources["walltime"])
            yield "Walltime", {"Remaining": str(limit - int(time.time() - job.started))}
        yield "start_count", job.start_count
    yield "fault_tolerant", "False"
    yield "comp_time", job.comp_time or None
    yield "jobtype", job.jobtype
    if job.exclusive:
        yield "node_exclusive", "True"
    yield "job_radix", 0
    if job.state == COMPLETE and job.start_count:
        yield "total_runtime", f"{job.run_seconds:.6f}"
    yield "submit_host", job.submit_host
    yield "init_work_dir", job.init_work_dir
    yield "job_arguments", job.arguments
    yield "request_version", 1
    yield "x", job.x


def state_name(job: Job) -> str:
    """The letter of a waiting job: H when anything holds it."""
    return HELD if job.holds else "Q"

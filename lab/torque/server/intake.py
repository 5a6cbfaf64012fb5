# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a submission becomes a job, or an array of jobs."""

from __future__ import annotations

import grp
import os
import pwd
import time
import typing as t

from ..shared import attributes, resources, wire
from ..shared.errors import BAD_GROUP, BAD_USER, BAD_VALUE, OVER_LIMIT, UNDEFINED_ATTRIBUTE, UNKNOWN_QUEUE, RequestError
from ..shared.job import Job, parse_array
from .server import Asker, Server

QUEUE = "batch"
DEFAULTS = {"nodes": "1", "walltime": "01:00:00"}
ADDITIONAL = frozenset({"x", "group_list", "umask"})
"""The attributes that `qsub -W` may set here."""


def submit(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> dict[str, t.Any]:
    """Take a job, or an array of jobs."""
    asked = message["job"]
    if asker.uid == 0 or asker.user.isdigit():
        raise RequestError(BAD_USER, "MSG=root user not allowed")
    for name in asked["additional"]:
        if name not in ADDITIONAL:
            raise RequestError(UNDEFINED_ATTRIBUTE, name)
    queue = asked["queue"] or QUEUE
    if queue.partition("@")[0] != QUEUE:
        raise RequestError(UNKNOWN_QUEUE)
    job = _new_job(server, asked, asker)
    server.nodes.parts(job.resources["nodes"])
    if not server.nodes.could_ever(job.resources["nodes"]):
        raise RequestError(OVER_LIMIT, "MSG=cannot locate feasible nodes")
    server.next_number += 1
    if job.array:
        _add_array(server, job)
    else:
        server.jobs[job.id] = job
        server.next_rank += 1
    if job.interactive is not None:
        server.followers[job.id] = link
    server.changed()
    return {"job": job.id}


def _new_job(server: Server, asked: dict[str, t.Any], asker: Asker) -> Job:
    account = pwd.getpwuid(asker.uid)
    now = int(time.time())
    seq = server.next_number
    brackets = "[]" if asked["array"] else ""
    additional = asked["additional"]
    group = additional.get("group_list", "").partition(",")[0].partition("@")[0]
    if group and group not in _groups(account):
        raise RequestError(BAD_GROUP)
    held = "u" if asked["hold"] else ""
    variables = {"PBS_O_QUEUE": QUEUE, **asked["variables"]}
    variables.update({"PBS_O_HOST": asker.host, "PBS_O_SERVER": server.host})
    job = Job(
        id=f"{seq}{brackets}.{server.host}",
        seq=seq,
        name=asked["name"],
        user=asker.user,
        uid=asker.uid,
        group=group or grp.getgrgid(account.pw_gid).gr_name,
        submit_host=asker.host,
        server=server.host,
        queue=QUEUE,
        script=asked["script"],
        asked=asked["resources"],
        resources=resources.complete(asked["resources"], DEFAULTS),
        variables=variables,
        submit_args=asked["submit_args"],
        error_path=_output(asked, "e", seq, asker),
        output_path=_output(asked, "o", seq, asker),
        init_work_dir=asked["init_work_dir"],
        ctime=now,
        rank=server.next_rank,
        account=asked["account"],
        arguments=asked["arguments"],
        array=asked["array"],
        etime=0 if held else now,
        exclusive=asked["exclusive"],
        group_list=additional.get("group_list", ""),
        holds=held,
        interactive=asked["interactive"],
        forward_x11=asked["forward_x11"],
        jobtype=asked["jobtype"],
        join=asked["join"],
        keep=asked["keep"],
        mail_points=asked["mail_points"],
        mail_users=asked["mail_users"],
        mtime=now,
        priority=asked["priority"],
        qtime=now,
        rerunable=asked["rerunable"],
        shell=asked["shell"],
        umask=_umask(additional),
        x=additional.get("x", ""),
    )
    job.state = attributes.state_name(job)
    job.substate = 20 if held else 10
    return job


def _groups(account: pwd.struct_passwd) -> set[str]:
    """The groups whose member a user is, here on the server's host."""
    own = os.getgrouplist(account.pw_name, account.pw_gid)
    return {entry.gr_name for entry in grp.getgrall() if entry.gr_gid in own}


def _umask(additional: dict[str, str]) -> int | None:
    try:
        return int(additional["umask"], 8) if "umask" in additional else None
    except ValueError:
        raise RequestError(BAD_VALUE, "umask") from None


def _output(asked: dict[str, t.Any], stream: str, seq: int, asker: Asker) -> str:
    """`host:/path` of a stream; a path in a request has its host already."""
    path = asked["paths"].get(stream) or f"{asker.host}:{asked['submit_dir']}/"
    return path + f"{asked['name']}.{stream}{seq}" if path.endswith("/") else path


def _add_array(server: Server, parent: Job) -> None:
    try:
        indices, _limit = parse_array(parent.array)
    except ValueError:
        raise RequestError(BAD_VALUE, "job_array_request") from None
    parent.start_count = 0
    parent.qtime = 0
    server.jobs[parent.id] = parent
    for index in indices:
        data = parent.to_json()
        data.update(
            id=f"{parent.seq}[{index}].{server.host}",
            index=index,
            array="",
            name=f"{parent.name}-{index}",
            variables={"PBS_ARRAYID": str(index), **parent.variables},
            error_path=f"{parent.error_path}-{index}",
            output_path=f"{parent.output_path}-{index}",
            qtime=parent.ctime,
            rank=server.next_rank,
        )
        member = Job.from_json(data)
        server.jobs[member.id] = member
        server.next_rank += 1

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users, operators and managers may ask of the server."""

from __future__ import annotations

import functools
import time
import typing as t

from ..shared import attributes, resources, wire
from ..shared.errors import (
    BAD_STATE,
    BAD_VALUE,
    INVALID,
    NO_MOM,
    READ_ONLY,
    UNAUTHORIZED,
    UNDEFINED_ATTRIBUTE,
    UNKNOWN_JOB,
    UNKNOWN_NODE,
    UNKNOWN_SIGNAL,
    RequestError,
)
from ..shared.errors import RUNNING as MODIFY_RUNNING
from ..shared.job import COMPLETE, QUEUED, RUNNING, SUSPENDED, Job
from ..shared.signals import signal_number
from . import look
from .intake import DEFAULTS, submit
from .server import Asker, Server

ALTERABLE = frozenset({"shell", "variables", "priority", "comment", "x", "name", "account", "resources", "rerunable"})
WHILE_RUNNING = frozenset({"shell", "variables", "priority", "comment"})
"""torque.md: `-S` and `-v` may be changed even during the prologue, `x` never while the job runs."""

Answer = dict[str, t.Any]


class Later(Exception):
    """The answer comes when a MOM has answered."""


def answer(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> None:
    """Answer one request on its link."""
    try:
        if message["op"] == "look":
            link.say(_look(server, link, message, asker).encode())
        else:
            link.send(_answered(server, link, message, asker))
    except (KeyError, TypeError, ValueError) as error:
        server.log.write("Req", asker.name, f"not a request of our commands: {error!r} in {message!r:.200}")
        link.send({"code": INVALID, "text": RequestError(INVALID).text})
    except Later:
        return


def _answered(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    handler = HANDLERS.get(message["op"])
    try:
        if handler is None:
            raise RequestError(INVALID, message["op"])
        result = handler(server, link, message, asker)
        server.save()
    except RequestError as error:
        return {"code": error.code, "text": error.text}
    return {"code": 0, **result}


def _look(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> look.Said:
    """What `qstat` or `pbsnodes` is to write: asked for in bytes, each word of the command line as hexadecimal."""
    command, *arguments = (bytes.fromhex(word).decode(errors="surrogateescape") for word in message["words"].split(" "))

    def ask(request: wire.Message) -> Answer:
        return _answered(server, link, request, asker)

    if command == "qstat":
        return look.qstat(arguments, ask, server.host)
    return look.pbsnodes(arguments, ask, asker.host)


def find(server: Server, job_id: str) -> Job:
    """The job of an id, with or without the server's name."""
    full = job_id if "." in job_id else f"{job_id}.{server.host}"
    if full not in server.jobs:
        raise RequestError(UNKNOWN_JOB)
    return server.jobs[full]


def each(server: Server, job: Job) -> list[Job]:
    """The job, or an array's parent and all its members."""
    return [job, *server.members(job)] if job.array else [job]


def require_owner(server: Server, asker: Asker, job: Job) -> None:
    """Only the owner, operators and managers go on."""
    if not (server.is_owner(asker, job) or server.is_operator(asker)):
        raise RequestError(UNAUTHORIZED)


def status(server: Server, _link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """Attributes of jobs; without an id, of all that `qstat` lists."""
    if message["job"]:
        job = find(server, message["job"])
        jobs = each(server, job) if message["expand"] else [job]
    else:
        jobs = [job for job in server.jobs.values() if (not job.array if message["expand"] else job.index is None)]
    manager = server.is_manager(asker)
    return {
        "jobs": [
            [job.id, attributes.job_attributes(job, server.is_owner(asker, job), manager)]
            for job in sorted(jobs, key=lambda job: (job.seq, job.index is not None, job.index or 0))
        ]
    }


def nodes(server: Server, _link: wire.Link, message: wire.Message, _asker: Asker) -> Answer:
    """Attributes of nodes."""
    names = message["nodes"] or list(server.nodes.by_name)
    for name in names:
        if name not in server.nodes.by_name:
            raise RequestError(UNKNOWN_NODE)
    return {"nodes": [[name, server.nodes.by_name[name].attributes()] for name in names]}


def set_nodes(server: Server, _link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """Offline, online, note."""
    if not server.is_operator(asker):
        raise RequestError(UNAUTHORIZED)
    for name in message["nodes"]:
        if name not in server.nodes.by_name:
            raise RequestError(UNKNOWN_NODE)
    for name in message["nodes"]:
        node = server.nodes.by_name[name]
        if message["offline"] is not None:
            node.offline = message["offline"]
        if message["note"] is not None:
            node.note = message["note"]
    server.changed()
    return {}


def delete(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """End a job, an array, or forget a job at once (purge)."""
    job = find(server, message["job"])
    require_owner(server, asker, job)
    if message["purge"]:
        if not server.is_operator(asker):
            raise RequestError(UNAUTHORIZED)
        for one in each(server, job):
            server.forget(one)
        return {}
    if job.state == COMPLETE:
        raise RequestError(BAD_STATE, f"MSG=invalid state for job - {job.state}")
    running = []
    for one in each(server, job):
        if one.array or one.state == COMPLETE:
            continue
        server.log.write("Job", one.id, f"Job deleted at request of {asker.name}")
        if one.state in (RUNNING, SUSPENDED):
            one.deleting = True
            running.append(one)
        else:
            one.exit_status = 271
            server.complete(one)
    for one in running:
        _to_mom(server, link, one, {"op": "delete", "delay": message["delay"]}, answered=one is running[-1])
    if running:
        raise Later
    return {}


def _to_mom(server: Server, link: wire.Link, job: Job, order: wire.Message, answered: bool = True) -> None:
    mom = server.moms.get(job.hosts[0][0])
    if mom is None:
        raise RequestError(NO_MOM)
    if answered:
        server.waiting.setdefault(job.id, []).append(functools.partial(_reply, link))
    mom.send({**order, "job": job.id})


def _reply(link: wire.Link, code: int) -> None:
    link.send({"code": code, "text": RequestError(code).text if code else ""})


def send_signal(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """`qsig`."""
    job = find(server, message["job"])
    name = message["signal"]
    if name in ("suspend", "resume") and not server.is_operator(asker):
        raise RequestError(UNAUTHORIZED)
    require_owner(server, asker, job)
    if name not in ("suspend", "resume") and signal_number(name) is None:
        raise RequestError(UNKNOWN_SIGNAL)
    if job.state not in (RUNNING, SUSPENDED) or job.array:
        raise RequestError(BAD_STATE)
    _to_mom(server, link, job, {"op": "signal", "signal": name})
    raise Later


def hold(server: Server, _link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """`qhold`: u by the owner, o by operators, s by managers."""
    return _holds(server, message, asker, adding=True)


def release(server: Server, _link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """`qrls`, with the same rights."""
    return _holds(server, message, asker, adding=False)


def _holds(server: Server, message: wire.Message, asker: Asker, adding: bool) -> Answer:
    job = find(server, message["job"])
    letters = message["holds"]
    if not set(letters) <= set("uos"):
        raise RequestError(BAD_VALUE, "Hold_Types")
    require_owner(server, asker, job)
    if ("o" in letters and not server.is_operator(asker)) or ("s" in letters and not server.is_manager(asker)):
        raise RequestError(UNAUTHORIZED)
    for one in each(server, job):
        if one.state == COMPLETE:
            if one is job:
                raise RequestError(BAD_STATE, f"MSG=invalid state for job - {one.state}")
            continue
        now = set(one.holds) | set(letters) if adding else set(one.holds) - set(letters)
        one.holds = "".join(letter for letter in "uos" if letter in now)
        one.mtime = int(time.time())
        if one.state not in (RUNNING, SUSPENDED):
            one.state = attributes.state_name(one)
            one.substate = 20 if one.holds else 10
            one.etime = one.etime or (one.mtime if one.state == QUEUED else 0)
    server.changed()
    return {}


def rerun(server: Server, link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """`qrerun`, for operators."""
    job = find(server, message["job"])
    if not server.is_operator(asker):
        raise RequestError(UNAUTHORIZED)
    if job.state not in (RUNNING, SUSPENDED) or job.array:
        raise RequestError(BAD_STATE, f"MSG=job {job.id} is in a bad state")
    _to_mom(server, link, job, {"op": "rerun"})
    raise Later


def alter(server: Server, _link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """`qalter`."""
    job = find(server, message["job"])
    require_owner(server, asker, job)
    changes = message["changes"]
    for name in changes:
        if name not in ALTERABLE:
            raise RequestError(UNDEFINED_ATTRIBUTE, name)
        if name == "comment" and not server.is_operator(asker):
            raise RequestError(READ_ONLY, "comment")
        if job.state == COMPLETE:
            raise RequestError(BAD_STATE, f"MSG=invalid state for job - {job.state}")
        if job.state in (RUNNING, SUSPENDED) and name not in WHILE_RUNNING:
            raise RequestError(MODIFY_RUNNING, name)
    for one in each(server, job):
        for name, value in changes.items():
            if name == "resources":
                one.asked = {**one.asked, **value}
                one.resources = resources.complete(one.asked, DEFAULTS)
            elif name == "variables":
                one.variables = {**one.variables, **value}
            else:
                setattr(one, name, value)
        one.mtime = int(time.time())
    server.changed()
    return {}


def manage(server: Server, _link: wire.Link, message: wire.Message, asker: Asker) -> Answer:
    """The little of `qmgr` that is used: managers and operators, how long completed jobs stay, a node's properties."""
    if message["name"] and not server.is_manager(asker):
        raise RequestError(UNAUTHORIZED)
    name, value = message["name"], message["value"]
    if message["node"]:
        return _manage_node(server, message)
    if name in ("managers", "operators"):
        present: list[str] = getattr(server, name)
        removed = value if message["sign"] == "-=" else ""
        stored = [] if message["sign"] == "=" else [one for one in present if one != removed]
        setattr(server, name, stored if removed else [*stored, value])
    elif name == "keep_completed":
        server.keep_completed = float(value)
    elif name:
        raise RequestError(UNDEFINED_ATTRIBUTE, name)
    return {
        "managers": server.managers,
        "operators": server.operators,
        "keep_completed": server.keep_completed,
        "next_job_number": server.next_number,
    }


def _manage_node(server: Server, message: wire.Message) -> Answer:
    """As set_arst of TORQUE 6 has it: what is added comes first, a second time too; one of a name is taken away."""
    node = server.nodes.by_name.get(message["node"])
    if node is None:
        raise RequestError(UNKNOWN_NODE)
    if message["name"] != "properties":
        raise RequestError(UNDEFINED_ATTRIBUTE, message["name"])
    sign, value, arguments = message["sign"], message["value"], list(node.properties)
    if sign == "-=" and value in arguments:
        arguments.remove(value)
    elif sign != "-=":
        arguments = [value, *(arguments if sign == "+=" else [])]
    node.properties = tuple(arguments)
    server.changed()
    return {}


def await_job(server: Server, link: wire.Link, message: wire.Message, _asker: Asker) -> Answer:
    """Not Torque's: answer when a job has one of some states, or has been started so often; gone counts as reached."""
    job_id = find(server, message["job"]).id

    def reached() -> bool:
        job = server.jobs.get(job_id)
        if job is None:
            return True
        return f"{job.state}{job.substate}" in message["states"] or job.start_count >= message["starts"] > 0

    server.awaited.append((reached, link))
    server.changed()
    raise Later


def await_nodes(server: Server, link: wire.Link, _message: wire.Message, _asker: Asker) -> Answer:
    """Not Torque's: answer when every node's MOM is there."""
    server.awaited.append((lambda: all(node.connected for node in server.nodes.by_name.values()), link))
    server.changed()
    raise Later


HANDLERS: dict[str, t.Callable[[Server, wire.Link, wire.Message, Asker], Answer]] = {
    "submit": submit,
    "status": status,
    "nodes": nodes,
    "set-nodes": set_nodes,
    "delete": delete,
    "signal": send_signal,
    "hold": hold,
    "release": release,
    "rerun": rerun,
    "alter": alter,
    "manage": manage,
    "await": await_job,
    "await-nodes": await_nodes,
}

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's controller, asked by its commands; what users write is never looked through.

`squeue --json` and `sinfo --json` quote what users write; `scontrol` prints a job's name and comment as they are, line
feeds and all, so that either forges any of its fields (recorded on Slurm 22.05.8: tests/fixtures/slurm).
"""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import re
import typing as t

from ....effects import leaves_nothing
from ....errors import SiteFault, UserFault
from ....system.clock import Deadline
from ....wire.messages import HOST_NAME
from ...request.request import MARKER, PREFIX
from ..api import NOTE_PREFIX, BatchJob, BatchNode, PastJob, ServerSettings, UnknownJob
from ..host_match import same_host
from . import commands, comment, host_list, ids

NOTE_LENGTH = 200
AGAIN_AFTER_S = 30
"""Seconds until a job that is queued again may start.  Where that is over when its Epilog has ended, Slurm makes it two
minutes from then; and a start in the second of the former one's end fails, because slurmd takes it for that one
(measured on 22.05.8).  So it is longer than what a hook and an Epilog still do."""

STATES = {
    "PENDING": "Q",
    "REQUEUED": "Q",
    "REQUEUE_FED": "Q",
    "RESV_DEL_HOLD": "H",
    "REQUEUE_HOLD": "H",
    "SPECIAL_EXIT": "H",
    "RUNNING": "R",
    "CONFIGURING": "R",
    "RESIZING": "R",
    "SIGNALING": "R",
    "SUSPENDED": "S",
    "STOPPED": "S",
    "COMPLETING": "E",
    "STAGE_OUT": "E",
    "COMPLETED": "C",
    "CANCELLED": "C",
    "FAILED": "C",
    "TIMEOUT": "C",
    "NODE_FAIL": "C",
    "PREEMPTED": "C",
    "BOOT_FAIL": "C",
    "DEADLINE": "C",
    "OUT_OF_MEMORY": "C",
    "REVOKED": "C",
}
"""Letters of `BatchJob.state`."""
HOLDS = {"JobHeldUser": "u", "JobHeldAdmin": "s"}
"""Reasons of a held job, and the letters of `BatchJob.hold_types`; its owner may release the first."""
OF_NODES = {"idle": "free", "allocated": "job-exclusive", "mixed": "free", "down": "down", "error": "down"}
"""States of a node in the contract's terms."""
OFFLINE_FLAGS = frozenset({"DRAIN"})
DOWN_FLAGS = frozenset({"NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED"})

Form = dict[str, t.Any]


class Slurm:
    """Slurm 22.05 and newer.

    Args:
        tools: the directory with squeue, sinfo, scontrol and scancel; Prolog has no PATH.
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment; after it nothing is asked any more.
    """

    def __init__(self, tools: pathlib.Path, *, timeout_s: float = 10.0, deadline: Deadline | None = None) -> None:
        self.tools = tools
        self.timeout_s = timeout_s
        self.deadline = deadline

    @leaves_nothing
    def job(self, job_id: str) -> BatchJob:
        """The job as the controller sees it now; see `BatchSystem.job`."""
        number = ids.number_of(job_id)
        # 22.05 answers with all jobs whichever is named: those of others are not read
        return parse_job(self._run("squeue", "--json", "-j", number, subject=job_id), job_id)

    def all_jobs(self) -> tuple[BatchJob, ...]:
        """All jobs that the controller remembers; see `BatchSystem.all_jobs`."""
        found = _entries(self._run("squeue", "--json"), "jobs", "squeue")
        return tuple(_job(form, _id_of(form)) for form in found)

    @leaves_nothing
    def nodes(self) -> tuple[BatchNode, ...]:
        """All nodes, without the jobs on them, which Slurm knows by job (`jobs`)."""
        return parse_nodes(self._run("sinfo", "--json"))

    def node(self, name: str) -> BatchNode:
        """One node, by its long or short name, in any case.

        Raises:
            SiteFault: Slurm knows none, or more than one, of that name.
        """
        _demand_node(name)
        nodes = self.nodes()
        found = [node for node in nodes if node.name == name] or [node for node in nodes if same_host(node.name, name)]
        if len(found) != 1:
            raise SiteFault(f"node {name}", f"Slurm knows {len(found) or 'no'} nodes of that name")
        return found[0]

    def note(self, node: str) -> str:
        """The reason of a node that somebody drained, or ""."""
        return self.node(node).note

    def jobs(self, node: str) -> frozenset[str]:
        """The jobs that have processors of a node."""
        _demand_node(node)
        return frozenset(
            job.job_id
            for job in self.all_jobs()
            if job.state in ("R", "S", "E") and any(same_host(node, host) for host in job.nodes)
        )

    def offline(self, node: str, note: str) -> BatchNode:
        """Drain a node, with our note for its reason; see `BatchSystem.offline`.

        Slurm has no "set if unset": the look comes immediately before, and the reason is read back.

        Raises:
            SiteFault: see `BatchSystem.offline`.
        """
        text = one_line(note)
        seen = self.node(node)
        if (seen.note or seen.offline) and not seen.note.startswith(NOTE_PREFIX):
            return seen
        if not (seen.offline and seen.note == text):
            self._order("update", f"nodename={seen.name}", "state=drain", f"reason={text}", subject=seen.name)
            seen = self.node(seen.name)
            if not seen.offline or seen.note != text:
                raise SiteFault(
                    f"node {seen.name} is not drained", f"scontrol was asked to; its reason is {seen.note!r}"
                )
        return seen

    def clear(self, node: str, note: str) -> bool:
        """Take back `offline` with this very note; anything else is left alone, and False returned.

        Raises:
            SiteFault: see `BatchSystem.clear`.
        """
        seen = self.node(node)
        if seen.note != one_line(note):
            return False
        self._order("update", f"nodename={seen.name}", "state=resume", subject=seen.name)
        seen = self.node(seen.name)
        if seen.offline or seen.note:
            raise SiteFault(f"node {seen.name} is still drained", f"scontrol was asked to; its reason is {seen.note!r}")
        return True

    def hold(self, job_id: str) -> None:
        """`scontrol requeuehold` of a job that was started: its owner can release it.

        Raises:
            SiteFault: see `BatchSystem.hold`.
        """
        self._requeue("requeuehold", job_id)
        held = self.job(job_id)
        if "u" not in held.hold_types:
            raise SiteFault(
                f"job {job_id} is not held", f"scontrol requeuehold was asked to; its state is {held.state}"
            )

    def requeue(self, job_id: str) -> None:
        """`scontrol requeue`, without Slurm's own two minutes of waiting.

        Raises:
            SiteFault: see `BatchSystem.requeue`.
        """
        self._requeue("requeue", job_id)
        with contextlib.suppress(SiteFault):  # it is queued again all the same, only later
            again = f"StartTime=now+{AGAIN_AFTER_S}"
            self._order("update", f"jobid={ids.number_of(job_id)}", again, subject=job_id)

    def _requeue(self, order: str, job_id: str) -> None:
        """Slurm would bring back a job that its owner has just cancelled."""
        number = ids.number_of(job_id)
        state = self.job(job_id).state
        if state not in ("R", "S"):
            raise SiteFault(f"job {job_id} is not queued again", f"it does not run any more (state {state})")
        self._order(order, number, subject=job_id)

    def delete(self, job_id: str) -> None:
        """`scancel`: the job's owner and operators may."""
        self._run("scancel", ids.number_of(job_id), subject=job_id)

    def release_command(self, job_id: str) -> str:
        """`scontrol release`, which the owner of a job may call."""
        return f"scontrol release {ids.number_of(job_id)}"

    def shown_id(self, job_id: str) -> str:
        """The number alone."""
        return ids.number_of(job_id)

    def server(self) -> ServerSettings:
        """Root of a node is an administrator of Slurm by munge, and everybody sees every job: nothing is to be set."""
        return ServerSettings((), (), query_other_jobs=True, down_on_error=True)

    def configuration(self) -> dict[str, str]:
        """The controller's settings (`scontrol show config`), by the names of slurm.conf."""
        text = self._run("scontrol", "show", "config").decode(errors="replace")
        return dict(re.findall(r"^(\S+)\s+= (.*?)\s*$", text, re.MULTILINE))

    def comment(self, job_id: str, text: str) -> None:
        """AdminComment: only root and operators write it.

        Raises:
            SiteFault: see `BatchSystem.comment`.
        """
        number = ids.number_of(job_id)
        plain = " ".join(re.sub(r"[^A-Za-z0-9 ._:;,/()%+@\[\]-]", " ", text).split())[:NOTE_LENGTH]
        self._order("update", f"jobid={number}", f"admincomment={plain}", subject=job_id)

    def _order(self, *arguments: str, subject: str) -> None:
        self._run("scontrol", *arguments, subject=subject)

    def _run(self, *command: str, subject: str = "") -> bytes:
        return commands.run(self.tools, command, subject, timeout_s=self.timeout_s, deadline=self.deadline)


def past_job(job_id: str) -> PastJob:
    """A start of a job that the controller has forgotten: nothing on this host tells of it.

    Args:
        job_id: of the job.

    Raises:
        UnknownJob: always; Slurm's accounting is not read.
    """
    raise UnknownJob(f"job {job_id}", "Slurm's controller has forgotten it, and its accounting is not read")


def one_line(note: str) -> str:
    """A note as a node's reason: ours by its prefix, one line, without what scontrol reads as the end of a word."""
    text = note if note.startswith(NOTE_PREFIX) else NOTE_PREFIX + note
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:NOTE_LENGTH].rstrip()


def parse_job(data: bytes, job_id: str) -> BatchJob:
    """The job `job_id` out of what `squeue --json` wrote.

    Raises:
        UnknownJob: the answer holds no such job.
        SiteFault: the answer is no JSON, or names the job twice, or a fact is out of form.
    """
    number = int(ids.number_of(job_id))
    found = [form for form in _entries(data, "jobs", "squeue") if form.get("job_id") == number]
    if not found:
        raise UnknownJob(f"job {job_id}", "Slurm's answer does not hold it")
    if len(found) > 1:
        raise SiteFault(f"job {job_id}", "stands twice in Slurm's answer")
    if _id_of(found[0]) != job_id:
        raise UnknownJob(f"job {job_id}", f"Slurm speaks of {_id_of(found[0])}")
    return _job(found[0], job_id)


def parse_nodes(data: bytes) -> tuple[BatchNode, ...]:
    """The nodes out of what `sinfo --json` wrote.

    Raises:
        SiteFault: the answer is no JSON, or a fact is out of form.
    """
    return tuple(_node(form) for form in _entries(data, "nodes", "sinfo"))


def _entries(data: bytes, key: str, tool: str) -> list[Form]:
    try:
        answer = json.loads(data)
        found, errors = answer[key], answer.get("errors")
    except (ValueError, KeyError, TypeError) as error:
        raise SiteFault(f"{tool} --json", f"its answer cannot be read: {error}") from error
    if errors:
        raise SiteFault(f"{tool} --json", f"it reports {json.dumps(errors)[:200]}")
    if not isinstance(found, list) or not all(isinstance(form, dict) for form in found):
        raise SiteFault(f"{tool} --json", f"{key} is no list of objects")
    return found


class _Facts:
    """The facts of one job or node, each of the form that Slurm gives it."""

    def __init__(self, form: Form, what: str) -> None:
        self._form = form
        self._what = what

    def text(self, key: str) -> str:
        value = self._form.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(key, value)
        return value

    def number(self, key: str) -> int:
        value = self._form.get(key)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value)
        return value

    def texts(self, key: str) -> list[str]:
        value = self._form.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(key, value)
        return value

    def _wrong(self, key: str, value: object) -> SiteFault:
        return SiteFault(self._what, f"{key} is {str(value)[:40]!r}, which Slurm 22.05 never writes")


def _id_of(form: Form) -> str:
    facts = _Facts(form, "a job of squeue")
    return ids.read(str(facts.number("job_id")), facts.text("cluster"))


def _job(form: Form, job_id: str) -> BatchJob:
    facts = _Facts(form, f"job {job_id}")
    state = facts.text("job_state")
    letter = STATES.get(state, state)
    hold = HOLDS.get(facts.text("state_reason"), "") if facts.number("priority") == 0 else ""
    if letter == "Q" and hold:
        letter = "H"
    slots, memory_mib = _allocated(form, job_id)
    request = facts.text("comment")
    ours = comment.is_ours(request)
    restarts = facts.number("restart_cnt")
    user = facts.text("user_name")
    return BatchJob(
        job_id=job_id,
        name=facts.text("name"),
        owner_user=user,
        owner_host="",
        euser=user,
        egroup=facts.text("group_name"),
        state=letter,
        queue=facts.text("partition"),
        slot_hosts=slots,
        # the present one included, and a job that waits has none
        start_count=restarts if letter in ("Q", "H") else restarts + 1,
        x=_request(request) if ours else "",
        jobtype="",
        init_work_dir=facts.text("current_working_directory"),
        session_id=0,
        substate=0,
        interactive=form.get("batch_flag") is False,
        walltime_s=facts.number("time_limit") * 60,
        variables={},
        submit_args="",
        resource_list={"mem": f"{memory_mib}mb", **({"other": MARKER} if ours else {})},
        account=facts.text("account"),
        hold_types=hold,
        exit_status=_status(facts.number("exit_code")) if letter == "C" else None,
        comment=facts.text("admin_comment"),
        started_s=facts.number("start_time") if letter in ("R", "S", "E") else 0,
        node_exclusive=form.get("shared") == "none",
    )


def _request(text: str) -> str:
    """The request as the rest of the product reads it; one that cannot be unpacked is left to its reader to refuse."""
    try:
        data = comment.unpack(text)
    except UserFault:
        return text.replace(";", "")
    return PREFIX + base64.urlsafe_b64encode(data or b"").decode("ascii").rstrip("=")


def _status(code: int) -> int:
    """Of what wait(2) says of a job's end, the status that a shell says."""
    return 128 + (code & 127) if code & 127 else code >> 8


def _allocated(form: Form, job_id: str) -> tuple[tuple[str, ...], int]:
    """A host name a processor, the first node's before the others, and the memory of all of them in MiB."""
    given = form.get("job_resources")
    if not given or not form.get("nodes"):
        return (), 0
    wrong = SiteFault(f"job {job_id}", "what it was given is not of the form that Slurm 22.05 writes")
    try:
        hosts = host_list.expand(given["nodes"])
        nodes = {node["nodename"]: node for node in given["allocated_nodes"]}
        cores = {host: _cores(nodes[host]) for host in hosts}
        memory = sum(int(nodes[host]["memory_allocated"]) for host in hosts)
        total = sum(cores.values())
        # where a core has several processors, Slurm gives all of them
        each = max(1, int(form["cpus"]) // total) if total else 0
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise wrong from error
    first = str(form.get("batch_host") or "")
    order = sorted(hosts, key=lambda host: host != first)
    return tuple(host for host in order for _slot in range(cores[host] * each)), memory


def _cores(node: Form) -> int:
    return sum(state == "allocated" for socket in node["sockets"].values() for state in socket["cores"].values())


def _node(form: Form) -> BatchNode:
    facts = _Facts(form, f"node {str(form.get('name'))[:80]}")
    state, flags = facts.text("state"), set(facts.texts("state_flags"))
    states = {OF_NODES.get(state, state)}
    if flags & OFFLINE_FLAGS:
        states = {*states - {"free"}, "offline"}
    if flags & DOWN_FLAGS:
        states = {*states - {"free"}, "down"}
    return BatchNode(
        name=facts.text("name"),
        states=frozenset(states),
        slots=facts.number("cpus"),
        memory_mib=facts.number("real_memory"),
        properties=frozenset(filter(None, facts.text("active_features").split(","))),
        note=facts.text("reason"),
    )


def _demand_node(name: str) -> None:
    if not re.fullmatch(HOST_NAME, name):
        raise SiteFault(f"node {name[:80]!r}", "not of the form of a node")

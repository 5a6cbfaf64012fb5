# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs and nodes out of the answers of `squeue --json`, and of `scontrol show nodes --json` or `sinfo --json`.

Each answer holds the jobs of everybody, and what users write in them with the bytes that they wrote: whatever is odd
about the job of one of them must not concern the others.
"""

from __future__ import annotations

import base64
import contextlib
import typing as t

from ....errors import SiteFault, UserFault
from ...request.request import MARKER, PREFIX
from ..api import BatchJob, BatchNode
from ..shared.odd_job import odd_job
from . import comment, forms, host_list, ids, output_file

if t.TYPE_CHECKING:
    from .forms import Facts, Form

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
    "EXPEDITING": "Q",
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

UNREADABLE = f"{PREFIX}="
"""In `BatchJob.x`: the job asks for a virtual machine, and nobody can read for which."""


class JobAnswer(t.NamedTuple):
    """What an answer tells of one job.

    Attributes:
        job: as the rest of the product has it.
        output: the output file of a batch job; "": it is not known.
    """

    job: BatchJob
    output: str


def read_job(form: Form, job_id: str) -> JobAnswer:
    """Read one job.

    Args:
        form: what Slurm says of it (`one_job.form_of`).
        job_id: by which it was asked for.

    Raises:
        SiteFault: a fact of it is out of form.
    """
    try:
        output = output_file.path_of(form, ids.number_of(job_id))
    except (KeyError, TypeError, AttributeError):
        output = ""
    return JobAnswer(_job(form, job_id), output)


def _number(form: object) -> int:
    """The number of a job in the answer with all; 0: it has none."""
    number = form.get("job_id") if isinstance(form, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def parse_jobs(data: bytes) -> tuple[BatchJob, ...]:
    """All jobs out of what `squeue --json` wrote.

    A job out of form is not left out, so that nobody takes a node or an image for free: unless Slurm says that it
    waits or is over, it runs, with what can be read of it, and on whichever node where its nodes cannot be (`()`).

    Raises:
        SiteFault: the answer is no JSON.
    """
    return tuple(map(_any_job, forms.entries(data, "jobs", "squeue")))


def _any_job(entry: object) -> BatchJob:
    try:
        form = t.cast("Form", entry)
        return _job(form, _id_of(form))
    except (SiteFault, AttributeError):
        return _read_odd_job(entry if isinstance(entry, dict) else {})


def _read_odd_job(form: Form) -> BatchJob:
    """What can be read of a job that is out of form."""

    def text(key: str) -> str:
        value = form.get(key)
        return value if isinstance(value, str) else ""

    hosts: tuple[str, ...] = ()
    with contextlib.suppress(SiteFault):
        hosts = host_list.expand(text("nodes"))
    request, user = text("comment"), text("user_name")
    return odd_job(
        f"{_number(form) or '?'}.{text('cluster') or '?'}",
        name=text("name"),
        owner=user,
        euser=user,
        egroup=text("group_name"),
        state=_odd_state(form),
        queue=text("partition"),
        hosts=hosts,
        x=_request(request) if comment.wants_guests(request) else "",
    )


def _odd_state(form: Form) -> str:
    with contextlib.suppress(SiteFault):
        return STATES.get(forms.Facts(form, "").state("job_state"), "")
    return ""


def parse_nodes(data: bytes, tool: str = "scontrol") -> tuple[BatchNode, ...]:
    """The nodes out of what `scontrol show nodes --json` wrote, or `sinfo --json` of 22.05.

    Raises:
        SiteFault: the answer is no JSON, or a fact is out of form.
    """
    nodes = forms.entries(data, "nodes", tool)
    if not all(isinstance(form, dict) for form in nodes):
        raise SiteFault(f"{tool} --json", "nodes is no list of objects")
    return tuple(map(_node, nodes))


def _id_of(form: Form) -> str:
    facts = forms.Facts(form, "a job of squeue")
    return ids.read(str(facts.number("job_id")), facts.text("cluster"))


def _job(form: Form, job_id: str) -> BatchJob:
    facts = forms.Facts(form, f"job {job_id}")
    state = facts.state("job_state")
    letter = STATES.get(state, state)
    hold = HOLDS.get(facts.text("state_reason"), "") if facts.number("priority") == 0 else ""
    if letter == "Q" and hold:
        letter = "H"
    slots, memory_mib = _allocated(form, job_id)
    request = facts.text("comment")
    ours = comment.wants_guests(request)
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
        # who was given what cannot be told from what its user wrote: it is on these nodes, and cannot start
        slot_hosts=host_list.expand(facts.text("nodes")) if slots is None else slots,
        # the present one included, and a job that waits has none
        start_count=restarts if letter in ("Q", "H") else restarts + 1,
        x=(_request(request) if slots is not None else UNREADABLE) if ours else "",
        jobtype="",
        init_work_dir=facts.text("current_working_directory"),
        session_id=0,
        substate=0,
        interactive=form.get("batch_flag") is False,
        walltime_s=facts.number("time_limit") * 60,
        variables={},
        submit_args="",
        resource_list={"mem": f"{memory_mib}mb", **({"other": MARKER} if ours else {}), **_generic(form)},
        account=facts.text("account"),
        hold_types=hold,
        exit_status=_status(facts.wait_status("exit_code")) if letter == "C" else None,
        comment=facts.text("admin_comment"),
        started_s=facts.number("start_time") if letter in ("R", "S", "E") else 0,
        node_exclusive=facts.is_shared("none"),
        # where it is counted, a job that says nothing of memory, or --mem=0, is given a node's
        memory_uncounted=bool(slots) and not memory_mib,
        slots_shared=facts.is_shared("shared") or facts.is_shared("oversubscribe"),
        granted=tuple(
            f"{host}/{name}/{index}"
            for host, gres in form.get("gres_by_host", ())
            for name, index in host_list.read_devices(gres)
        ),
        alias=_alias(facts),
    )


def _alias(facts: Facts) -> str:
    """As users write a member of an array, or of a set of jobs; "": it is none."""
    if facts.number("het_job_id"):
        return f"{facts.number('het_job_id')}+{facts.number('het_job_offset')}"
    member = facts.optional_number("array_task_id")
    return "" if member is None else f"{facts.number('array_job_id')}_{member}"


def _generic(form: Form) -> dict[str, str]:
    """The devices that a job asks for (`devices`), and what of generic resources its nodes have given it (`gres`)."""
    asked = [form.get(f"tres_per_{what}") for what in ("node", "job", "task", "socket")]
    devices = [found for one in asked if isinstance(one, str) and (found := host_list.devices_of(one))]
    details = form.get("gres_detail")
    given = [one for one in details if isinstance(one, str)] if isinstance(details, list) else []
    known = {"devices": ",".join(devices), "gres": " ".join(given)}
    return {name: text for name, text in known.items() if text}


def _request(text: str) -> str:
    """The request as the rest of the product reads it; for one that cannot be unpacked, what its reader refuses."""
    try:
        data = comment.unpack(text)
    except UserFault:  # what is no comment of ours could still be a request as other systems carry it
        return UNREADABLE
    return PREFIX + base64.urlsafe_b64encode(data or b"").decode("ascii").rstrip("=")


def _status(code: int) -> int:
    """Return the exit status, as a shell has it, of what wait(2) reports of a job's end."""
    return 128 + (code & 127) if code & 127 else code >> 8


def _allocated(form: Form, job_id: str) -> tuple[tuple[str, ...] | None, int]:
    """A host name a processor, the first node's before the others, and the memory of all of them in MiB.

    None: nobody can tell.
    """
    if "given" in form:
        return _granted_slots(form)
    parts = forms.allocated(form, f"job {job_id}")
    total = sum(cores for cores, _mib in parts.values())
    # where a core has several processors, Slurm gives all of them
    each = max(1, forms.Facts(form, f"job {job_id}").number("cpus") // total) if total else 0
    first = str(form.get("batch_host") or "")
    order = sorted(parts, key=lambda host: host != first)
    slots = tuple(host for host in order for _slot in range(parts[host][0] * each))
    return slots, sum(mib for _cores, mib in parts.values())


def _granted_slots(form: Form) -> tuple[tuple[str, ...] | None, int]:
    """Return the slots and memory that an answer says were granted to one job."""
    given = form["given"]
    if given is None:
        return None, 0
    order = sorted(given, key=lambda one: one[0] != form["batch_host"])
    return tuple(host for host, slots, _mib in order for _slot in range(slots)), sum(mib for *_of, mib in order)


def _node(form: Form) -> BatchNode:
    facts = forms.Facts(form, f"node {str(form.get('name'))[:80]}")
    # since 23.02 the flags stand behind the state, all in capitals
    state, *behind = facts.texts("state") or [""]
    flags = {*behind, *facts.texts("state_flags")}
    states = {OF_NODES.get(state.lower(), state.lower())}
    if flags & OFFLINE_FLAGS:
        states = {*states - {"free"}, "offline"}
    if flags & DOWN_FLAGS:
        states = {*states - {"free"}, "down"}
    reason = facts.text("reason")
    return BatchNode(
        name=facts.text("name"),
        states=frozenset(states),
        slots=facts.number("cpus"),
        memory_mib=facts.number("real_memory"),
        properties=frozenset(facts.texts("active_features")),
        # 24.11 keeps the reason of a node that is in use again, and nothing but another one takes its place
        note=reason if states & {"offline", "down"} else "",
    )

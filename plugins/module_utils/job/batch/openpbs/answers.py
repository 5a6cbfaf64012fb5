# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs and nodes out of what `qstat -f -F json` and `pbsnodes -a -F json` write (recorded on OpenPBS 23.06.06).

OpenPBS writes whatever looks like a number as one, a job's name too: numbers are read as the text that stands there.
An answer may hold jobs of everybody: whatever is odd about the job of one of them must not concern the others.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import typing as t

from ....errors import SiteFault
from ....text import printable
from ....wire.messages import HOST_NAME, JOB_ID
from ...request.request import MARKER, PREFIX
from ..api import BatchJob, BatchNode, UnknownJob
from ..shared.exec_hosts import read_slots
from ..shared.odd_job import odd_job

RESOURCE = "vtorque"
"""The site's resource (type string, flag m) in which a request travels; MOMs hand it to hooks."""
STATES = {"B": "Q", "F": "C", "X": "C", "M": "C", "U": "S"}
"""Letters of OpenPBS's own for `BatchJob.state`: an array that has begun waits for its members, which are jobs; a job
that another server has is over here."""
READS = "vTorque reads the answers of OpenPBS 23.06"
_CHUNK = re.compile(rf"(?P<host>{HOST_NAME})(:[0-9]{{1,5}})?/[0-9]{{1,6}}(\*(?P<slots>[0-9]{{1,6}}))?")
_JOB = re.compile(rf"{JOB_ID}(/[0-9]{{1,6}})?")
_FIRST_BRACE = re.compile(r"^[ \t\ufeff]*\{", re.MULTILINE)
_QUOTED = 120
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Form(dict[str, t.Any]):
    """An object of JSON that knows which of its names stand there twice.

    Attributes:
        doubled: those names.
    """

    def __init__(self, pairs: t.Sequence[tuple[str, t.Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _value in pairs]
        self.doubled = frozenset(name for name in self if names.count(name) > 1) if len(names) > len(self) else ()


_DECODER = json.JSONDecoder(
    # what users write may hold control characters as they are
    strict=False,
    object_pairs_hook=Form,
    parse_int=str,
    parse_float=str,
    parse_constant=str,
)


def parse_job(data: bytes, job_id: str) -> BatchJob:
    """The job `job_id` out of what `qstat -f -F json` wrote; of other jobs nothing is read.

    Raises:
        UnknownJob: the answer holds no such job.
        SiteFault: the answer is no JSON, or names the job or a fact of it twice, or a fact is out of form.
    """
    jobs, preface = _entries(data, "Jobs", "qstat")
    if job_id in jobs.doubled:
        raise SiteFault(f"job {job_id}", "stands twice in the batch server's answer")
    if job_id not in jobs:
        raise UnknownJob(f"job {job_id}", "the batch server's answer does not hold it")
    return _job(jobs[job_id], job_id, preface)


def parse_jobs(data: bytes) -> tuple[BatchJob, ...]:
    """All jobs out of what `qstat -f -F json` wrote.

    A job out of form is not left out, so that nobody takes a node or an image for free: unless OpenPBS says that it
    waits or is over, it runs, with what can be read of it, and on whichever node where its nodes cannot be (`()`).

    Raises:
        SiteFault: the answer is no JSON.
    """
    jobs, preface = _entries(data, "Jobs", "qstat")
    found: list[BatchJob] = []
    for job_id, form in jobs.items():
        try:
            found.append(_job(form, job_id, preface))
        except SiteFault:
            found.append(_read_odd_job(form if isinstance(form, Form) else Form([]), job_id))
    return tuple(found)


def parse_nodes(data: bytes) -> tuple[BatchNode, ...]:
    """The nodes out of what `pbsnodes -a -F json` wrote.

    Raises:
        SiteFault: the answer is no JSON, or a fact is out of form.
    """
    nodes, preface = _entries(data, "nodes", "pbsnodes")
    return tuple(_node(form, name, preface) for name, form in nodes.items())


def parse_exec_host(text: str) -> tuple[str, ...]:
    """One host name per slot, in the server's order, of `p1/0*2+p2/0*2`, or with ports (`p1:15002/0*2`).

    Args:
        text: as the server writes it (exec_host, exec_host2); "" before the job was started.

    Returns:
        Host names; the first is the one that runs the script.

    Raises:
        SiteFault: another form; what it means would be a guess.
    """
    # a chunk without a processor (`*0`) has its host all the same
    return read_slots(text, _CHUNK, "host/number*slots", lambda slots: (max(1, int(slots or 1)),))


def _entries(data: bytes, key: str, tool: str) -> tuple[Form, str]:
    """The objects of an answer by their names, and the first line of text that stands before it.

    The commands of a site may be wrappers that print a warning first: no line of OpenPBS's own stands before the first
    one that begins with a brace.
    """
    text = data.decode(errors="replace")
    begin = _FIRST_BRACE.search(text)
    before = text[: begin.start()] if begin else ""
    preface = next((printable(line.strip())[:_QUOTED] for line in before.splitlines() if line.strip()), "")
    try:
        answer = _DECODER.decode(text[len(before) :].lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise SiteFault(f"{tool} -F json", f"its answer is no JSON: {error}", READS) from error
    if not isinstance(answer, Form) or key in answer.doubled:
        raise SiteFault(f"{tool} -F json", f"its answer is no object with one {key}", READS)
    found = answer.get(key, Form([]))  # no job at all: nothing stands there
    if not isinstance(found, Form):
        raise SiteFault(f"{tool} -F json", f"{key} is no object", READS)
    return found, preface


def _text_of(value: object) -> str | None:
    """A value as text; None: it is of no single value."""
    if isinstance(value, bool):
        return str(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else None


class _Facts:
    """The facts of one job or node, each of the form that OpenPBS gives it."""

    def __init__(self, form: object, what: str) -> None:
        if not isinstance(form, Form):
            raise SiteFault(what, "is no object in the batch server's answer", READS)
        if form.doubled:
            raise SiteFault(what, f"{sorted(form.doubled)[0][:40]} stands twice in the batch server's answer")
        self._form = form
        self._what = what

    def text(self, key: str) -> str:
        value = _text_of(self._form.get(key, ""))
        if value is None:
            raise self.wrong(key, self._form[key])
        return value

    def number(self, key: str) -> int:
        value = self.text(key)
        if not re.fullmatch(r"-?[0-9]{1,12}|", value, re.ASCII):
            raise self.wrong(key, value)
        return int(value or 0)

    def texts(self, key: str) -> dict[str, str]:
        """Values by name; a name that a user gave twice has its last value."""
        form = self._form.get(key, Form([]))
        if not isinstance(form, Form):
            raise self.wrong(key, form)
        found = {name: _text_of(value) for name, value in form.items()}
        if None in found.values():
            raise self.wrong(key, form)
        return t.cast("dict[str, str]", found)

    def once(self, key: str, name: str) -> None:
        form = self._form.get(key)
        if isinstance(form, Form) and name in form.doubled:
            raise SiteFault(self._what, f"{key}.{name} stands twice in the batch server's answer")

    def wrong(self, key: str, value: object) -> SiteFault:
        return SiteFault(self._what, f"{key} is {str(value)[:40]!r}, which OpenPBS never writes", READS)


def _job(form: object, job_id: str, preface: str) -> BatchJob:
    facts = _Facts(form, f"job {job_id}")
    facts.once("Resource_List", RESOURCE)
    resources, variables = facts.texts("Resource_List"), facts.texts("Variable_List")
    owner, _at, host = facts.text("Job_Owner").rpartition("@")
    state = facts.text("job_state")
    request = resources.pop(RESOURCE, "")
    resources.pop("other", None)  # by this name the product knows its marker, and a site may have such a resource
    ours = request.startswith(PREFIX)
    return BatchJob(
        job_id=job_id,
        name=facts.text("Job_Name"),
        owner_user=owner or host,
        owner_host=host if owner else "",
        euser=facts.text("euser"),
        egroup=facts.text("egroup"),
        state=STATES.get(state, state),
        queue=facts.text("queue"),
        slot_hosts=parse_exec_host(facts.text("exec_host")),
        start_count=facts.number("run_count"),
        x=request if ours else "",
        jobtype="",
        init_work_dir="",  # a job starts in its user's home
        session_id=facts.number("session_id"),
        substate=facts.number("substate"),
        # the server has True, and a job that runs the port of its qsub
        interactive=facts.text("interactive") not in ("", "False", "0"),
        walltime_s=_seconds(resources.get("walltime", "")),
        variables=variables,
        submit_args=facts.text("Submit_arguments"),
        resource_list={**resources, **({"other": MARKER} if ours else {})},
        account=facts.text("Account_Name"),
        hold_types=facts.text("Hold_Types"),
        exit_status=facts.number("Exit_status") if facts.text("Exit_status") else None,
        comment=facts.text("comment"),
        started_s=_moment(facts.text("stime")),
        node_exclusive=bool({"excl", "exclhost"}.intersection(resources.get("place", "").split(":"))),
        preface=preface,
    )


def _read_odd_job(form: Form, job_id: str) -> BatchJob:
    """What can be read of a job that is out of form."""

    def text(key: str) -> str:
        return _text_of(form.get(key)) or ""

    hosts: tuple[str, ...] = ()
    with contextlib.suppress(SiteFault):
        hosts = parse_exec_host(text("exec_host"))
    resources = form.get("Resource_List")
    request = _text_of(resources.get(RESOURCE)) or "" if isinstance(resources, Form) else ""
    return odd_job(
        job_id,
        name=text("Job_Name"),
        owner=text("Job_Owner").rpartition("@")[0],
        euser=text("euser"),
        egroup=text("egroup"),
        state=STATES.get(text("job_state"), text("job_state")),
        queue=text("queue"),
        hosts=hosts,
        x=request if request.startswith(PREFIX) else "",
    )


def _seconds(text: str) -> int:
    """Seconds of `[[hours:]minutes:]seconds`, 0 when nothing is said."""
    if not re.fullmatch(r"([0-9]{1,9}:){0,2}[0-9]{1,9}|", text, re.ASCII):
        raise SiteFault(f"walltime {text[:40]!r}", "not of the form hours:minutes:seconds")
    units = zip(reversed(text.split(":")), (1, 60, 3600), strict=False)
    return sum(int(figure) * unit for figure, unit in units) if text else 0


def _moment(text: str) -> int:
    """Seconds since the epoch of `Wed Nov 25 13:21:49 2026`, in the time zone of this host; 0: nothing of that form."""
    form = r"[A-Z][a-z]{2} (?P<month>[A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})"
    found = re.fullmatch(form, text, re.ASCII)
    if not found or found["month"] not in _MONTHS:
        return 0
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return int(time.mktime((year, _MONTHS.index(found["month"]) + 1, day, hour, minute, second, 0, 0, -1)))
    except (ValueError, OverflowError):
        return 0


def _node(form: object, name: str, preface: str) -> BatchNode:
    what = f"pbsnodes: node {name[:80]!r}"
    facts = _Facts(form, what)
    resources = facts.texts("resources_available")
    slots, memory = resources.get("ncpus", "0"), resources.get("mem", "0kb")
    if not re.fullmatch(r"[0-9]{1,6}", slots, re.ASCII):
        raise facts.wrong("resources_available.ncpus", slots)
    size = re.fullmatch(r"([0-9]{1,15})(kb|mb|gb|tb|b)", memory, re.ASCII)
    if not size:
        raise facts.wrong("resources_available.mem", memory)
    exponent = {"b": 0, "kb": 1, "mb": 2, "gb": 3, "tb": 4}[size[2]]
    return BatchNode(
        name=name,
        states=frozenset(filter(None, facts.text("state").split(","))),
        slots=int(slots),
        memory_mib=int(size[1]) * 1024**exponent >> 20,
        # what a job may ask of it by name: a resource of the site's that is true here
        properties=frozenset(key for key, value in resources.items() if value == "True"),
        note=facts.text("comment"),
        jobs=_jobs_of(t.cast("Form", form).get("jobs", []), what),
        preface=preface,
    )


def _jobs_of(value: object, what: str) -> frozenset[str]:
    """The jobs of `["3.fe", "5[1].fe"]`, as JSON has them, or of `3.fe/0, 3.fe/1, 5[1].fe/2`, as the server does.

    `pbsnodes -F json` cuts the slot off and names a job once for all that stand side by side (23.06.06, and the sources
    of 2026-04-10: `encode_to_json`), so that no slot can be counted here: `resources_assigned` has how many.
    """
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) and _JOB.fullmatch(part) for part in parts if part):
        raise SiteFault(what, f"jobs is {str(value)[:40]!r}, which OpenPBS never writes", READS)
    return frozenset(part.partition("/")[0] for part in parts if part)

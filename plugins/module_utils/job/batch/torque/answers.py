# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of Torque's commands as jobs and nodes: XML that holds text of users.

Sites wrap qstat and pbsnodes.  Lines before the first one that begins with a tag are not Torque's, which writes nothing
there: they are passed over and quoted.  Text within an answer is an error, so that no user's text begins one.
"""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ET
from xml.parsers import expat

from ....errors import SiteFault
from ....text import printable
from ....wire.messages import HOST_NAME
from ..api import BatchJob, BatchNode, UnknownJob
from ..shared.exec_hosts import read_slots

_OF_GPUS = "-gpu"
_READ_ONCE = {
    "Job_Id",
    "Job_Name",
    "Job_Owner",
    "Account_Name",
    "euser",
    "egroup",
    "exec_host",
    "exec_gpus",
    "job_state",
    "queue",
    "x",
    "jobtype",
    "start_count",
    "session_id",
    "substate",
    "interactive",
    "init_work_dir",
    "Hold_Types",
    "submit_args",
    "Variable_List",
    "Resource_List",
    "exit_status",
    "comment",
    "node_exclusive",
}
_SLOTS = re.compile(rf"(?P<host>{HOST_NAME})/(?P<slots>[0-9]{{1,6}}(-[0-9]{{1,6}})?(,[0-9]{{1,6}}(-[0-9]{{1,6}})?)*)")
_FIRST_TAG = re.compile(r"^[ \t\ufeff]*<", re.MULTILINE)
_OF_TEXT = "\t\n\v\f\r\x1b"
"""Control characters that stand in text for people: blanks, and the colours of a terminal."""
_QUOTED = 120
"""How many characters of an answer a message repeats at most."""


def _tree(data: bytes, tool: str) -> tuple[ET.Element, str]:
    """Parse XML that holds text of users; return its root, and the first line of text that stands before it.

    A document type, and with it every entity, external or expanding, is refused where it begins; expat loads nothing
    by itself.  Torque passes on what the user wrote, but for `<>&'"`: bytes that are no UTF-8 and control characters,
    which no XML may hold, become U+FFFD instead of making the user's own job unreadable.
    """
    text = data.decode("utf-8", errors="replace")
    preface, text = _without_preface(text)
    text = "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)
    text = text.replace("\r", "&#13;")  # else XML takes it for a line feed
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(*_: object) -> t.NoReturn:
        raise SiteFault(f"{tool} -x", "its answer defines a document type: not read")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise SiteFault(f"{tool} -x", f"its answer is no XML: {error}{_quote_line(text, error)}") from error
    return builder.close(), preface


def _quote_line(text: str, error: expat.ExpatError) -> str:
    """Return what stands where XML ends to be one, shortened, with a colon before it; "" where nothing is left."""
    lines = text.split("\n")
    line = lines[min(error.lineno, len(lines)) - 1].encode()  # expat counts bytes
    near = line[max(0, error.offset - _QUOTED // 2) :][:_QUOTED].decode(errors="replace").strip()
    return f": {near!r}" if near else ""


def _without_preface(text: str) -> tuple[str, str]:
    """Return the first line of text before the XML, and the XML; "" and all of it where anything but text stands there.

    The commands of a site may be wrappers that print a warning first.  The XML begins at the first line that begins
    with a tag: no line of Torque's own answer stands before its first one, so that no user's text is looked through.
    """
    begin = _FIRST_TAG.search(text)
    before = text[: begin.start()] if begin else ""
    if begin is None or "<?xml" in before or any(c < " " and c not in _OF_TEXT for c in before):
        return "", text
    first = next((line for line in before.splitlines() if line.strip()), "")
    return printable(first.strip())[:_QUOTED], text[begin.start() :].lstrip()


def parse_job(data: bytes, job_id: str) -> BatchJob:
    """The job `job_id` out of what `qstat -x -f` wrote; it may hold others (the parent of an array, torque.md).

    Raises:
        UnknownJob: the answer holds no such job.
        SiteFault: the answer is no XML, or names the job or a fact of it twice, or a fact is out of form.
    """
    tree, preface = _tree(data, "qstat")
    jobs = [e for e in tree.iter("Job") if (e.findtext("Job_Id") or "").strip() == job_id]
    if not jobs:
        raise UnknownJob(f"job {job_id}", "the batch server's answer does not hold it")
    if len(jobs) > 1:
        raise SiteFault(f"job {job_id}", "stands twice in the batch server's answer")
    for tag in (tags := [child.tag for child in jobs[0]]):
        if tag in _READ_ONCE and tags.count(tag) > 1:
            raise SiteFault(f"job {job_id}", f"{tag} stands twice in the batch server's answer")
    return _job(jobs[0], job_id, preface)


def parse_jobs(data: bytes) -> tuple[BatchJob, ...]:
    """All jobs out of what `qstat -x -f` wrote.

    Raises:
        SiteFault: the answer is no XML, or a fact is out of form.
    """
    tree, preface = _tree(data, "qstat")
    found = ((element, (element.findtext("Job_Id") or "").strip()) for element in tree.iter("Job"))
    return tuple(_job(element, job_id, preface) for element, job_id in found)


def _job(element: ET.Element, job_id: str, preface: str) -> BatchJob:
    def text(tag: str) -> str:
        return (element.findtext(tag) or "").strip()

    def number(tag: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,12}|", text(tag), re.ASCII):
            raise SiteFault(f"job {job_id}", f"{tag} is {text(tag)[:40]!r}, not a number")
        return int(text(tag) or 0)

    resources = {child.tag: (child.text or "").strip() for child in element.findall("Resource_List/*")}
    owner, _at, host = text("Job_Owner").rpartition("@")
    return BatchJob(
        job_id=job_id,
        name=text("Job_Name"),
        owner_user=owner or host,
        owner_host=host if owner else "",
        euser=text("euser"),
        egroup=text("egroup"),
        state=text("job_state"),
        queue=text("queue"),
        slot_hosts=parse_exec_host(text("exec_host")),
        start_count=number("start_count"),
        x=text("x"),
        jobtype=text("jobtype"),
        init_work_dir=text("init_work_dir"),
        session_id=number("session_id"),
        substate=number("substate"),
        interactive=text("interactive").lower() in ("true", "1"),
        walltime_s=parse_walltime(resources.get("walltime", "")),
        variables=parse_variables(element.findtext("Variable_List") or ""),
        submit_args=text("submit_args"),
        resource_list=resources,
        account=text("Account_Name"),
        hold_types=text("Hold_Types"),
        exit_status=number("exit_status") if text("exit_status") else None,
        comment=text("comment"),
        started_s=number("start_time"),
        node_exclusive=text("node_exclusive").lower() in ("true", "1"),
        preface=preface,
        granted=parse_exec_gpus(text("exec_gpus")),
        rerunnable=text("Rerunable").lower() not in ("false", "0"),
    )


def parse_exec_host(text: str) -> tuple[str, ...]:
    """One host name per slot, in the server's order, of `t2/0-1+t1/0,2-3` or `node2/0+node2/1`.

    Args:
        text: as the server writes it; "" before the job was started.

    Returns:
        Host names; the first is the mother superior.

    Raises:
        SiteFault: another form; what it means would be a guess.
    """
    return read_slots(text, _SLOTS, "host/slots", _count_slots)


def _count_slots(slots: str | None) -> t.Iterator[int]:
    for piece in (slots or "").split(","):
        first, _dash, last = piece.partition("-")
        yield int(last or first) - int(first) + 1


def parse_exec_gpus(text: str) -> tuple[str, ...]:
    """The devices of `cn1-gpu/0+cn1-gpu/1`, as `BatchJob.granted` holds them: `cn1/gpus/0`, `cn1/gpus/1`.

    The server writes the name of the host, `-gpu`, and which of the host's (add_gpu_to_exec_gpus, node_manager.c).

    Args:
        text: as the server writes it; "" for a job that has none.

    Raises:
        SiteFault: another form; what it means would be a guess.
    """
    found = []
    for host in parse_exec_host(text):
        if not host.removesuffix(_OF_GPUS) or not host.endswith(_OF_GPUS):
            raise SiteFault(f"exec_gpus {text[:80]!r}", f"{host[:80]!r} is not of the form host{_OF_GPUS}")
    for part in text.split("+") if text else ():
        host, _slash, numbers = part.partition("/")
        for piece in numbers.split(","):
            first, _dash, last = piece.partition("-")
            found += [f"{host.removesuffix(_OF_GPUS)}/gpus/{n}" for n in range(int(first), int(last or first) + 1)]
    return tuple(found)


def parse_walltime(text: str) -> int:
    """Seconds of `[[[days:]hours:]minutes:]seconds`, 0 when nothing is said.

    Args:
        text: as the server writes it.

    Returns:
        Seconds.

    Raises:
        SiteFault: another form; what it means would be a guess.
    """
    if not re.fullmatch(r"([0-9]{1,9}:){0,3}[0-9]{1,9}|", text, re.ASCII):
        raise SiteFault(f"walltime {text[:40]!r}", "not of the form hours:minutes:seconds")
    units = zip(reversed(text.split(":")), (1, 60, 3600, 86400), strict=False)
    return sum(int(figure) * unit for figure, unit in units) if text else 0


def parse_variables(text: str) -> dict[str, str]:
    r"""The job's Variable_List, `A=1,B=two`.

    Torque puts a backslash before `" ' , \` and newlines in a value (encode_arst); older ones do not, so a part
    that does not begin as a variable belongs to the value before it.  Functions that bash exports (`-V`) have names
    of their own kind.

    Args:
        text: as the server writes it.

    Returns:
        Values by name.
    """
    variables: dict[str, str] = {}
    name = ""
    for part in re.findall(r"(?:^|,(?!\Z))((?:[^\\,]|\\.|\\$)*)", text, re.DOTALL):
        value = re.sub(r"\\([\"',\\\n])", r"\1", part)
        if begin := re.match(r"([A-Za-z_][A-Za-z0-9_.]*|BASH_FUNC_[^=\s]+(?:%%|\(\)))=", value):
            name = begin[1]
            variables[name] = value[begin.end() :]
        elif name:
            variables[name] += "," + value
    return variables


def parse_nodes(data: bytes) -> tuple[BatchNode, ...]:
    """The nodes out of what `pbsnodes -x` wrote.

    Args:
        data: the XML.

    Returns:
        Every node in it.

    Raises:
        SiteFault: the answer is no XML, or a figure in it is none.
    """
    tree, preface = _tree(data, "pbsnodes")
    return tuple(_node(element, preface) for element in tree.iter("Node"))


def _node(element: ET.Element, preface: str) -> BatchNode:
    def text(tag: str) -> str:
        return (element.findtext(tag) or "").strip()

    slots = text("np")
    if not re.fullmatch(r"[0-9]{1,6}", slots, re.ASCII):
        raise SiteFault(f"pbsnodes: node {text('name')[:80]!r}", f"np is {slots[:40]!r}, not a number")
    memory = re.search(r"(?:^|,)physmem=([0-9]{1,15})kb", text("status"), re.ASCII)
    # the MOM's own check (src/server/process_mom_update.c); the text may have commas of its own
    message = re.search(r"(?:^|,)message=(.{0,2000}?)(?=,[a-z_]{1,40}=|$)", text("status"), re.ASCII | re.DOTALL)
    return BatchNode(
        name=text("name"),
        states=frozenset(text("state").split(",")),
        slots=int(slots),
        memory_mib=int(memory[1]) // 1024 if memory else 0,
        properties=frozenset(filter(None, text("properties").split(","))),
        note=text("note"),
        jobs=parse_slots(text("jobs")),
        preface=preface,
        message=message[1] if message else "",
    )


def parse_slots(text: str) -> frozenset[str]:
    """The jobs of `0/12[1].th,1/12[2].th` (recorded), or of `0-1,3/7.th`, as exec_host has several slots of one job.

    Args:
        text: as the server writes it; "" for a node without jobs.

    Returns:
        Job ids; what is of another form stands for a job that nobody knows.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    slots = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?")
    return frozenset(
        part.partition("/")[2] if slots.fullmatch(part.partition("/")[0]) and "/" in part else part
        for part in parts
        if not slots.fullmatch(part)
    )

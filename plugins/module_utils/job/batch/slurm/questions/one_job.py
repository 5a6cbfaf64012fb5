# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One job, by questions about it alone: `squeue --json` answers with all jobs of the site.

Recorded on 22.05.8 and 24.11.5 (tests/fixtures/slurm).  squeue writes each field in a column of as many bytes as it was
asked for, so that a record has one length whatever users have written, line feeds too. What a job was given on each
node only `scontrol -d show job` tells, where their texts stand between Slurm's own lines.
"""

from __future__ import annotations

import re
import time
import typing as t

from .....effects import leaves_nothing
from .....errors import SiteFault
from .. import forms
from ..host_list import expand
from ..ids import read

Columns = t.Mapping[str, int]
Row = dict[str, str]

WHO: Columns = {
    "JobID": 12,
    "ArrayJobID": 12,
    "ArrayTaskID": 12,
    "HetJobID": 12,
    "HetJobOffset": 12,
    "Cluster": 42,
    "State": 24,
    "RestartCnt": 12,
}
"""What users cannot write, and how many bytes it may have."""
FACTS: Columns = {
    **WHO,
    "Reason": 64,
    "PriorityLong": 12,
    "UserName": 256,
    "GroupName": 256,
    "Partition": 256,
    "TimeLimit": 24,
    "StartTime": 32,
    "exit_code": 12,
    "OverSubscribe": 12,
    "BatchFlag": 4,
    "BatchHost": 256,
    "NumCPUs": 12,
    "NodeList": 8193,
    "Account": 1025,
    "Name": 1025,
    "WorkDir": 4097,
    "STDOUT": 4097,
    "Comment": 1025,
}
"""All that squeue tells; Slurm itself takes no longer texts of users."""
NOTHING = ("", "(null)", "n/a", "N/A")
OVERSUBSCRIBED = {"NO": "none", "YES": "shared"}
"""What squeue writes, and `squeue --json` for it (recorded)."""
EXCLUSIVE = re.compile(r"^   OverSubscribe=\w+ Exclusive=(\w+) ", re.MULTILINE)
"""Of `scontrol show job`, since 26.05 (read in src/scontrol/info_job.c of 26.05.3).  Until then a job that has its
nodes alone is the one with OverSubscribe=NO; since then NO is what most jobs have, and OK are those of a partition that
gives slots twice, with OverSubscribe=FORCE too (get_job_oversubscribe_value, src/common/slurm_protocol_defs.c)."""
HELD_WORDS = {"job requeued in held state": "JobHeldUser", "launch failed requeued held": "JobHeldUser"}
"""What squeue writes in the place of the reason, and the reason (recorded)."""
_LINE = r"     Nodes=({0}\S+) CPU_IDs=({0}(?:[0-9]+(?:-[0-9]+)?,?)*) Mem=({0}[0-9]+) GRES=({0}[^\n]*)\n"
GIVEN = re.compile(rf"\n((?:{_LINE.format('?:')})+)   MinCPUsNode=")
ON_NODES = re.compile(_LINE.format(""))
ASKED_DEVICES = re.compile(r"^   TresPer(Job|Node|Socket|Task)=(\S+) *$", re.MULTILINE)
"""Below the user's texts: whoever writes such a line asks for more, and never hides anything."""
MOMENT = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})")
LIMIT = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)")


def question(columns: Columns, name: str) -> tuple[str, ...]:
    """Return the command that asks for one job, in hidden partitions too.

    Args:
        columns: what is asked for.
        name: by which Slurm knows the job: its number, or `<array>_<member>`.
    """
    return "squeue", "-h", "-a", "-t", "all", "-j", name, "-O", _fields(columns)


def question_of_node(node: str) -> tuple[str, ...]:
    """Return the command that asks `WHO` of the jobs which have, or had, processors of a node, by Slurm's name."""
    return "squeue", "-h", "-a", "-t", "all", "-w", node, "-O", _fields(WHO)


def _fields(columns: Columns) -> str:
    return ",".join(f"{field}:{width}" for field, width in columns.items())


def read_rows(data: bytes, columns: Columns) -> list[Row]:
    """Read the answer to `question`: several jobs where the number is also that of an array or of a set of jobs.

    Raises:
        SiteFault: it is none.
    """
    size = sum(columns.values()) + 1
    records = [data[begin : begin + size] for begin in range(0, len(data), size)]
    if not all(len(record) == size and record.endswith(b"\n") for record in records):
        raise SiteFault("squeue", "its answer is not of the columns that were asked for")
    rows = []
    for record in records:
        row, begin = {}, 0
        for field, width in columns.items():
            row[field] = record[begin : begin + width].decode(errors="replace").rstrip(" ")
            begin += width
        rows.append(row)
    return rows


def pick(rows: t.Sequence[Row], **wanted: str) -> Row:
    """Return the one row with these fields.

    Raises:
        SiteFault: there is none, or several.
    """
    found = [row for row in rows if all(row[field] == value for field, value in wanted.items())]
    if len(found) != 1:
        raise SiteFault("squeue", f"its answer holds {len(found) or 'no'} such jobs: {wanted}")
    return found[0]


@leaves_nothing
def name_of(row: Row) -> str:
    """Return by which name Slurm's commands mean this job alone.

    The last member of an array to start keeps the array's own number, which in an order means all of them.
    """
    member = row["ArrayTaskID"]
    return f"{row['ArrayJobID']}_{member}" if member.isdecimal() else row["JobID"]


def question_of_detail(row: Row, name: str) -> tuple[str, ...]:
    """Return the command that asks what a job was given on each node.

    The number of a set of jobs is that of its first one, and means them all but with its offset (tried on 22.05.8).

    Args:
        row: of the job.
        name: `name_of` it.
    """
    first = row["HetJobID"] == row["JobID"]
    return "scontrol", "-d", "show", "job", f"{name}+0" if first else name


def id_of(row: Row) -> str:
    """Return the job's id in the product's form.

    Raises:
        SiteFault: a part of it is of another form.
    """
    return read(row["JobID"], row["Cluster"])


def form_of(row: Row, detail: str) -> dict[str, t.Any]:
    """Return a job as `squeue --json` has it, as far as it is read (`answers`).

    Args:
        row: of `FACTS`.
        detail: what `scontrol -d show job` says of it.

    Raises:
        SiteFault: a fact is of another form.
    """
    what = f"job {row['JobID']}"
    if len(row["NodeList"].encode()) >= FACTS["NodeList"]:
        raise SiteFault(what, "the names of its nodes are longer than squeue was asked for")
    member = row["ArrayTaskID"]
    given, admin_comment, devices = read_detail(detail, row)
    return {
        "job_id": _number(row, "JobID"),
        "cluster": row["Cluster"],
        "array_job_id": _number(row, "ArrayJobID") if member not in NOTHING else 0,
        "array_task_id": int(member) if member.isdecimal() else None,
        "het_job_id": int(row["HetJobID"]) if row["HetJobID"].isdecimal() else 0,
        "het_job_offset": int(row["HetJobOffset"]) if row["HetJobOffset"].isdecimal() else 0,
        "job_state": row["State"],
        "state_reason": HELD_WORDS.get(row["Reason"], row["Reason"]),
        "priority": _number(row, "PriorityLong"),
        "restart_cnt": _number(row, "RestartCnt"),
        "user_name": row["UserName"],
        "group_name": row["GroupName"],
        "partition": row["Partition"],
        "time_limit": _minutes(row["TimeLimit"]),
        "start_time": _moment(row["StartTime"]),
        "exit_code": forms.exit_code(row["exit_code"], what),
        "shared": _sharing(row["OverSubscribe"], detail),
        "batch_flag": row["BatchFlag"] == "1",
        "batch_host": _text(row, "BatchHost"),
        "nodes": _text(row, "NodeList"),
        "account": _text(row, "Account"),
        "name": row["Name"],
        "current_working_directory": row["WorkDir"],
        "standard_output": _text(row, "STDOUT"),
        "comment": _text(row, "Comment"),
        "admin_comment": admin_comment,
        "given": given,
        **devices,
    }


def read_detail(detail: str, row: Row) -> tuple[list[tuple[str, int, int]] | None, str, dict[str, t.Any]]:
    """Read what `scontrol -d show job` says of a job, between texts of its user that may look like it.

    Args:
        detail: all that it wrote.
        row: of the job.

    Returns:
        By host its processors and MiB, the administrators' word, and by the names of `squeue --json` which generic
        resources were asked for and given; None for the first: nobody can tell it from what the user wrote.
    """
    # only what the user wrote can be between Slurm's own lines: all of it is looked through, and nothing cut off
    head = re.match(
        rf"JobId={row['JobID']}(?: [A-Z]\w+=\S+)* JobName={re.escape(row['Name'])} *\n"
        # SLUID: since 25.11 (read in src/scontrol/info_job.c)
        r"(?:   SLUID=\S+\n)?(?:   HetJobIdSet=\S+\n)?   UserId=",
        detail,
    )
    if head is None:  # such as a job that its owner has given another name meanwhile
        return None, "", {}
    rest = detail[head.end() :]
    word = re.search(r"^   AdminComment=(.*?) *$", rest, re.MULTILINE)
    parts = _parts_given(rest, row)
    given = None if parts is None else [part[:3] for part in parts]
    by_host = [(part[0], part[3]) for part in parts or ()]
    devices: dict[str, t.Any] = {f"tres_per_{what.lower()}": text for what, text in ASKED_DEVICES.findall(rest)}
    devices["gres_by_host"] = by_host
    devices["gres_detail"] = [gres for _host, gres in by_host if gres]
    return given, word[1] if word else "", devices


def _parts_given(text: str, row: Row) -> list[tuple[str, int, int, str]] | None:
    """Return the host, processors, MiB and generic resources of each part of a job; None: its user wrote a part."""
    if row["NodeList"] in NOTHING:
        return []
    blocks = GIVEN.findall(text)
    if len(blocks) != 1:
        return None
    parts = [
        (host, _count(processors), int(memory), gres)
        for hosts, processors, memory, gres in ON_NODES.findall(blocks[0])
        for host in expand(hosts)
    ]
    hosts, on = [host for host, *_part in parts], set(expand(row["NodeList"]))
    # a job that ends leaves its nodes one by one
    there = on <= set(hosts) if row["State"] == "COMPLETING" else on == set(hosts)
    return _in_slots(parts, row) if there and len(hosts) == len(set(hosts)) else None


def _in_slots(parts: list[tuple[str, int, int, str]], row: Row) -> list[tuple[str, int, int, str]]:
    """Return the parts with Slurm's own count of processors: CPU_IDs has a core's threads also where CPUs= has cores.

    Seen on 22.05.8 with CPUs=4 CoresPerSocket=4 ThreadsPerCore=2: NumCPUs=2 and CPU_IDs=0-3.
    """
    listed, counted = sum(processors for _host, processors, *_rest in parts), _number(row, "NumCPUs")
    if listed <= counted:
        return parts
    return [(host, processors * counted // listed, mib, gres) for host, processors, mib, gres in parts]


def _count(processors: str) -> int:
    """How many there are in `0-1,4`."""
    ends = [part.partition("-") for part in processors.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _dash, last in ends)


def _text(row: Row, field: str) -> str:
    return "" if row[field] in NOTHING else row[field]


def _number(row: Row, field: str) -> int:
    text = row[field]
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise SiteFault(f"job {row['JobID']}", f"{field} is {text[:40]!r}, which cannot be read", forms.READS)
    return int(text)


def _sharing(column: str, detail: str) -> str | None:
    """Return how a job shares its nodes, as `squeue --json` of 22.05 has it; its user cannot make it alone."""
    alone = EXCLUSIVE.findall(detail)
    if not alone:
        return OVERSUBSCRIBED.get(column)
    if column != "NO":
        return "shared"
    return "none" if set(alone) == {"NODE"} else None


def _minutes(text: str) -> int | None:
    """None: there is no limit, or Slurm has a word for it."""
    parts = LIMIT.fullmatch(text)
    if parts is None:
        return None
    days, hours, minutes, _seconds = (int(part or 0) for part in parts.groups())
    return (days * 24 + hours) * 60 + minutes


def _moment(text: str) -> int:
    """Seconds since the epoch; 0: not yet."""
    parts = MOMENT.fullmatch(text)
    if parts is None:
        return 0
    # by hand, as strptime and datetime cost a hook their import
    year, month, day, hour, minute, second = map(int, parts.groups())
    return int(time.mktime((year, month, day, hour, minute, second, 0, 0, -1)))

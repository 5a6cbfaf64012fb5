# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qstat` and `pbsnodes`, worded by the server for the small program that a node runs (`commands/look_client.py`)."""

from __future__ import annotations

import typing as t

from ..shared import show
from ..shared.options import UsageError, parse

Ask = t.Callable[[dict[str, t.Any]], dict[str, t.Any]]
"""Takes a request of whoever looks, gives the server's answer to it."""

HEADER = (
    "Job ID                    Name             User            Time Use S Queue\n"
    "------------------------- ---------------- --------------- -------- - -----\n"
)
WIDTH = 25


class Said(t.NamedTuple):
    """What a command writes, and its exit status."""

    status: int
    out: str = ""
    err: str = ""

    def encode(self) -> bytes:
        """As `commands/look_client.py` reads it: status and length of the output in a line, then the two texts."""
        out, err = (text.encode(errors="surrogateescape") for text in (self.out, self.err))
        return b"%d %d\n%s%s" % (self.status, len(out), out, err)


def qstat(arguments: list[str], ask: Ask, server: str) -> Said:
    """Jobs, in short, in full (-f) or as XML (-x)."""
    try:
        options, operands = parse(arguments, "f1xtu:")
    except UsageError as error:
        usage = "usage: qstat [-f [-1]] [-x] [-t] [-u user] [job_identifier...]"
        return Said(2, err=f"qstat: {error}\n{usage}\n")
    chosen = dict(options)
    found: list[tuple[str, dict[str, str], list[show.Attribute]]] = []
    status, complaints = 0, ""
    for job_id in operands or [""]:
        expand = "t" in chosen or ("x" in chosen and job_id.partition(".")[0].endswith("[]"))
        answer = ask({"op": "status", "job": job_id, "expand": expand})
        if answer["code"]:
            full = job_id if "." in job_id else f"{job_id}.{server}"
            complaints += f"qstat: {answer['text']} {full}\n"
            status = int(answer["code"]) & 0xFF
            continue
        for name, printed in answer["jobs"]:
            plain = {key: value for key, resource, value in printed if not resource}
            if chosen.get("u") in (None, plain["euser"]):
                found.append((name, plain, [(key, resource, value) for key, resource, value in printed]))
    return Said(status, _shown(found, chosen), complaints)


def _shown(found: list[tuple[str, dict[str, str], list[show.Attribute]]], chosen: dict[str, str]) -> str:
    if not found:
        return ""
    if "x" in chosen:
        jobs = "".join(show.job_xml(name, printed) for name, _plain, printed in found)
        return f'<?xml version="1.0"?>\n<Data>{jobs}</Data>\n'
    if "f" in chosen:
        return "".join(show.job_text(name, printed, "1" in chosen) for name, _plain, printed in found)
    return HEADER + "".join(_row(name, plain, printed) for name, plain, printed in found)


def _row(job_id: str, plain: dict[str, str], printed: list[show.Attribute]) -> str:
    """One line of the table; long ids keep their number and as much of the server as fits."""
    used = {resource: value for name, resource, value in printed if name == "resources_used"}
    name = plain["Job_Name"]
    short = name if len(name) <= 16 else "..." + name[-13:]
    return (
        f"{job_id[:WIDTH]:<26} {short:<16} {plain['euser'][:15]:<15} {used.get('cput', '0'):>8} "
        f"{plain['job_state']} {plain['queue']:<15}\n"
    )


def pbsnodes(arguments: list[str], ask: Ask, host: str) -> Said:
    """Nodes, in full, as XML (-x) or as a list (-l); -o, -c and -N change them."""
    try:
        options, operands = parse(arguments, "axlnocrN:q")
    except UsageError as error:
        usage = "usage: pbsnodes [-a] [-x] [-l [-n]] [-o|-c|-r] [-N note] [node...]"
        return Said(2, err=f"pbsnodes: {error}\n{usage}\n")
    chosen = dict(options)
    if chosen.keys() & {"o", "c", "r", "N"}:
        return _change_nodes(chosen, operands or ([host] if "N" in chosen else []), ask)
    state = operands.pop(0) if "l" in chosen and operands and operands[0] in STATES else ""
    answer = ask({"op": "nodes", "nodes": operands})
    if answer["code"]:
        parts = f"pbsnodes: Error (15064 - {answer['text']}) MSG=cannot locate specified node\n"
        return Said(int(answer["code"]) & 0xFF, err=parts)
    nodes = [(name, [(key, resource, value) for key, resource, value in printed]) for name, printed in answer["nodes"]]
    if "x" in chosen:
        text = "<Data>" + "".join(show.node_xml(name, printed) for name, printed in nodes) + "</Data>\n"
    elif "l" in chosen:
        text = "".join(_node_line(name, dict((k, v) for k, _r, v in printed), state, chosen) for name, printed in nodes)
    else:
        text = "\n".join(show.node_text(name, printed) for name, printed in nodes) + "\n"
    return Said(0, text)


STATES = frozenset({"free", "offline", "down", "job-exclusive", "up", "active", "all"})


def _node_line(name: str, printed: dict[str, str], wanted: str, chosen: t.Container[str]) -> str:
    states = printed["state"].split(",")
    lists = {
        "": {"down", "offline"} & set(states),
        "all": states,
        "up": not {"down", "offline"} & set(states),
        "active": printed.get("jobs"),
    }
    if not lists.get(wanted, wanted in states):
        return ""
    note = f"  {printed.get('note', '')}" if "n" in chosen else ""
    return f"{name:<20} {printed['state']}{note}\n"


def _change_nodes(chosen: dict[str, str], operands: list[str], ask: Ask) -> Said:
    if not operands:
        return Said(1, err="pbsnodes: no node specified\n")
    offline = True if "o" in chosen else False if chosen.keys() & {"c", "r"} else None
    request = {"op": "set-nodes", "nodes": operands, "offline": offline, "note": chosen.get("N")}
    answer = ask(request)
    if answer["code"]:
        message = f"Error marking node {operands[0]} - {answer['code']} {answer['text']}\n"
        return Said(int(answer["code"]) & 0xFF, err=message)
    return Said(0)

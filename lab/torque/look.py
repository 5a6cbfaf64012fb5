# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qstat` and `pbsnodes`."""

from __future__ import annotations

import os
import sys

from . import show
from .options import UsageError, ask, parse

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t

HEADER = (
    "Job ID                    Name             User            Time Use S Queue\n"
    "------------------------- ---------------- --------------- -------- - -----\n"
)
WIDTH = 25


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
    sys.stdout.flush()


def qstat(arguments: list[str]) -> int:
    """Jobs, in short, in full (-f) or as XML (-x)."""
    try:
        options, operands = parse(arguments, "f1xtu:")
    except UsageError as error:
        sys.stderr.write(f"qstat: {error}\nusage: qstat [-f [-1]] [-x] [-t] [-u user] [job_identifier...]\n")
        return 2
    chosen = dict(options)
    found: list[tuple[str, dict[str, str], list[show.Attribute]]] = []
    status = 0
    for job_id in operands or [""]:
        expand = "t" in chosen or ("x" in chosen and job_id.partition(".")[0].endswith("[]"))
        answer = ask("qstat", {"op": "status", "job": job_id, "expand": expand})
        if answer["code"]:
            full = job_id if "." in job_id else f"{job_id}.{_server()}"
            sys.stderr.write(f"qstat: {answer['text']} {full}\n")
            status = int(answer["code"]) & 0xFF
            continue
        for name, shown in answer["jobs"]:
            plain = {key: value for key, resource, value in shown if not resource}
            if chosen.get("u") in (None, plain["euser"]):
                found.append((name, plain, [(key, resource, value) for key, resource, value in shown]))
    _show(found, chosen)
    return status


def _server() -> str:
    from .options import site

    return site().server


def _show(found: list[tuple[str, dict[str, str], list[show.Attribute]]], chosen: dict[str, str]) -> None:
    if "x" in chosen:
        if found:
            jobs = "".join(show.job_xml(name, shown) for name, _plain, shown in found)
            _write(f'<?xml version="1.0"?>\n<Data>{jobs}</Data>\n')
    elif "f" in chosen:
        _write("".join(show.job_text(name, shown, "1" in chosen) for name, _plain, shown in found))
    elif found:
        _write(HEADER + "".join(_row(name, plain, shown) for name, plain, shown in found))


def _row(job_id: str, plain: dict[str, str], shown: list[show.Attribute]) -> str:
    """One line of the table; long ids keep their number and as much of the server as fits."""
    used = {resource: value for name, resource, value in shown if name == "resources_used"}
    name = plain["Job_Name"]
    short = name if len(name) <= 16 else "..." + name[-13:]
    return (
        f"{job_id[:WIDTH]:<26} {short:<16} {plain['euser'][:15]:<15} {used.get('cput', '0'):>8} "
        f"{plain['job_state']} {plain['queue']:<15}\n"
    )


def pbsnodes(arguments: list[str]) -> int:
    """Nodes, in full, as XML (-x) or as a list (-l); -o, -c and -N change them."""
    try:
        options, operands = parse(arguments, "axlnocrN:q")
    except UsageError as error:
        sys.stderr.write(f"pbsnodes: {error}\nusage: pbsnodes [-a] [-x] [-l [-n]] [-o|-c|-r] [-N note] [node...]\n")
        return 2
    chosen = dict(options)
    if chosen.keys() & {"o", "c", "r", "N"}:
        return _change_nodes(chosen, operands)
    state = operands.pop(0) if "l" in chosen and operands and operands[0] in STATES else ""
    answer = ask("pbsnodes", {"op": "nodes", "nodes": operands})
    if answer["code"]:
        sys.stderr.write(f"pbsnodes: Error (15064 - {answer['text']}) MSG=cannot locate specified node\n")
        return int(answer["code"]) & 0xFF
    nodes = [(name, [(key, resource, value) for key, resource, value in shown]) for name, shown in answer["nodes"]]
    if "x" in chosen:
        _write("<Data>" + "".join(show.node_xml(name, shown) for name, shown in nodes) + "</Data>\n")
    elif "l" in chosen:
        _write("".join(_node_line(name, dict((k, v) for k, _r, v in shown), state, chosen) for name, shown in nodes))
    else:
        _write("\n".join(show.node_text(name, shown) for name, shown in nodes) + "\n")
    return 0


STATES = frozenset({"free", "offline", "down", "job-exclusive", "up", "active", "all"})


def _node_line(name: str, shown: dict[str, str], wanted: str, chosen: t.Container[str]) -> str:
    states = shown["state"].split(",")
    lists = {
        "": {"down", "offline"} & set(states),
        "all": states,
        "up": not {"down", "offline"} & set(states),
        "active": shown.get("jobs"),
    }
    if not lists.get(wanted, wanted in states):
        return ""
    note = f"  {shown.get('note', '')}" if "n" in chosen else ""
    return f"{name:<20} {shown['state']}{note}\n"


def _change_nodes(chosen: dict[str, str], operands: list[str]) -> int:
    if not operands:
        operands = [os.uname().nodename.partition(".")[0]] if "N" in chosen else []
    if not operands:
        sys.stderr.write("pbsnodes: no node specified\n")
        return 1
    offline = True if "o" in chosen else False if chosen.keys() & {"c", "r"} else None
    request = {"op": "set-nodes", "nodes": operands, "offline": offline, "note": chosen.get("N")}
    answer = ask("pbsnodes", request)
    if answer["code"]:
        sys.stderr.write(f"Error marking node {operands[0]} - {answer['code']} {answer['text']}\n")
        return int(answer["code"]) & 0xFF
    return 0

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qdel`, `qsig`, `qhold`, `qrls`, `qrerun`, `qalter`, `qmgr` and `momctl`."""

from __future__ import annotations

import sys

from ..shared.options import UsageError, ask, parse, site

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t

    Request = dict[str, t.Any]


def _each(command: str, operands: t.Sequence[str], request: Request) -> int:
    """Send the request for each job; the last failure is the status."""
    if not operands:
        sys.stderr.write(f"usage: {command} [options] job_identifier...\n")
        return 2
    status = 0
    for job_id in operands:
        answer = ask(command, {**request, "job": job_id})
        if answer["code"]:
            full = job_id if "." in job_id else f"{job_id}.{site().server}"
            sys.stderr.write(f"{command}: {answer['text']} {full}\n")
            status = int(answer["code"]) & 0xFF
    return status


def _run(command: str, arguments: list[str], letters: str, request: t.Callable[[dict[str, str]], Request]) -> int:
    try:
        options, operands = parse(arguments, letters)
        return _each(command, operands, request(dict(options)))
    except UsageError as error:
        sys.stderr.write(f"{command}: {error}\n")
        return 2


def qdel(arguments: list[str]) -> int:
    """Delete jobs; `-W seconds` between TERM and KILL, `-p` makes the server forget them."""

    def request(options: dict[str, str]) -> Request:
        delay = options.get("W")
        if delay is not None and not delay.isdigit():
            raise UsageError("illegal -W value")
        return {"op": "delete", "delay": None if delay is None else int(delay), "purge": "p" in options}

    if "all" in arguments:
        jobs = ask("qdel", {"op": "status", "job": "", "expand": False})["jobs"]
        ids = [name for name, printed in jobs if ["job_state", "", "C"] not in printed]
        arguments = [word for word in arguments if word != "all"] + ids
        if not ids:
            return 0
    return _run("qdel", arguments, "m:pW:", request)


def qsig(arguments: list[str]) -> int:
    """Send a signal (TERM), or suspend and resume."""
    return _run("qsig", arguments, "s:", lambda options: {"op": "signal", "signal": options.get("s", "SIGTERM")})


def qhold(arguments: list[str]) -> int:
    """Hold jobs: u, o, s."""
    return _run("qhold", arguments, "h:", lambda options: {"op": "hold", "holds": options.get("h", "u")})


def qrls(arguments: list[str]) -> int:
    """Release jobs."""
    return _run("qrls", arguments, "h:", lambda options: {"op": "release", "holds": options.get("h", "u")})


def qrerun(arguments: list[str]) -> int:
    """Kill and queue again."""
    return _run("qrerun", arguments, "", lambda _options: {"op": "rerun"})


def qalter(arguments: list[str]) -> int:
    """Change some attributes of jobs."""

    def request(_options: dict[str, str]) -> Request:
        from .submit import split_additional, split_list

        options, _operands = parse(arguments, "A:l:N:p:r:S:v:W:")
        changes: Request = {}
        plain = {"A": "account", "N": "name", "S": "shell"}
        for letter, value in options:
            if letter in plain:
                changes[plain[letter]] = value
            elif letter == "p":
                changes["priority"] = _number(value)
            elif letter == "r":
                changes["rerunable"] = value == "y"
            elif letter == "W":
                changes.update(split_additional(value))
            else:
                key = "resources" if letter == "l" else "variables"
                changes[key] = dict(part.partition("=")[::2] for part in split_list(value))
        return {"op": "alter", "changes": changes}

    return _run("qalter", arguments, "A:l:N:p:r:S:v:W:", request)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError("illegal -p value") from None


def qmgr(arguments: list[str]) -> int:
    """`print server`, `set server managers|operators|keep_completed = += -= VALUE`, `set node NAME properties ...`."""
    try:
        options, operands = parse(arguments, "c:")
    except UsageError as error:
        sys.stderr.write(f"qmgr: {error}\n")
        return 2
    fields = dict(options).get("c", "").split()
    request = {"op": "manage", "name": "", "sign": "", "value": "", "node": ""}
    if fields[:1] in (["s"], ["set"]) and fields[1:2] in (["s"], ["server"]) and len(fields) == 5:
        request.update(name=fields[2], sign=fields[3], value=fields[4])
    elif fields[:1] in (["s"], ["set"]) and fields[1:2] in (["n"], ["node"]) and len(fields) == 6:
        request.update(node=fields[2], name=fields[3], sign=fields[4], value=fields[5])
    elif operands or fields[:1] not in (["p"], ["print"]) or fields[1:] not in (["s"], ["server"]):
        sys.stderr.write("qmgr: only print server, set server and set node are known here\n")
        return 2
    answer = ask("qmgr", request)
    if answer["code"]:
        sys.stderr.write(f"qmgr obj={request['node']} svr=default: {answer['text']}\n")
        return int(answer["code"]) & 0xFF
    if not request["name"]:
        sys.stdout.write(_print_server(answer))
    return 0


def _print_server(answer: Request) -> str:
    lines = ["create queue batch", "set queue batch queue_type = Execution"]
    lines += ["set queue batch resources_default.nodes = 1", "set queue batch resources_default.walltime = 01:00:00"]
    lines += ["set queue batch enabled = True", "set queue batch started = True", "set server scheduling = True"]
    for name in ("managers", "operators"):
        for number, value in enumerate(answer[name]):
            lines.append(f"set server {name} {'+=' if number else '='} {value}")
    lines += ["set server default_queue = batch", "set server query_other_jobs = True"]
    lines += ["set server down_on_error = True", f"set server keep_completed = {answer['keep_completed']:g}"]
    lines += [f"set server next_job_number = {answer['next_job_number']}", "set server note_append_on_error = True"]
    return "\n".join(lines) + "\n"


def momctl(arguments: list[str]) -> int:
    """`-d LEVEL` shows a MOM, `-q clearmsg` ends its fault."""
    from ..shared import wire

    try:
        options, operands = parse(arguments, "d:h:q:r:")
    except UsageError as error:
        sys.stderr.write(f"momctl: {error}\n")
        return 2
    chosen = dict(options)
    what = chosen.get("q", "diagnose")
    if operands or "r" in chosen or what not in ("clearmsg", "diagnose"):
        # `-r FILE` would send a MOM another configuration
        sys.stderr.write("momctl: only -d and -q clearmsg are known here\n")
        return 2
    here = site()
    try:
        path = wire.mom_socket(here.sockets, chosen.get("h", here.host))
        answer = wire.ask(path, {"op": "momctl", "what": what})
    except (ConnectionRefusedError, PermissionError) as error:
        sys.stderr.write(f"momctl: cannot connect to MOM on {chosen.get('h', here.host)}: {error.strerror}\n")
        return 1
    sys.stdout.write(answer["text"] + "\n")
    return 0

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must work for root on a node with the batch server, tried without changing anything.

The doctor imports it.  As a program, which the role for nodes runs with whatever Python is there before anything is
installed (so nothing of the collection is imported here), it writes one line of JSON: `faults`, sentences of what
does not work, and `words`, what an administrator should know.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import typing as t

TIMEOUT_S = 20.0
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
"""As `system/process/environment.py` has it for tools, which this program cannot import where it runs by itself."""
NO_JOB = "99999999"
"""The last number before Torque begins again at 0 (PBS_SEQNUMTOP), which is the first job of a new server."""
NO_NODE = "nowhere.invalid"
"""No host's name (RFC 2606)."""

SERVER_GONE = 111
COMMANDS = ("qsub", "qstat", "qhold", "qalter", "pbsnodes")
"""What the product calls on a node."""


class CommandFailed(Exception):
    """A command of Torque's did not do what it should."""


class ServerSilent(CommandFailed):
    """The batch server did not answer: nothing is known of anybody's rights."""


class Tools(t.NamedTuple):
    """Torque's commands.

    Attributes:
        place: their directory.
        timeout_s: seconds for each call.
    """

    place: pathlib.Path
    timeout_s: float = TIMEOUT_S


def run(tools: Tools, name: str, *arguments: str) -> tuple[int, str, str]:
    """Status, output and complaint of a command, which has an end.

    Raises:
        CommandFailed: it cannot be run, or had no end.
    """
    program = tools.place / name
    try:
        done = subprocess.run(
            [str(program), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=tools.timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
            env=ENVIRONMENT,
        )
    except subprocess.TimeoutExpired:
        raise ServerSilent(f"{program} {' '.join(arguments)}: no answer in {tools.timeout_s:.0f} s") from None
    except OSError as error:
        raise CommandFailed(f"{program}: {error.strerror}") from error
    complaint = " ".join(done.stderr.split())[:300]
    if done.returncode == SERVER_GONE:
        raise ServerSilent(f"{program} {' '.join(arguments)}: {complaint or 'the batch server cannot be reached'}")
    return done.returncode, done.stdout, complaint


def short(name: str) -> str:
    """A host's name without its domain."""
    return name.partition(".")[0].lower()


def missing(tools: Tools) -> list[str]:
    """The commands of Torque's that are not where the site says."""
    return [name for name in COMMANDS if not os.access(tools.place / name, os.X_OK)]


def try_qstat(tools: Tools, _node: str) -> None:
    """`qstat -f` of a job that cannot be: the hooks ask for their job by it.

    Not of all jobs: many nodes try it at once, and a queue is long.
    """
    status, _output, complaint = run(tools, "qstat", "-f", NO_JOB)
    if "unknown job" not in complaint.lower():
        answer = complaint or f"nothing (status {status})"
        raise CommandFailed(f"qstat -f of a job that is not there should say so, and says: {answer}")


def names_of(tools: Tools, *nodes: str) -> list[str]:
    """The names that `pbsnodes -x` tells.

    Nothing else of its answer is read, nor taken for XML: anybody's notes and messages stand in it, and a `<` of
    theirs comes as a control character (u_MXML.c), which XML may not hold.

    Raises:
        CommandFailed: the server does not tell.
    """
    status, output, complaint = run(tools, "pbsnodes", "-x", *nodes)
    if status:
        raise CommandFailed(f"pbsnodes -x ended with {status}: {complaint}")
    return re.findall(r"<Node>\s*<name>([^<>]+)</name>", output)


def demand_node(tools: Tools, node: str) -> None:
    """The server must know this node; only one that it knows by another form of its name makes it tell of all."""
    try:
        if node in names_of(tools, node):
            return
    except ServerSilent:
        raise
    except CommandFailed:
        pass
    names = names_of(tools)
    if short(node) not in map(short, names):
        raise CommandFailed(f"the batch server has no node {node} (it has {', '.join(sorted(names)[:5]) or 'none'})")


def try_note(tools: Tools, node: str) -> None:
    """`pbsnodes -N` for a node that cannot be: only an operator is told that there is none.

    The server looks at the right first (TORQUE 6: req_manager.c, req_manager before mgr_node_set).  No note is
    written: one that came between a look and a word of ours would be lost.
    """
    demand_node(tools, node)
    _status, _output, complaint = run(tools, "pbsnodes", "-N", "", NO_NODE)
    if "unknown node" not in complaint.lower():
        answer = complaint or "nothing"
        raise CommandFailed(f"pbsnodes -N: {answer} (qmgr -c 's s operators += root@{node}' on the front end)")


def try_hold(tools: Tools, _node: str) -> None:
    """`qhold -h u` of a job that cannot be: the server must say that there is none, and nothing else."""
    _status, _output, complaint = run(tools, "qhold", "-h", "u", NO_JOB)
    if "unknown job" not in complaint.lower():
        raise CommandFailed(f"qhold -h u of a job that is not there should say so, and says: {complaint or 'nothing'}")


ATTEMPTS: tuple[tuple[str, t.Callable[[Tools, str], None]], ...] = (
    ("qstat -f", try_qstat),
    ("pbsnodes -N", try_note),
    ("qhold", try_hold),
)
"""What hooks and the sweep do, and how each is tried."""


def server_settings(output: str) -> list[tuple[str, str]]:
    """Names and values of what `qmgr -c "print server"` wrote; a name may stand there several times.

    Args:
        output: what it wrote.
    """
    return re.findall(r"^set server (\S+) \+?= (.*)$", output, re.MULTILINE)


def find_wrong_settings(tools: Tools, node: str) -> list[str]:
    """What of the server's settings should be otherwise."""
    try:
        status, output, _complaint = run(tools, "qmgr", "-c", "print server")
    except CommandFailed:
        return []
    if status:
        return []
    lines = []
    settings = server_settings(output)
    for value in (value for name, value in settings if name == "managers"):
        user, _at, host = value.partition("@")
        if user == "root" and short(host) == short(node):
            lines.append(f"root@{node} is a manager of the batch server: an operator is enough, and less dangerous")
    if ("query_other_jobs", "True") not in settings:
        lines.append(
            "query_other_jobs is not True: qmgr -c 's s query_other_jobs = True' lets nodes and users see jobs"
        )
    return lines


def main() -> None:
    """Try all of it, and tell."""
    sys.stdout.write(json.dumps(found()) + "\n")


def found() -> dict[str, list[str]]:
    """What the role asks: `faults`, for which this host is no node yet, and `words` for its administrator."""
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=pathlib.Path, help="the directory of Torque's commands")
    tools = Tools(parser.parse_args().place)
    node = socket.gethostname()
    absent = missing(tools)
    if absent:
        problem = f"{', '.join(absent)} of Torque not in {tools.place}: vtorque_pbs_qsub_on_nodes must name its qsub"
        return {"faults": [problem], "words": []}
    faults = []
    for _name, attempt in ATTEMPTS:
        try:
            attempt(tools, node)
        except CommandFailed as error:
            faults.append(str(error))
    return {"faults": faults, "words": find_wrong_settings(tools, node)}


if __name__ == "__main__":
    main()

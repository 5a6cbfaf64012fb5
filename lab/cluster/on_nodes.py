# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run commands on the nodes of a cluster that is up: a user's, sweeps, and the look for what is left of jobs."""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import typing as t

from ..system.places import OWN_VENV
from ..system.state import FRONT_END, Facts, LabError, State


def command(facts: Facts, node: str, arguments: t.Sequence[str], *, user: str = "root", cwd: str = "") -> list[str]:
    """The command line that runs `arguments` on a node, in a clean environment like that of a login.

    Args:
        user: one of the node's users.
        cwd: where; the user's home when empty.

    Raises:
        LabError: there is no such node, or it is lost.
    """
    return enter(facts.init(node).pid, arguments, user=user, cwd=cwd)


def enter(init: int, arguments: t.Sequence[str], *, user: str = "root", cwd: str = "") -> list[str]:
    """See `command`; for whoever knows the number of the node's process 1, as one outside of its machine does."""
    home = "/root" if user == "root" else f"/home/{user}"
    path = "/opt/vtorque/bin:/usr/local/bin:/usr/bin:/bin"
    environment = {
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "PATH": path + (":/usr/local/sbin:/usr/sbin:/sbin" if user == "root" else ""),
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
    }
    # runuser and env run in the node: its users, its directories
    become = [] if user == "root" else ["/usr/sbin/runuser", "-u", user, "--"]
    clean = [
        "/usr/bin/env",
        "-i",
        f"--chdir={cwd or home}",
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    return ["/usr/bin/nsenter", "-t", str(init), "-a", "--", *become, *clean, *arguments]


def left(facts: Facts) -> dict[str, list[str]]:
    """Return what there is of jobs on each node at this moment, in words (leftovers.py).

    Raises:
        LabError: a node that lives does not say it.
    """
    arguments = ["/usr/bin/env", "PYTHONPATH=/opt/vtorque-lab", str(OWN_VENV / "bin/python"), "-m", "lab.leftovers"]
    lost = [node for node in facts.addresses if node in facts.inits and not facts.inits[node].alive]
    lines = {node: command(facts, node, arguments) for node in facts.addresses if node not in lost}
    with concurrent.futures.ThreadPoolExecutor(len(facts.addresses)) as pool:
        looks = {node: pool.submit(_ask, line) for node, line in lines.items()}
    found: dict[str, list[str]] = {}
    for node in facts.addresses:
        if node in lost:
            found[node] = ["unknown: the node is lost"]
            continue
        done = looks[node].result()
        if done.returncode:
            raise LabError(f"{node}: {done.stderr.strip()}")
        found[node] = json.loads(done.stdout)
    return found


def _ask(line: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, capture_output=True, text=True, timeout=600)


SWEEPS = """
/opt/vtorque/bin/vtorque-sweep || exit
setsid --fork sh -c 'while sleep "$0"; do /opt/vtorque/bin/vtorque-sweep; done' "$1" </dev/null >/dev/null 2>&1
"""
SWEEP_PAUSE_S = 120
"""As `OnUnitInactiveSec=` of templates/systemd/vtorque-sweep.timer."""


def start_sweeps(state: State) -> list[str]:
    """Do what systemd's timer does on a site's compute nodes: a sweep now, and one every two minutes until a node ends.

    Tests sweep by themselves, at moments of their own, so that `up` starts none.

    Returns:
        The nodes.

    Raises:
        LabError: a sweep failed; says its last words.
    """
    facts = state.running()
    nodes = [node for node in facts.inits if node != FRONT_END]
    for node in nodes:
        arguments = command(facts, node, ["/bin/sh", "-c", SWEEPS, "sh", str(SWEEP_PAUSE_S)])
        done = subprocess.run(
            arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, check=False
        )
        if done.returncode:
            raise LabError(f"{node}: vtorque-sweep: {(done.stderr or done.stdout).strip()[-500:]}")
    return nodes

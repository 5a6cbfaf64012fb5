# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product on a lab's nodes as a site gets it: the playbook `install` of the installed collection, over ssh."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import pathlib
import subprocess
import typing as t

from ..installation import installed, runtime, site
from ..system import keys, places
from ..system.state import FRONT_END, LabError, State
from . import lifecycle

CACHE = places.CHECKOUT / "build/installed"
PLAYBOOK = "mikelangelo.vtorque.install"
PLAY_TIMEOUT_S = 1200
INVENTORY = {
    "all": {
        "vars": {
            **{f"vtorque_{name}": value for name, value in site.SETTINGS.items()},
            "common_pip_environment": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": installed.WHEELS},
            "ansible_python_interpreter": "/usr/bin/python3",
        },
        "children": {
            "vtorque_frontends": {"hosts": {FRONT_END: None}},
            "vtorque_nodes": {"hosts": {name: None for name in installed.NODES if name != FRONT_END}},
        },
    }
}
"""The nodes, and the lab's configuration under the names of the roles."""
SOURCES = ("*.py", "cluster/*.py", "installation/*.py", "system/*.py", "torque/**/*.py")
"""What decides what is on the disks of nodes; the batch system is part of it, for its state is there."""


def place(environment: pathlib.Path = places.RUNTIME) -> pathlib.Path:
    """Where is kept, or will be, what the roles install of the collection in this environment."""
    texts = [path.read_bytes() for pattern in SOURCES for path in sorted((places.CHECKOUT / "lab").glob(pattern))]
    stamp = runtime.stamp(environment).encode()
    return CACHE / hashlib.sha256(b"\0".join([stamp, *texts])).hexdigest()[:12]


def install(environment: pathlib.Path = places.RUNTIME) -> str:
    """Have the roles install the collection of this environment on nodes of a lab, unless that was done.

    Returns:
        What was done, for a person.

    Raises:
        LabError: it failed; says the last words.
    """
    stored = place(environment)
    with _locked(fcntl.LOCK_EX):
        if installed.is_whole(stored):
            return f"the roles have installed what is in {environment}"
        state = State(CACHE / "lab")
        lifecycle.down(state)
        installed.forget(CACHE)
        _wheels(environment, installed.wheels(stored))
        try:
            lifecycle.up(state, lifecycle.Plan(installed.NODES, runtime=environment, by_roles=stored))
            play(state, environment)
            for node in installed.NODES:
                lifecycle.lose(state, node)
            installed.keep(state, installed.NODES, stored)
        finally:
            lifecycle.down(state)
    return f"the roles have installed the product on {' '.join(installed.NODES)}"


@contextlib.contextmanager
def reading(environment: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """What the roles have installed of the collection in this environment; it stays until nodes stand on it.

    Raises:
        LabError: they have not.
    """
    with _locked(fcntl.LOCK_SH):
        stored = place(environment)
        if not installed.is_whole(stored):
            raise LabError(f"the roles have not installed what is in {environment} (python -m lab install)")
        yield stored


@contextlib.contextmanager
def _locked(kind: int) -> t.Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w", encoding="ascii") as stream:
        fcntl.flock(stream, kind)
        yield


def play(state: State, environment: pathlib.Path, playbook: str = PLAYBOOK, *options: str) -> str:
    """Play a playbook of the collection on the nodes of a lab that is up.

    Args:
        environment: the venv whose Ansible plays the collection that is installed in it.
        options: of ansible-playbook.

    Returns:
        What it said.

    Raises:
        LabError: a host failed; says with what.
    """
    addresses = state.running().addresses
    inventory, log = state.directory / "inventory.json", state.directory / "play.log"
    inventory.write_text(json.dumps(INVENTORY, indent=1), encoding="utf-8")
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_HOME": str(state.directory / "ansible"),
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_FORKS": str(len(addresses)),
        "ANSIBLE_SSH_ARGS": f"-F {keys.ssh_config(state, addresses)}",
    }
    arguments = [str(environment / "bin/python"), "-m", "ansible", "playbook", "-i", str(inventory), playbook, *options]
    if set(addresses) != set(installed.NODES):
        arguments += ["--limit", ",".join(addresses)]
    with log.open("wb") as stream:
        done = subprocess.run(
            arguments, env=variables, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, timeout=PLAY_TIMEOUT_S,
            cwd="/",
        )  # fmt: skip
    output = log.read_text(encoding="utf-8", errors="replace")
    if done.returncode:
        faults = [line for line in output.splitlines() if line.startswith(("fatal: ", "failed: "))]
        report = "\n".join(faults or [output])
        raise LabError(f"{playbook} failed:\n{report[-4000:]}")
    return output


def _wheels(environment: pathlib.Path, there: pathlib.Path) -> None:
    arguments = [
        str(environment / "bin/python"), "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
        "--require-hashes", "--wheel-dir", str(there), "-r", str(places.CHECKOUT / "requirements.lock"),
    ]  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
    if done.returncode:
        raise LabError(f"the packages of requirements.lock cannot be had:\n{done.stderr[-2000:]}")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raise the cluster, end it, and have its nodes fail and come back."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time
import typing as t

from .. import batch
from ..installation import installed
from ..system import cgroups, ending, keys, network
from ..system.places import CHECKOUT, LAB, OWN_VENV, POOL, RUNTIME, VENV
from ..system.state import FRONT_END, Facts, LabError, Mount, NodePlan, Process, State, addresses
from . import on_nodes

NODES = ("fe", "cn1", "cn2")
UP_TIMEOUT_S = 300

Starting = tuple[subprocess.Popen[bytes], t.IO[bytes]]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to raise.

    Attributes:
        pool: directory of images that the nodes see as /opt/vm-images.
        runtime: venv with the installed collection, which the nodes see as /opt/vtorque/venv.
        bare: the machines and their daemons alone, without batch system and product.
        by_roles: what the roles have installed on nodes of these names, or with: nothing yet; None: the lab installs.
        batch: name of the batch system.
    """

    nodes: tuple[str, ...] = NODES
    pool: pathlib.Path = POOL
    runtime: pathlib.Path = RUNTIME
    bare: bool = False
    by_roles: pathlib.Path | None = None
    batch: str = batch.TORQUE


def up(state: State, plan: Plan) -> bool:
    """Raise the lab; what an interrupted `up` left is cleaned away first.

    Returns:
        False when this very lab is up already.

    Raises:
        LabError: another lab is up in the same directory, or a node did not come up; nothing is left then.
    """
    wanted = addresses(plan.nodes)
    if os.geteuid() != 0:
        raise LabError("root is needed: the lab makes namespaces and mounts")
    with state.lock():
        facts = state.load()
        if facts is not None and facts.up and all(init.alive for init in facts.inits.values()):
            kind = (plan.bare, str(plan.by_roles or ""), plan.batch)
            if list(facts.addresses) != list(wanted) or (facts.bare, facts.by_roles, facts.batch) != kind:
                raise LabError(
                    f"another lab is up in {state.directory}: {' '.join(facts.addresses)} (make down, or lab down)"
                )
            return False
        _clean(state)
        _check(plan)
        by_roles = str(plan.by_roles or "")
        facts = Facts(wanted, str(plan.pool), str(plan.runtime), plan.bare, by_roles=by_roles, batch=plan.batch)
        try:
            _raise(state, plan, facts)
        except BaseException:
            _clean(state, keep_logs=True)
            raise
    return True


def down(state: State) -> bool:
    """End the lab and everything in it; done again, it does nothing.

    Returns:
        Was there anything?
    """
    with state.lock():
        return _clean(state)


def lose(state: State, node: str) -> None:
    """Let a node die as by a power cut: everything that runs on it ends without a word, what is on its disk stays.

    Raises:
        LabError: there is no such node, or it is lost already.
    """
    with state.lock():
        init = state.running().init(node)
        # first: processes that end would close their connections
        network.plug(state, node, plugged=False)
        cgroups.thaw(state, node)
        ending.end(init)
        network.forget_rules(state, node)


def plug(state: State, node: str, *, plugged: bool) -> None:
    """Pull a living node's cable out of the switch, or put it back; done again, it does nothing.

    Raises:
        LabError: there is no such node, or it is lost.
    """
    with state.lock():
        state.running().init(node)
        network.plug(state, node, plugged=plugged)


def bring_back(state: State, node: str) -> None:
    """Boot a lost node again: what it wrote is there, `/run`, `/tmp` and its processes are new.

    Raises:
        LabError: there is no such node, it lives, or it does not come up.
    """
    with state.lock():
        facts = state.running()
        if node not in facts.addresses:
            raise LabError(f"no node {node!r} in this lab: {' '.join(facts.addresses)}")
        if node in facts.inits and facts.inits[node].alive:
            raise LabError(f"node {node} is not lost")
        busy = cgroups.remove(state, node)
        if busy:
            raise LabError(f"still in use: {', '.join(map(str, busy))}")
        facts.inits.pop(node, None)
        network.plug(state, node, plugged=True)
        starting = {node: _start(state, facts, node)}
        try:
            _wait(facts, starting, lambda: state.save(facts))
        finally:
            process, pipe = starting[node]
            pipe.close()
            process.wait(timeout=UP_TIMEOUT_S)
        if node != FRONT_END and facts.inits[FRONT_END].alive:
            _await_nodes(facts, [node])


def _check(plan: Plan) -> None:
    system = batch.of(plan.batch)
    missing = [] if plan.bare else [program for program in system.programs if not pathlib.Path(program).exists()]
    if missing:
        raise LabError(f"the machine has no {missing[0]} ({system.packages})")
    if plan.by_roles and plan.batch != batch.TORQUE:
        raise LabError(f"the roles install the product for {batch.TORQUE} alone, and not for {plan.batch}")
    if not (plan.runtime / "bin/python").exists():
        raise LabError(f"no Python environment in {plan.runtime} (lab/prepare.sh)")
    if not plan.bare and not list(
        plan.runtime.glob("lib/python3*/site-packages/ansible_collections/mikelangelo/vtorque")
    ):
        raise LabError(f"the collection is not installed in {plan.runtime} (python -m lab runtime)")


def _raise(state: State, plan: Plan, facts: Facts) -> None:
    state.claim()
    for shared, mode in (("home", 0o755), ("batch", 0o755), ("pool", 0o755)):
        (state.directory / shared).mkdir(mode=mode)
    state.save(facts)
    _venv_programs(plan.runtime, state.directory / "bin")
    stored = pathlib.Path(facts.by_roles)
    if facts.by_roles and installed.is_whole(stored):
        installed.lay(stored, state, facts.addresses)
    else:
        keys.make(state, facts.addresses)
    if not facts.bare:
        batch.of(facts.batch).make_secrets(state, facts.addresses)
    network.make(state, facts.addresses)
    starting = {name: _start(state, facts, name) for name in facts.addresses}
    try:
        _wait(facts, starting, lambda: state.save(facts))
    finally:
        for process, pipe in starting.values():
            pipe.close()
            process.wait(timeout=UP_TIMEOUT_S)
    _await_nodes(facts, [name for name in facts.addresses if name != FRONT_END])
    facts.up = True
    state.save(facts)


def _await_nodes(facts: Facts, nodes: t.Sequence[str]) -> None:
    def on_front_end(arguments: t.Sequence[str]) -> str:
        done = subprocess.run(
            on_nodes.command(facts, FRONT_END, arguments), capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=UP_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise LabError(f"{FRONT_END}: {arguments[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout

    if not facts.bare:
        batch.of(facts.batch).await_nodes(on_front_end, nodes)


def _mounts(state: State, facts: Facts, name: str) -> tuple[Mount, ...]:
    pool = pathlib.Path(facts.pool)
    product = (
        (Mount(str(installed.wheels(pathlib.Path(facts.by_roles))), installed.WHEELS, True),)
        if facts.by_roles
        else (Mount(facts.runtime, str(VENV), True), Mount(str(state.directory / "bin"), str(VENV / "bin"), True))
    )
    shared = batch.of(facts.batch).shared
    return (
        *product,
        Mount(facts.runtime, str(OWN_VENV), True),
        Mount(str(CHECKOUT / "lab"), str(LAB / "lab"), True),
        Mount(str(pool if pool.is_dir() else state.directory / "pool"), "/opt/vm-images", name != FRONT_END),
        Mount(str(state.directory / "home"), "/home", False),
        *((Mount(str(state.directory / "batch"), shared, False),) if shared else ()),
        Mount(str(state.node(name) / "keys"), "/run/lab/keys", True),
    )


def _venv_programs(runtime: pathlib.Path, directory: pathlib.Path) -> None:
    """The environment's programs with the first line that is true in a node: there it stands in another place."""
    directory.mkdir()
    here = f"#!{runtime.absolute()}/bin/".encode()
    for program in (runtime / "bin").iterdir():
        if program.is_symlink():
            (directory / program.name).symlink_to(program.readlink())
        elif program.is_file():
            text = program.read_bytes()
            if text.startswith(here):
                text = f"#!{VENV}/bin/".encode() + text[len(here) :]
            (directory / program.name).write_bytes(text)
            shutil.copymode(program, directory / program.name)


def _start(state: State, facts: Facts, name: str) -> Starting:
    """Start a node's process 1; returns its maker, and the pipe on which it says how it went."""
    numbers = {node: number for number, node in enumerate(facts.addresses)}
    mounts = _mounts(state, facts, name)
    prefix = installed.prefix(pathlib.Path(facts.by_roles), name) if facts.by_roles else None
    node = NodePlan(
        name, facts.addresses[name], numbers[name], facts.addresses, mounts, facts.bare, bool(facts.by_roles),
        str(prefix or ""), facts.batch,
    )  # fmt: skip
    place = state.node(name)
    node.write(place / "node.json")
    reading, writing = os.pipe()
    arguments = [
        sys.executable,
        "-m",
        "lab.cluster.node",
        "enter",
        str(writing),
        str(place),
        state.name(name),
        state.name(name),
    ]
    arguments.append(str(os.getpid()))
    with os.fdopen(writing, "wb"), (place / "init.log").open("wb") as log:
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(writing,), start_new_session=True,
            cwd=CHECKOUT, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    return process, os.fdopen(reading, "rb", buffering=0)


def _wait(facts: Facts, starting: dict[str, Starting], save: t.Callable[[], None]) -> None:
    """Until every node said `ok`; each says first its number, which is kept at once."""
    poll = select.poll()
    names = {pipe.fileno(): name for name, (_, pipe) in starting.items()}
    for number in names:
        poll.register(number, select.POLLIN)
    output = dict.fromkeys(starting, b"")
    end = time.monotonic() + UP_TIMEOUT_S
    while names:
        events = poll.poll(max(0, end - time.monotonic()) * 1000)
        if not events:
            raise LabError(f"not up after {UP_TIMEOUT_S} s: {' '.join(names.values())}")
        for number, _ in events:
            name = names[number]
            chunk = os.read(number, 4096)
            output[name] += chunk
            first, _, rest = output[name].partition(b"\n")
            if first.isdigit() and name not in facts.inits:
                with contextlib.suppress(ProcessLookupError):
                    facts.inits[name] = Process.of(int(first))
                    save()
            if chunk:
                continue
            if rest != b"ok\n":
                message = (rest or output[name]).decode(errors="replace").strip()
                raise LabError(f"node {name} did not come up: {message or 'its init ended'}")
            poll.unregister(number)
            del names[number]


def _clean(state: State, *, keep_logs: bool = False) -> bool:
    """Remove whatever of this lab is there, found by the names that its directory gives it."""
    facts = state.load()
    found = bool(facts) or bool(network.present(state)) or bool(cgroups.present(state)) or state.is_ours
    for init in facts.inits.values() if facts else ():
        if init.alive:
            os.kill(init.pid, signal.SIGKILL)
    ending.end_all(state)
    network.remove(state)
    busy = cgroups.remove(state)
    if busy:
        raise LabError(f"still in use: {', '.join(map(str, busy))}")
    if keep_logs:
        for log in state.directory.glob("nodes/*/init.log"):
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace"))
    state.vanish()
    return found

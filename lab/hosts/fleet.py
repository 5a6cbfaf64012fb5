# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot hosts, end them, and say how they are reached."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import selectors
import shutil
import socket
import subprocess
import sys
import time

from ..cluster import lifecycle
from ..system import daemons, ending, keys, network, places
from ..system.state import Facts, LabError, Mount, NodePlan, Process, State, addresses, stat_fields
from ..torque_stand_in import SOCKETS
from . import base
from .boot import Order

DEFAULT = base.CACHE / "up"
BOOT_TIMEOUT_S = 120
NSPAWN = pathlib.Path("/run/systemd/nspawn")
"""Where systemd-nspawn has a directory or a file for each host, of a kind each."""
NSPAWN_END_S = 20
"""systemd-nspawn itself has little to do after its host has ended."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to boot.

    Attributes:
        nodes: names; `fe` is the front end, the others are compute nodes.
        libvirt: have compute nodes the distribution's libvirt and qemu before anything of ours comes?
        batch: is the batch system there?
        pool: directory of images that all hosts see, read-only, as /opt/vm-images; None: none.
    """

    nodes: tuple[str, ...]
    libvirt: bool = True
    batch: bool = True
    pool: pathlib.Path | None = places.POOL


def fleet() -> State:
    """The hosts of this checkout; VTORQUE_HOSTS in the environment names another directory."""
    return State(pathlib.Path(os.environ.get("VTORQUE_HOSTS") or DEFAULT))


def up(state: State, plan: Plan) -> Facts:
    """Boot new hosts; those that are there end first, with whatever an interrupted `up` left.

    Raises:
        LabError: a host did not boot; nothing is left then.
    """
    wanted = addresses(plan.nodes)
    if os.geteuid() != 0:
        raise LabError("root is needed: hosts are made of namespaces and mounts")
    if not shutil.which("systemd-nspawn"):
        raise LabError("systemd-nspawn is missing (package systemd-container; lab/prepare.sh test)")
    if plan.pool and not plan.pool.is_dir():
        raise LabError(f"{plan.pool} is missing: no images to show the hosts (make images)")
    down(state)
    try:
        with state.lock():
            return _raise(state, plan, Facts(wanted, str(plan.pool or ""), "", not plan.batch))
    except BaseException:
        for log in state.directory.glob("nodes/*/boot.log"):
            sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-4000:])
        down(state)
        raise


def down(state: State) -> bool:
    """End the hosts and remove everything of them; done again, it does nothing.

    Returns:
        Was there anything?
    """
    with state.lock():
        facts = state.load()
        if facts:
            _end(facts)
    was_there = lifecycle.down(state)
    # one that was killed while its host booted has put nothing away
    for path in NSPAWN.glob("*/*"):
        if not state.owns(path.name):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return was_there


def _raise(state: State, plan: Plan, facts: Facts) -> Facts:
    origin = base.get()
    state.claim()
    state.save(facts)
    for shared in ("home", "batch"):
        (state.directory / shared).mkdir(mode=0o755)
    daemons.make_homes(state.directory / "home")
    keys.make(state, facts.addresses)
    network.make(state, facts.addresses)
    # a play may change the host's network, and sshd listens everywhere
    keys.ssh_config(state, dict.fromkeys(facts.addresses, "127.0.0.1"))
    started = {name: _start(state, plan, origin, facts, name) for name in facts.addresses}
    for name, (process, ready) in started.items():
        _wait(name, process, ready)
        # the first process of the host, as the machine numbers it
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
        facts.inits[name] = Process.of(int(children.split()[0]))
        state.save(facts)
    facts.up = True
    state.save(facts)
    return facts


def _start(
    state: State, plan: Plan, origin: base.Base, facts: Facts, name: str
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    number = list(facts.addresses).index(name)
    printed = [
        Mount(str(origin.offered), "/srv/offered", True),
        Mount(str(state.directory / "home"), "/home", False),
        Mount(str(state.directory / "batch"), str(SOCKETS), False),
    ]
    if plan.pool:
        printed.append(Mount(str(plan.pool), "/opt/vm-images", True))
    node = NodePlan(name, facts.addresses[name], number, facts.addresses, tuple(printed), not plan.batch)
    place = state.node(name)
    layers = tuple(map(str, origin.layers(libvirt=plan.libvirt and not node.is_front_end)))
    Order(node, layers, str(place), state.name(name)).write(place / "order.json")
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    path = place / "ready"
    ready.bind(str(path))
    with (place / "boot.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.hosts.boot", str(place / "order.json"), str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=places.CHECKOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "NOTIFY_SOCKET": str(path)},
        )  # fmt: skip
    return process, ready


def _wait(name: str, process: subprocess.Popen[bytes], ready: socket.socket) -> None:
    """Until the host's systemd says that it has booted (sd_notify, which systemd-nspawn hands on)."""
    limit = time.monotonic() + BOOT_TIMEOUT_S
    ended = os.pidfd_open(process.pid)
    try:
        with ready, selectors.DefaultSelector() as selector:
            selector.register(ready, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                events = selector.select(max(0, limit - time.monotonic()))
                if not events:
                    raise LabError(f"host {name} has not booted after {BOOT_TIMEOUT_S} s")
                for key, _ in events:
                    if key.fileobj is not ready:
                        raise LabError(f"host {name} ended while it booted (status {process.wait(timeout=1)})")
                    if b"READY=1" in ready.recv(4096).split(b"\n"):
                        return
    finally:
        os.close(ended)


def _end(facts: Facts) -> None:
    """Power off: the first process is killed, and systemd-nspawn puts away what it made for the host."""
    for init in facts.inits.values():
        if not init.alive:
            continue
        parent = _parent(init.pid)
        descriptor = os.pidfd_open(parent)
        ending.end(init)
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            selector.select(NSPAWN_END_S)
        os.close(descriptor)


def _parent(pid: int) -> int:
    return int(stat_fields(pid)[1])

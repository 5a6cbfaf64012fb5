# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for Torque on a node: its server on the front end, a MOM on each compute node."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys
import typing as t

from .system.daemons import ENVIRONMENT, RUN, DaemonError, run
from .system.places import LAB
from .system.state import NodePlan

SOCKETS = pathlib.Path("/run/lab-torque")
PLACES = {"batch job": "/var/spool/torque/mom_priv/jobs", "node file": "/var/spool/torque/aux"}
"""What a MOM has of jobs that are on its node."""
PROGRAM = "/usr/local/lib/lab-torque.pyz"
CORES = 8
"""`np` of every node: more than the machine may have, since nothing is measured by it."""
START_TIMEOUT_S = 180


def install(plan: NodePlan) -> None:
    """The commands qsub, qstat, ... on this node."""
    arguments = ("-m", "lab.torque", "install", "--root", "/", "--socket-dir", str(SOCKETS), "--host", plan.name)
    run(sys.executable, *arguments, "--server", _server(plan), PYTHONPATH=str(LAB))


def start(plan: NodePlan, *options: str) -> None:
    """Start the node's daemon, and wait until it listens.

    Args:
        options: for it, besides what follows from the plan.

    Raises:
        DaemonError: it ended, or did not listen in time.
    """
    if plan.is_front_end:
        compute = [name for name in plan.peers if name != plan.name]
        nodes = [word for name in compute for word in ("--node", f"{name}:{CORES}")]
        # root of a node is an operator and not a manager: it holds jobs and sets nodes offline, and that is all
        operators = [word for name in compute for word in ("--operator", f"root@{name}")]
        _listen(SOCKETS / f"{plan.name}.sock", "server", "--host", plan.name, *nodes, *operators, *options)
    else:
        _listen(SOCKETS / f"{plan.name}.mom", "mom", "--host", plan.name, "--cgroups", *options)


def leftovers(_began: float) -> t.Iterator[str]:
    """What the MOM of this node has of jobs."""
    for what, place in PLACES.items():
        yield from (f"{what} {path}" for path in sorted(pathlib.Path(place).rglob("*")))


def _server(plan: NodePlan) -> str:
    return next(iter(plan.peers))


def _listen(socket: pathlib.Path, *arguments: str) -> None:
    # only the lab's environment has it, and `lab.leftovers` runs with any
    import inotify_simple

    log = pathlib.Path(f"/var/log/lab-torque-{arguments[0]}.log")
    # a daemon that was killed left it, and nobody would wait for the new one
    socket.unlink(missing_ok=True)
    with inotify_simple.INotify() as watch, log.open("wb") as stream:
        watch.add_watch(str(SOCKETS), inotify_simple.flags.CREATE | inotify_simple.flags.MOVED_TO)
        process = subprocess.Popen(
            [PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=ENVIRONMENT,
            start_new_session=True,
        )  # fmt: skip
        (RUN / f"{arguments[0]}.pid").write_text(f"{process.pid}\n", encoding="ascii")
        ended = os.pidfd_open(process.pid)
        while not socket.exists():
            ready, _, _ = select.select([watch.fileno(), ended], [], [], START_TIMEOUT_S)
            if ended in ready or not ready:
                last = log.read_text(encoding="utf-8", errors="replace").strip()[-800:]
                raise DaemonError(f"the batch system's {arguments[0]} does not listen on {socket}: {last or 'no word'}")
            watch.read()
        os.close(ended)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's daemons on a node, without systemd: munged, with slurmctld on the front end, with slurmd on compute nodes."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import socket
import subprocess
import time
import typing as t

from ..system import cgroups
from ..system.daemons import ENVIRONMENT, RUN, DaemonError, put, run
from ..system.state import LabError, NodePlan
from . import configuration, key

PROGRAMS = ("/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch")
ETC = pathlib.Path("/etc/slurm")
MUNGE_KEY = pathlib.Path("/etc/munge/munge.key")
MUNGE_PID = pathlib.Path("/run/munge/munged.pid")
SLICE = "system.slice"
"""In which slurmd makes the cgroups of jobs where there is version 2: systemd would let it have its controllers."""
START_TIMEOUT_S = 180
LOOK_S = 0.02
NOT_YET = frozenset({"down", "unknown", "unk"})
"""States of a node with which the controller does not count (a `*` behind it: it does not answer)."""


def install(plan: NodePlan) -> None:
    """The configuration, the key and the directories that packages and systemd make elsewhere.

    Raises:
        DaemonError: slurmd does not say what the machine has.
    """
    put(MUNGE_KEY, "", 0o600)
    MUNGE_KEY.write_bytes(key.read())
    for place, owner, mode in (
        (MUNGE_KEY.parent, "munge", 0o700), (MUNGE_KEY, "munge", 0o400), (MUNGE_PID.parent, "munge", 0o755),
        (pathlib.Path("/var/lib/munge"), "munge", 0o711), (pathlib.Path("/var/log/munge"), "munge", 0o700),
        (configuration.LOGS, "slurm", 0o755), (configuration.SPOOL, "slurm", 0o755),
        (configuration.SPOOL / "slurmctld", "slurm", 0o700), (configuration.SPOOL / "slurmd", "root", 0o755),
    ):  # fmt: skip
        if place != MUNGE_KEY:
            place.mkdir(parents=True, exist_ok=True)
        shutil.chown(place, owner, owner)
        place.chmod(mode)
    programs = {name: path for name, path in configuration.PROGRAMS.items() if path.exists()}
    put(ETC / "slurm.conf", configuration.slurm_conf(list(plan.peers), _hardware(), RUN, programs))
    unified = any(hierarchy.place == "" for hierarchy in cgroups.hierarchies())
    put(ETC / "cgroup.conf", configuration.cgroup_conf(unified=unified))
    if unified and not plan.is_front_end:
        cgroups.delegate_to(SLICE)


def start(plan: NodePlan, *options: str) -> None:
    """Start the node's daemon, and munged unless it runs; it listens when this returns.

    Args:
        options: for the daemon, besides what follows from the plan.

    Raises:
        DaemonError: it ended, or did not listen in time.
    """
    # it ends with the node alone
    boots = not _runs(MUNGE_PID, "munged")
    if boots:
        run("/usr/sbin/runuser", "-u", "munge", "--", "/usr/sbin/munged")
    if plan.is_front_end:
        _listen(plan, "slurmctld", RUN / "server.pid", configuration.CONTROLLER_PORT, *options)
    else:
        _listen(plan, "slurmd", RUN / "mom.pid", configuration.NODE_PORT, *_of_boot(boots), "-N", plan.name, *options)


def await_nodes(on_front_end: t.Callable[[t.Sequence[str]], str], nodes: t.Sequence[str]) -> None:
    """Return when the controller would give jobs to these nodes, or somebody has taken them out of use.

    Args:
        on_front_end: runs a command there, and returns what it wrote.

    Raises:
        LabError: it does not count on one of them in time.
    """
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        answer = on_front_end(["/usr/bin/sinfo", "-h", "-N", "-n", ",".join(nodes), "-o", "%N %T"])
        states = dict(line.split() for line in answer.splitlines())
        missing = {node: states.get(node, "unknown") for node in nodes if not _is_ready(states.get(node, "unknown"))}
        if not missing:
            return
        if time.monotonic() > end:
            message = ", ".join(f"{node} is {state}" for node, state in missing.items())
            raise LabError(f"Slurm's controller does not count on every node: {message} (/var/log/slurm on the nodes)")
        time.sleep(LOOK_S)


def _is_ready(state: str) -> bool:
    return not state.endswith("*") and state not in NOT_YET


def _of_boot(boots: bool) -> tuple[str, ...]:
    """The machine's kernel, whose time slurmd reports, boots no second time when a lost node comes back."""
    return ("-b",) if boots else ()


def _hardware() -> str:
    """What slurmd finds of processors and memory: every node has the machine's."""
    line = ["/usr/sbin/slurmd", "-C"]
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=ENVIRONMENT, check=False
    )
    fields = [word for word in done.stdout.partition("\n")[0].split() if not word.startswith("NodeName=")]
    if done.returncode or not fields:
        raise DaemonError(f"slurmd -C: {(done.stderr or done.stdout).strip()[-800:] or 'no word'}")
    return " ".join(fields)


def _runs(pid_file: pathlib.Path, program: str) -> bool:
    with contextlib.suppress(FileNotFoundError, ValueError):
        number = int(pid_file.read_text(encoding="ascii"))
        return pathlib.Path(f"/proc/{number}/comm").read_text(encoding="utf-8").strip() == program
    return False


def _has_ended(pid_file: pathlib.Path, program: str) -> bool:
    """Return whether a daemon wrote its number and is gone.

    Between making the file and writing into it, and before it takes its lock, a daemon that starts has an empty one.
    """
    with contextlib.suppress(FileNotFoundError):
        return bool(pid_file.read_text(encoding="ascii").strip()) and not _runs(pid_file, program)
    return False


def _listen(plan: NodePlan, program: str, pid_file: pathlib.Path, port: int, *options: str) -> None:
    log = configuration.LOGS / f"{program}.log"
    # that of a daemon which was killed would name nobody, or somebody else
    pid_file.unlink(missing_ok=True)
    run(f"/usr/sbin/{program}", *options)
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        with socket.socket() as asking:
            if asking.connect_ex((plan.address, port)) == 0 and pid_file.exists():
                return
        if _has_ended(pid_file, program) or time.monotonic() > end:
            last = log.read_text(encoding="utf-8", errors="replace").strip()[-800:] if log.exists() else ""
            raise DaemonError(f"{program} does not listen on port {port}: {last or 'no word'}")
        time.sleep(LOOK_S)

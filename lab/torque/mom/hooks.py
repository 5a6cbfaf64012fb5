# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one script around a job as a MOM does: who, where, with which arguments, environment, descriptors and signals.

The facts are in torque.md: "Which scripts", "argv", "Environment of root scripts", "Exit codes", "Timeouts".
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import select
import signal
import stat
import typing as t

from ..shared import resources
from ..shared.job import Job

UNSAFE, TIMED_OUT = -1, -4

FORGEABLE = (
    "PBS_SCHED_HINT",
    "BEOWULF_JOB_MAP",
    "PBS_CPUCLOCK",
    "MOAB_NODELIST",
    "MOAB_JOBID",
    "MOAB_JOBNAME",
    "MOAB_USER",
    "MOAB_GROUP",
    "MOAB_CLASS",
    "MOAB_TASKMAP",
    "MOAB_QOS",
    "MOAB_PARTITION",
    "MOAB_PROCCOUNT",
    "MOAB_NODECOUNT",
    "MOAB_MACHINE",
    "MOAB_JOBARRAYINDEX",
    "MOAB_JOBARRAYRANGE",
)
"""The variables of a job that reach a hook, besides PBS_O_WORKDIR; MOAB_* reach root's hooks only."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """As whom a process runs."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    def become(self) -> None:
        """Change to it; there is no way back for a user."""
        os.setgroups(list(self.groups))
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


@dataclasses.dataclass(frozen=True)
class Script:
    """One run of one script.

    Attributes:
        path: the file; a missing one is skipped.
        owner: who must own the file.
        out, err: descriptors for the script, None: closed.
        inherited: descriptor number -> descriptor, besides 0 to 2.
        deaf: HUP, INT and TERM are blocked.
    """

    path: pathlib.Path
    owner: int
    arguments: tuple[str, ...]
    environment: dict[str, str]
    identity: Identity
    cwd: str
    umask: int
    out: int | None
    err: int | None
    inherited: dict[int, int] = dataclasses.field(default_factory=dict)
    deaf: bool = False


def is_safe(script: Script) -> bool:
    """A regular file of the right owner, u+rx, not writable by others; what a user runs must be o+rx."""
    status = script.path.stat()
    mode = stat.S_IMODE(status.st_mode)
    as_other = script.identity.uid != 0 and script.owner == 0
    needed = stat.S_IRUSR | stat.S_IXUSR | (stat.S_IROTH | stat.S_IXOTH if as_other else 0)
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == script.owner
        and mode & needed == needed
        and not mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def run(script: Script, alarm: float, wait: t.Callable[[int, float], bool] | None = None) -> int:
    """Run a script to its end.

    Args:
        alarm: `$prologalarm` in seconds; above 10 the script is killed 10 s earlier.
        wait: waits for the given descriptor so many seconds, in place of a plain wait (an interactive job's terminal).

    Returns:
        Its exit status; 0 when it is missing or a signal killed it; UNSAFE or TIMED_OUT.
    """
    try:
        if not is_safe(script):
            return UNSAFE
    except FileNotFoundError:
        return 0
    pid = os.fork()
    if pid == 0:
        _execute(script)
    descriptor = os.pidfd_open(pid)
    timed_out = not (wait or _wait)(descriptor, alarm - 10 if alarm > 10 else alarm)
    if timed_out:
        kill_session(pid)
    os.close(descriptor)
    _pid, status = os.waitpid(pid, 0)
    if timed_out:
        return TIMED_OUT
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0


def _wait(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _execute(script: Script) -> t.NoReturn:
    try:
        os.setsid()
        os.umask(script.umask)
        null = os.open(os.devnull, os.O_RDWR)
        place_descriptors({0: null, 1: script.out, 2: script.err, **script.inherited})
        if script.deaf:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
        script.identity.become()
        os.chdir(script.cwd)
        os.execve(script.path, [str(script.path), *script.arguments], script.environment)  # noqa: S606
    except OSError:
        os._exit(255)


def place_descriptors(wanted: t.Mapping[int, int | None]) -> None:
    """Give descriptors their numbers; a number without a descriptor is closed.

    Python's own descriptors close themselves on exec, so the program has these and no others.
    """
    above = max(wanted) + 1
    copies = {
        number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
        for number, descriptor in wanted.items()
        if descriptor is not None
    }
    for number in wanted:
        if number in copies:
            os.dup2(copies[number], number, inheritable=True)
        else:
            os.closerange(number, number + 1)


def kill_session(session: int, number: int = signal.SIGKILL) -> int:
    """Send a signal to every process of a session; for KILL until none is left to be seen.

    Returns:
        How many were reached.
    """
    reached: set[int] = set()
    for _round in range(20 if number == signal.SIGKILL else 1):
        present = session_processes(session)
        for pid in present:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.add(pid)
        if not present:
            break
    return len(reached)


def session_processes(session: int) -> list[int]:
    """The living processes of a session (a zombie is none)."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = process_fields(int(entry.name))
            if fields and int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def process_fields(pid: int) -> list[str]:
    """/proc/PID/stat from the state on, empty when the process is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def find(directory: pathlib.Path, hook: str, job: Job) -> pathlib.Path:
    """`qsub -T NAME` prefers `<hook>.NAME`; each hook falls back for itself."""
    special = directory / f"{hook}.{job.jobtype}"
    return special if job.jobtype and special.exists() else directory / hook


def script_path(directory: pathlib.Path, job: Job) -> str:
    """The .SC file, named even where there is none."""
    return f"{directory}/jobs/{job.hashname}.SC"


def start_arguments(directory: pathlib.Path, job: Job) -> tuple[str, ...]:
    """The 8 arguments of prologues."""
    return (
        *(job.id, job.user, job.group, job.name, resources.hook_list(job.resources)),
        *(job.queue, job.account, script_path(directory, job)),
    )


def end_arguments(directory: pathlib.Path, job: Job, session: int, status: int) -> tuple[str, ...]:
    """The 11 arguments of epilogues."""
    used = ",".join(f"{name}={value}" for name, value in (job.used or unused()).items())
    return (
        *(job.id, job.user, job.group, job.name, str(session), resources.hook_list(job.resources), used),
        *(job.queue, job.account, str(status), script_path(directory, job)),
    )


def unused() -> dict[str, str]:
    """resources_used of a job that did nothing yet."""
    return usage(0, 0)


def usage(cpu_seconds: float, seconds: float) -> dict[str, str]:
    """resources_used in its recorded order."""
    return {
        "cput": resources.format_time(int(cpu_seconds)),
        "vmem": "0kb",
        "walltime": resources.format_time(int(seconds)),
        "mem": "0kb",
        "energy_used": "0",
    }


def environment(base: dict[str, str], job: Job, rank: int, home: pathlib.Path, for_root: bool) -> dict[str, str]:
    """All that a hook's environment holds.

    Args:
        base: the node's pbs_environment.
        rank: 0 on the mother superior, where alone there is a node file.
    """
    spec = job.resources["nodes"]
    result = {
        **base,
        "PBS_RESOURCE_NODES": spec,
        "PBS_NUM_NODES": str(resources.leading_number(spec)),
        "PBS_NUM_PPN": str(resources.per_node(spec)),
        "PBS_NP": str(sum(len(slots) for _host, slots in job.hosts)),
        "PBS_NODENUM": str(rank),
        "PBS_MSHOST": job.hosts[0][0],
    }
    if rank == 0:
        result["PBS_NODEFILE"] = node_file(home, job)
    result["PBS_O_WORKDIR"] = job.variables.get("PBS_O_WORKDIR", "")
    if "gres" in job.resources:
        result["PBS_RESOURCE_GRES"] = job.resources["gres"]
    for name in FORGEABLE:
        if name in job.variables and (for_root or not name.startswith("MOAB_")):
            result[name] = job.variables[name]
    return result


def node_file(home: pathlib.Path, job: Job, suffix: str = "") -> str:
    """`/var/spool/torque/aux//<job id>`, with the recorded double slash."""
    return f"{home}/aux//{job.id}{suffix}"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Slurm starts the job's shell, by the script's interpreter line, and what of the job's environment is Slurm's.

    #!/opt/vtorque/bin/vtorque-shell        the first line, which `vsbatch` writes
    #!/bin/sh                               the user's own, and their script

The kernel starts us with the path of the script and its arguments, in the job's own cgroup, which tells which job this
is: its environment is the user's to set.  Nobody reads a profile, and the script itself gets the job's signals.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import stat
import typing as t

from ....errors import VTorqueError
from ....state import shell_link
from ..own_job import JobScript, OwnJob
from ..shared import launchers
from . import guest_variables, ids

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchJob

NODE_PATHS = guest_variables.NODE_PATHS
CGROUP = pathlib.Path("/proc/self/cgroup")
OF_JOB = re.compile(
    r"^[0-9]+:[^:\n]*:/(?:slurm[^/\n]*/uid_[0-9]+|(?:[^/\n]+\.slice/)?[^/\n]*slurmstepd\.scope)/job_([0-9]+)/step_",
    re.MULTILINE,
)
"""A cgroup of a job's step, of version 1 or 2, from the root on: below it users may have some of their own."""
OURS = re.compile(rb"#![^\n]*/vtorque-shell\b[^\n]*\n?")
"""The interpreter line that `vsbatch` writes before the user's own."""
PLAIN = b"#!/bin/sh\n"
COMMAND = "--command"
"""Before the words of a command, which `vsalloc` has run in place of a script."""
RUNS_COMMAND = b'#!/bin/sh\nexec "$@"\n'
SCRIPT_LIMIT = 1 << 26
"""Bytes of a script; Slurm's own limit is 4 MiB by default (max_script_size)."""


def job_id_of(variables: t.Mapping[bytes, bytes]) -> str:
    """Return the job's id as its environment has it; "" where no job is."""
    text = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items() if name.startswith(b"SLURM_")}
    try:
        return ids.of_environment(text)
    except VTorqueError:
        return ""


def own_job(variables: t.Mapping[bytes, bytes]) -> OwnJob | None:
    """Return the start that this process belongs to, by its cgroup and root's link; None: root noted none."""
    job_id = job_id_of(variables)
    if not job_id or _number_here() != ids.number_of(job_id):
        return None
    try:
        target = shell_link.link_of(shell_link.of_job(job_id)).readlink()
    except OSError:
        return None
    return OwnJob(job_id, target.name, None)


def _number_here() -> str:
    """Return the number of the job in whose cgroups this process is, in all that name one; "": in none."""
    try:
        text = CGROUP.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = set(OF_JOB.findall(text))
    return found.pop() if len(found) == 1 else ""


def read_script(arguments: t.Sequence[str]) -> JobScript:
    """Return the script of a batch job, as its user wrote it.

    Args:
        arguments: the script's path, and its arguments.

    Raises:
        VTorqueError: there is none, or it cannot be read.
    """
    if arguments[:1] == [COMMAND]:
        command = tuple(map(os.fsencode, arguments[1:]))
        return JobScript(b"/vsalloc", b"", RUNS_COMMAND, by_login_shell=False, arguments=command)
    if not arguments or not arguments[0].startswith("/"):
        raise VTorqueError("nothing was run", "Slurm named no script", "submit a job with vsbatch")
    path = pathlib.Path(arguments[0])
    try:
        with path.open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise VTorqueError("nothing was run", f"{str(path)!r} is not a file")
            content = stream.read(SCRIPT_LIMIT)
    except OSError as error:
        raise VTorqueError("nothing was run", f"the job's script cannot be read: {error}") from error
    content = OURS.sub(b"", content, count=1) if OURS.match(content) else content
    content = content if content.startswith(b"#!") else PLAIN + content
    return JobScript(
        os.fsencode(path), b"", content, by_login_shell=False, arguments=tuple(map(os.fsencode, arguments[1:]))
    )


def read_command(arguments: t.Sequence[str]) -> bytes:
    """Return the command of an interactive job, quoted for its shell; empty: it has none.

    Args:
        arguments: of the shell.

    Raises:
        VTorqueError: there are some that are no command's.
    """
    if arguments[:1] == [COMMAND]:
        return b" ".join(b"'%b'" % os.fsencode(word).replace(b"'", b"'\\''") for word in arguments[1:])
    if arguments:
        raise VTorqueError("nothing was run", "a terminal is not how Slurm starts a script")
    return b""


def start_directory(variables: t.Mapping[bytes, bytes], known: str) -> bytes:
    """Return where slurmd has started the script (`sbatch --chdir`); empty where no job is.

    The kernel tells a process the path without links, of which guests have only the user's name for it.

    Args:
        variables: the job's.
        known: the job's directory as the controller has it, with its links.
    """
    if not job_id_of(variables):
        return b""
    return os.fsencode(known if known and _is_here(known) else pathlib.Path.cwd())


def rename_directories(variables: t.Mapping[bytes, bytes], directory: bytes) -> dict[bytes, bytes]:
    """Return SLURM_SUBMIT_DIR, where it is the start directory: sbatch writes it without the links on its path."""
    name = b"SLURM_SUBMIT_DIR"
    there = variables.get(name, b"")
    return {name: directory} if there and directory and there != directory and _is_here(there) else {}


def _is_here(path: str | bytes) -> bool:
    try:
        return pathlib.Path(os.fsdecode(path)).samefile(".")
    except (OSError, ValueError):
        return False


def display_of(variables: t.Mapping[bytes, bytes]) -> str:
    """Return "": `--x11` forwards to the steps of srun alone."""
    return ""


def counts(
    *, processors: int, hosts: int, first: int, names: t.Sequence[str] = (), each: t.Sequence[int] = ()
) -> dict[bytes, bytes]:
    """Return the variables that count processors and hosts of a job, and name its hosts; see `ShellAdapter.counts`."""
    found = {
        b"SLURM_JOB_NUM_NODES": b"%d" % hosts,
        b"SLURM_NNODES": b"%d" % hosts,
        b"SLURM_CPUS_ON_NODE": b"%d" % first,
    }
    if each or processors == first * hosts:
        found[b"SLURM_JOB_CPUS_PER_NODE"] = _in_groups(each or [first] * hosts)
    if names:
        listed = ",".join(names).encode()
        found |= {b"SLURM_JOB_NODELIST": listed, b"SLURM_NODELIST": listed, b"SLURMD_NODENAME": names[0].encode()}
    return found


def _in_groups(numbers: t.Iterable[int]) -> bytes:
    """Return numbers as Slurm lists them: `2(x3),1`."""
    groups = [(number, len(list(group))) for number, group in itertools.groupby(numbers)]
    return b",".join(b"%d(x%d)" % (number, times) if times > 1 else b"%d" % number for number, times in groups)


def launcher_variables(variables: t.Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return what MPI's launchers are told besides the job's environment.

    Args:
        variables: the job's; what it has set, under whichever of the names, is left to it.
    """
    job_id = os.fsencode(job_id_of(variables))
    hosts = guest_variables.HOST_FILE + job_id if job_id else b""
    found = launchers.launcher_variables(guest_variables.LAUNCHERS, variables, hosts)
    per_task, here = (variables.get(name, b"") for name in (b"SLURM_CPUS_PER_TASK", b"SLURM_CPUS_ON_NODE"))
    if per_task.isdigit() and here.isdigit() and int(per_task) > int(here):
        found[b"SLURM_CPUS_PER_TASK"] = here  # the host's own processor is in it (`front.sizes`)
    return found | _tasks_in_use(variables)


def _tasks_in_use(variables: t.Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that count tasks, where Slurm counts those of spare nodes too; none: all nodes are used."""
    text, hosts = variables.get(b"SLURM_TASKS_PER_NODE", b""), variables.get(b"SLURM_JOB_NUM_NODES", b"")
    groups = [re.fullmatch(rb"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", group) for group in text.split(b",")]
    if not hosts.isdigit() or not all(groups):
        return {}
    each = [int(group[1]) for group in groups if group for _node in range(int(group[2] or 1))]
    if len(each) <= int(hosts):
        return {}
    each = each[: int(hosts)]
    counted = {name: b"%d" % sum(each) for name in (b"SLURM_NTASKS", b"SLURM_NPROCS") if name in variables}
    return {b"SLURM_TASKS_PER_NODE": _in_groups(each), **counted}


def gpu_variables(_variables: t.Mapping[bytes, bytes], _gpus: int) -> dict[bytes, bytes]:
    """Return none: CUDA_VISIBLE_DEVICES says all that programs ask for."""
    return {}


def variables_of_root(job: BatchJob, policy: Policy) -> dict[str, str]:
    """Return what Slurm says in the job's environment, as far as root knows it.

    Args:
        job: the batch server's word.
        policy: the site's.
    """
    number, _dot, cluster = job.job_id.partition(".")
    known = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_CLUSTER_NAME": cluster,
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_PARTITION": job.queue,
        "SLURM_JOB_USER": job.euser,
        "SLURM_JOB_ACCOUNT": job.account,
        "SLURM_SUBMIT_DIR": job.init_work_dir,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    return {name: value for name, value in known.items() if value}


def is_submitted(name: str) -> bool:
    """Return whether a variable of root's is one of the submission, so that the user's own value counts over it."""
    return name.startswith("SLURM_SUBMIT_")


def script_path(policy: Policy, name: str) -> str:
    """Return where a script of this name lies in a guest: in the directory that each guest has for that."""
    return f"{guest_variables.GUEST_HOME}/mom_priv/jobs/{name}"

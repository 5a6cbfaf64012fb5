# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How OpenPBS starts the job's shell, put in place by the launch hook, and what of the job's environment is its own.

    argv            standard input                      what runs in the guest
    []              `.../jobs/4\\[1\\].p0.SC`             the user's login shell, with that line on its standard input
    []              a terminal (qsub -I)                the user's login shell, on a terminal

Brackets of an array's member have backslashes there, as a shell reads the line.  A program after `--` never comes
here: the hook refuses it.
"""

from __future__ import annotations

import re
import typing as t

from ....errors import VTorqueError
from ..own_job import JobScript
from ..shared import mom_shell

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchJob

job_id_of = mom_shell.job_id_of
own_job = mom_shell.own_job
launcher_variables = mom_shell.launcher_variables
is_submitted = mom_shell.is_submitted
script_path = mom_shell.script_path
NODE_PATHS: tuple[bytes, ...] = (b"TMPDIR", b"PBS_JOBCOOKIE", b"PBS_MOMPORT", b"DISPLAY")
"""Variables that name paths of the node, or by which a process speaks to the MOM there."""


def read_script(arguments: t.Sequence[str]) -> JobScript:
    """Return the script of a batch job: its path is the line on standard input; see `ShellAdapter.read_script`."""
    read_command(arguments)
    line = mom_shell.read_line()
    path = re.sub(rb"\\(.)", rb"\1", line.partition(b"\n")[0])
    return JobScript(path, line, mom_shell.read_content(path))


def read_command(arguments: t.Sequence[str]) -> bytes:
    """Return an empty command: an interactive job in a virtual machine has none.

    Args:
        arguments: of the shell.

    Raises:
        VTorqueError: there are some.
    """
    if arguments:
        raise VTorqueError("nothing was run", "arguments are not how the batch system starts the shell of a job")
    return b""


def start_directory(variables: t.Mapping[bytes, bytes], known: str) -> bytes:
    """Return an empty path: a job starts in its user's home."""
    return b""


def rename_directories(variables: t.Mapping[bytes, bytes], directory: bytes) -> dict[bytes, bytes]:
    """Return none: variables name directories as the user did."""
    return {}


def display_of(variables: t.Mapping[bytes, bytes]) -> str:
    """Return "": what the MOM forwards for `qsub -X` was not recorded, and vsub refuses it."""
    return ""


def counts(
    *, processors: int, hosts: int, first: int, names: t.Sequence[str] = (), each: t.Sequence[int] = ()
) -> dict[bytes, bytes]:
    """Return the variable that counts the processors of a host; OMP_NUM_THREADS is the user's (`ompthreads`).

    The node file has the names of hosts and the processors of each; see `ShellAdapter.counts`.
    """
    return {b"NCPUS": b"%d" % first}


def gpu_variables(_variables: t.Mapping[bytes, bytes], _gpus: int) -> dict[bytes, bytes]:
    """Return none: CUDA_VISIBLE_DEVICES says all that programs ask for."""
    return {}


def variables_of_root(job: BatchJob, policy: Policy) -> dict[str, str]:
    """Return what the MOM says in the job's environment, as far as root knows it.

    Args:
        job: the batch server's word.
        policy: says where the node file is.
    """
    member = re.fullmatch(r"([0-9]+)\[([0-9]+)\]\.(.+)", job.job_id)
    known = {
        "PBS_JOBID": job.job_id,
        "PBS_JOBNAME": job.name,
        "PBS_QUEUE": job.queue,
        "PBS_ACCOUNT": job.account,
        "PBS_ENVIRONMENT": "PBS_INTERACTIVE" if job.interactive else "PBS_BATCH",
        "ENVIRONMENT": "" if job.interactive else "BATCH",
        "PBS_NODENUM": "0",
        "PBS_TASKNUM": "1",
        "PBS_NODEFILE": f"{policy.torque_home}/aux/{job.job_id}",
        "PBS_O_WORKDIR": job.variables.get("PBS_O_WORKDIR", ""),
        "PBS_O_LOGNAME": job.owner_user,
        "PBS_O_HOST": job.owner_host,
        "PBS_ARRAY_INDEX": member[2] if member else "",
        "PBS_ARRAY_ID": f"{member[1]}[].{member[3]}" if member else "",
    }
    return {name: value for name, value in known.items() if value}

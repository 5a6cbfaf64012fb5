# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Torque starts the job's shell (`qsub -S`), and what of the job's environment is Torque's.

    argv            standard input                  what runs in the guest
    []              `<script> <arguments>`          the user's login shell, with that line on its standard input
    []              a terminal (qsub -I)            the user's login shell, on a terminal
    [-c, COMMAND]   a terminal (qsub -I -x)         the user's login shell, with -c COMMAND

MPI's launchers are told that no MOM is in a guest, the hosts stand in the job's node file, and ssh reaches them: one
that knows Torque takes PBS_ENVIRONMENT and PBS_JOBID for the promise of a MOM on this host.
"""

from __future__ import annotations

import os
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
NODE_PATHS: tuple[bytes, ...] = (b"TMPDIR", b"PBS_GPUFILE", b"PBS_MICFILE", b"DISPLAY")
"""Variables that name paths or sockets of the node."""
DISPLAY = rb"localhost:(?:[5-9][0-9]|[1-9][0-9]{2,3})\.[0-9]{1,3}"
"""What the MOM calls the display that it forwards for `qsub -I -X`: it begins at 50 (X11OFFSET, port_forwarding.h), and
sets DISPLAY whatever `-v` and `-V` say (setup_x11_forwarding, start_exec.c).  Another one is of another host."""


def read_script(arguments: t.Sequence[str]) -> JobScript:
    """Return the script of a batch job: its path begins standard input; see `ShellAdapter.read_script`."""
    if read_command(arguments):
        raise VTorqueError("nothing was run", "a command without a terminal is not how the batch system starts jobs")
    line = mom_shell.read_line()
    path = line.partition(b"\n")[0].partition(b" ")[0]
    return JobScript(path, line, mom_shell.read_content(path))


def read_command(arguments: t.Sequence[str]) -> bytes:
    """Return the command of an interactive job that has one (`qsub -I -x`), else an empty one.

    Args:
        arguments: of the shell.

    Raises:
        VTorqueError: they are neither those of a batch job nor those of an interactive one.
    """
    if not arguments:
        return b""
    if len(arguments) == 2 and arguments[0] == "-c" and arguments[1]:
        return os.fsencode(arguments[1])
    raise VTorqueError("nothing was run", "neither the arguments of a batch job nor those of an interactive one")


def start_directory(variables: t.Mapping[bytes, bytes], known: str) -> bytes:
    """Return where the job starts (`qsub -d`); empty: in the user's home."""
    return variables.get(b"PBS_O_INITDIR", b"")


def rename_directories(variables: t.Mapping[bytes, bytes], directory: bytes) -> dict[bytes, bytes]:
    """Return none: variables name directories as the user did."""
    return {}


def display_of(variables: t.Mapping[bytes, bytes]) -> str:
    """Return the display that the MOM forwards (`qsub -I -X`) as it is on the node; "": none, or another host's."""
    display = variables.get(b"DISPLAY", b"")
    return display.decode("ascii") if re.fullmatch(DISPLAY, display) else ""


def counts(
    *, processors: int, hosts: int, first: int, names: t.Sequence[str] = (), each: t.Sequence[int] = ()
) -> dict[bytes, bytes]:
    """Return the variables that count a job's processors and hosts; the node file has the rest.

    See `ShellAdapter.counts`.
    """
    return {b"PBS_NP": b"%d" % processors, b"PBS_NUM_NODES": b"%d" % hosts, b"PBS_NUM_PPN": b"%d" % first}


def gpu_variables(variables: t.Mapping[bytes, bytes], gpus: int) -> dict[bytes, bytes]:
    """Return the variable that names a file with all processors of graphics of the job, as the MOM's does.

    Args:
        variables: of the job in its guest.
        gpus: how many its first guest has.
    """
    file = variables.get(b"PBS_NODEFILE", b"")
    return {b"PBS_GPUFILE": file + b"gpu"} if file and gpus else {}


def variables_of_root(job: BatchJob, policy: Policy) -> dict[str, str]:
    """Return what the MOM says in the job's environment, as far as root knows it.

    Args:
        job: the batch server's word.
        policy: says where Torque keeps the node file.
    """
    member = re.search(r"\[([0-9]+)\]", job.job_id)
    known = {
        "PBS_JOBID": job.job_id,
        "PBS_JOBNAME": job.name,
        "PBS_QUEUE": job.queue,
        "PBS_ENVIRONMENT": "PBS_INTERACTIVE" if job.interactive else "PBS_BATCH",
        "ENVIRONMENT": "" if job.interactive else "BATCH",
        "PBS_NODENUM": "0",
        "PBS_VNODENUM": "0",
        "PBS_TASKNUM": "1",
        "PBS_NODEFILE": f"{policy.torque_home}/aux/{job.job_id}",
        "PBS_O_WORKDIR": job.init_work_dir,
        "PBS_O_LOGNAME": job.owner_user,
        "PBS_O_HOST": job.owner_host,
        "PBS_WALLTIME": str(job.walltime_s) if job.walltime_s else "",
        "PBS_ARRAYID": member[1] if member else "",
    }
    return {name: value for name, value in known.items() if value}

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a MOM of Torque or OpenPBS gives the shell of a job: its process, and a line on its standard input."""

from __future__ import annotations

import os
import stat
import typing as t

from ....errors import VTorqueError
from ....state import shell_link
from ....system.process.process_id import ProcessId
from ..own_job import OwnJob
from . import tm_launchers

if t.TYPE_CHECKING:
    from ...config.parameters import Policy

LINE_LIMIT = 1 << 20


def job_id_of(variables: t.Mapping[bytes, bytes]) -> str:
    """Return the job's id as its environment has it; "" where no job is."""
    return variables.get(b"PBS_JOBID", b"").decode(errors="replace")


def own_job(variables: t.Mapping[bytes, bytes]) -> OwnJob | None:
    """Return the start that this process is the shell of, as root noted it; None: root noted none.

    It is named by the process that was the parent of the prologue hook on the first node: this one in a batch job, its
    parent in an interactive one (recorded on TORQUE 6.1.3; on OpenPBS, a batch job).

    Args:
        variables: of the job, as its environment has them; root's record must name the job.
    """
    for pid in (os.getpid(), os.getppid()):
        process = ProcessId.of(pid)
        try:
            target = shell_link.link_of(process).readlink()
        except OSError:
            continue
        return OwnJob(job_id_of(variables), target.name, process)
    return None


def read_content(path: bytes) -> bytes:
    """Return what a script holds.

    Args:
        path: of the script, as the MOM named it; empty: it named none.

    Raises:
        VTorqueError: there is none, or it cannot be read.
    """
    if not path.startswith(b"/"):
        raise VTorqueError("nothing was run", "the batch system named no script on standard input")
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - bytes, which pathlib does not take
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise VTorqueError("nothing was run", f"{os.fsdecode(path)!r} is not a file")
            return stream.read()
    except OSError as error:
        raise VTorqueError("nothing was run", f"the job's script cannot be read: {error}") from error


def read_line() -> bytes:
    """Return what stands on standard input, of at most 1 MiB."""
    parts: list[bytes] = []
    size = 0
    while size < LINE_LIMIT and (data := os.read(0, 1 << 16)):
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def launcher_variables(variables: t.Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return what MPI's launchers are told besides the job's environment.

    Args:
        variables: the job's; what it has set, under whichever of the names, is left to it.
    """
    return tm_launchers.launcher_variables(variables, variables.get(b"PBS_NODEFILE", b""))


def is_submitted(name: str) -> bool:
    """Return whether a variable of root's is one of the submission, so that the user's own value counts over it."""
    return name.startswith("PBS_O_")


def script_path(policy: Policy, name: str) -> str:
    """Return where a script of this name lies in a guest, as the job's own script does on its node."""
    return f"{policy.torque_home}/mom_priv/jobs/{name}"

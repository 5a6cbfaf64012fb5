# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmd has of jobs on this node, whatever the controller says: the processes of their steps.

`scontrol listpids` asks the steps themselves, on this node alone; it needs neither the controller nor slurmd.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
import typing as t

from ....errors import SiteFault, UserFault
from ..shared.commands_directory import commands_directory
from ..shared.server_command import CommandRefused
from . import commands, hook_calls, ids

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchJob

ASK_S = 5.0
NO_STEPS = "No job steps exist"


def is_node(policy: Policy) -> bool:
    """Return whether slurmd is installed here, beside the other commands or among those of administrators."""
    tools = commands_directory(policy)
    return any(os.access(place / "slurmd", os.X_OK) for place in (tools, tools.parent / "sbin"))


def alive_here(policy: Policy) -> t.Callable[[str], bool]:
    """Return whether steps of a job live here; see `NodeAdapter.alive_here`.

    Slurm is asked once, at the first question: what begins afterwards, its controller knows of.
    """
    known = functools.cache(lambda: _jobs(policy))
    return lambda job_id: ids.number_of(job_id) in known()


def remove_notes(is_over: t.Callable[[str, int], bool]) -> None:
    """Do nothing: our hook notes nothing; see `NodeAdapter.remove_notes`."""


def others_here(policy: Policy, job_id: str) -> tuple[str, ...]:
    """Return the jobs whose steps live here besides this one; see `NodeAdapter.others_here`."""
    return tuple(f"steps of job {number}" for number in sorted(_jobs(policy) - {ids.number_of(job_id)}, key=int))


def runs_users_programs_first(job: BatchJob, policy: Policy) -> bool:
    """Return whether slurmd runs anything as the user between Prolog and the script: a TaskProlog of the site."""
    return hook_calls.read_settings(policy).get("taskprolog", ("", ""))[1] not in ("", "(null)")


def cpusets(policy: Policy, job_id: str) -> tuple[str, ...]:
    """Return where slurmd makes the cpuset of a job, version 1 before 2, before its first step and after Prolog.

    Names of Debian's slurmd hold the node's.  (): slurm.conf and cgroup.conf of this node want none.
    """
    settings = hook_calls.read_settings(policy)
    # Slurm 22.05 takes them with and without the type in front
    plugins = {name.removeprefix("task/") for name in settings.get("taskplugin", ("", ""))[1].lower().split(",")}
    if "cgroup" not in plugins or not _constrains_cores(policy):
        return ()
    number = "*" if job_id == "*" else ids.number_of(job_id)
    return (f"slurm*/uid_*/job_{number}", f"*.slice/*slurmstepd.scope/job_{number}")


def _constrains_cores(policy: Policy) -> bool:
    """Return whether cgroup.conf, beside the slurm.conf that counts, has ConstrainCores=yes."""
    for path in hook_calls.configurations(policy):
        if path.exists():
            try:
                text = path.with_name("cgroup.conf").read_text(encoding="utf-8", errors="replace")
            except OSError:
                return False
            found = re.findall(r"^[ \t]*ConstrainCores[ \t]*=[ \t]*([^\s#]*)", text, re.MULTILINE | re.IGNORECASE)
            return bool(found) and found[-1].lower() == "yes"
    return False


def start_directory(job: BatchJob) -> str:
    """Return "": sbatch starts a job where it was called, and the guest itself says where it has no such directory."""
    return ""


def node_file(policy: Policy, job_id: str) -> pathlib.Path | None:
    """Return None: Slurm tells a job its nodes by variables."""
    return None


def check_node_file(content: str, hosts: t.Sequence[str]) -> None:
    """Compare a file that somebody made with what the controller says; see `NodeAdapter.check_node_file`."""
    if content.split() != list(hosts):
        raise UserFault("the job's node file is not the batch server's", "Slurm writes none", "use no such file")


def _jobs(policy: Policy) -> frozenset[str]:
    """The numbers of the jobs that have steps here.

    Raises:
        SiteFault: slurmd's commands do not tell.
    """
    try:
        data = commands.run(commands_directory(policy), ("scontrol", "listpids"), "", timeout_s=ASK_S, deadline=None)
    except CommandRefused as error:
        if NO_STEPS in f"{error.why} {error.hint}":
            return frozenset()
        raise
    lines = data.decode("ascii", errors="replace").splitlines()
    found = [re.fullmatch(r"-?[0-9]+\s+([0-9]+)\s+\S+\s+\S+\s+\S+\s*", line) for line in lines[1:]]
    if not lines or None in found:
        raise SiteFault("scontrol listpids", "what Slurm has here is not known: its answer is of another form")
    return frozenset(one[1] for one in found if one)

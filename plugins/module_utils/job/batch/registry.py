# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch systems that vTorque knows, opened by name: the one place that imports `job/batch/<system>`.

Each function loads one part of a system (`contract.py`); an entry for another system joins in each of them.
"""

from __future__ import annotations

import importlib
import typing as t

from ...effects import leaves_nothing
from ...errors import SiteFault

if t.TYPE_CHECKING:
    import pathlib
    import types

    from ...system.clock import Deadline
    from ..config.parameters import Policy
    from .api import BatchSystem, PastJob
    from .contract import DoctorAdapter, HookAdapter, NodeAdapter, ShellAdapter
    from .slurm import adapter, doctor_checks, hook_calls, job_shell, node_traces

    OF_SLURM: tuple[type[BatchSystem], HookAdapter, ShellAdapter, NodeAdapter, DoctorAdapter] = (
        adapter.Slurm,
        hook_calls,
        job_shell,
        node_traces,
        doctor_checks,
    )
    """That a type checker compares them with the contract: `_slurm` opens them by name."""

SYSTEMS = ("torque", "slurm")
"""What `batch_system` in vtorque.yml may say."""
KNOWN = (*SYSTEMS, "slurm")
"""All that have a package here; those that are not yet offered, too."""
VARIABLE = "VTORQUE_BATCH_SYSTEM"
"""By which a launcher names its system to a program that works before it has read vtorque.yml, or without."""


def _slurm(module: str) -> types.ModuleType:
    return importlib.import_module(f"{__package__}.slurm.{module}")


def _unknown(system: str) -> SiteFault:
    return SiteFault(f"batch_system {system[:40]!r}", f"vTorque knows {', '.join(SYSTEMS)}")


@leaves_nothing
def launchers_system(environment: t.Mapping[str, str]) -> str:
    """Return the system whose launcher started this program; Torque's own says nothing.

    Args:
        environment: of the launcher's making, in which nothing is a user's.
    """
    return environment.get(VARIABLE, "torque")


@leaves_nothing
def open_batch(
    policy: Policy, *, front_end: bool = False, timeout_s: float = 10.0, deadline: Deadline | None = None
) -> BatchSystem:
    """The site's batch system.

    Args:
        policy: says which it is, and where its commands are (the directory of the site's qsub).
        front_end: are we on a host that uses pbs_qsub_on_fe, not pbs_qsub_on_nodes?
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment.

    Returns:
        Ready to be asked; nothing was asked yet.
    """
    import pathlib  # loaded already wherever this is asked for

    qsub = policy.pbs_qsub_on_fe if front_end else policy.pbs_qsub_on_nodes
    return open_commands(policy.batch_system, pathlib.Path(qsub).parent, timeout_s=timeout_s, deadline=deadline)


def open_commands(
    system: str, directory: pathlib.Path, *, timeout_s: float = 10.0, deadline: Deadline | None = None
) -> BatchSystem:
    """A batch system by the directory of its commands, for a process that may not read the site's configuration.

    Args:
        system: one of `KNOWN`.
        directory: of its commands on this host.
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment.
    """
    if system == "torque":
        from .torque.adapter import Torque  # a program loads the one system of its site

        return Torque(directory, timeout_s=timeout_s, deadline=deadline)
    if system == "slurm":
        opened: BatchSystem = _slurm("adapter").Slurm(directory, timeout_s=timeout_s, deadline=deadline)
        return opened
    raise _unknown(system)


@leaves_nothing
def open_hooks(system: str) -> HookAdapter:
    """How a system calls hooks.

    Args:
        system: one of `KNOWN`.
    """
    if system == "torque":
        from .torque import hook_calls  # a program loads the one system of its site

        return hook_calls
    if system == "slurm":
        return t.cast("HookAdapter", _slurm("hook_calls"))
    raise _unknown(system)


def open_shell(system: str) -> ShellAdapter:
    """How a system starts the job's shell, and which variables of the job are its own.

    Args:
        system: one of `KNOWN`.
    """
    if system == "torque":
        from .torque import job_shell  # a program loads the one system of its site

        return job_shell
    if system == "slurm":
        return t.cast("ShellAdapter", _slurm("job_shell"))
    raise _unknown(system)


def open_node(system: str) -> NodeAdapter:
    """What a system has on a node, whatever its server says.

    Args:
        system: one of `KNOWN`.
    """
    if system == "torque":
        from .torque import mom_files  # a program loads the one system of its site

        return mom_files
    if system == "slurm":
        return t.cast("NodeAdapter", _slurm("node_traces"))
    raise _unknown(system)


def open_doctor(system: str) -> DoctorAdapter:
    """What of a system the doctor checks.

    Args:
        system: one of `KNOWN`.
    """
    if system == "torque":
        from .torque import doctor_checks  # a program loads the one system of its site

        return doctor_checks
    if system == "slurm":
        return t.cast("DoctorAdapter", _slurm("doctor_checks"))
    raise _unknown(system)


def submit_command(policy: Policy, *, front_end: bool) -> str:
    """The path of the command that takes jobs: the site's qsub, or what another system has beside where that would be.

    Args:
        policy: the site's.
        front_end: is it for a host that uses pbs_qsub_on_fe, not pbs_qsub_on_nodes?
    """
    qsub = policy.pbs_qsub_on_fe if front_end else policy.pbs_qsub_on_nodes
    return f"{qsub.rpartition('/')[0]}/sbatch" if policy.batch_system == "slurm" else qsub


def open_slurm_front() -> types.ModuleType:
    """How a call of sbatch and its script are read: the one front besides `vsub`, and of one system."""
    return _slurm("front")


def find_past_job(policy: Policy, job_id: str, start: int, *, days: int) -> PastJob:
    """What the batch system wrote down of a start of a job, where its server has forgotten the job.

    Args:
        policy: the site's.
        job_id: of the job.
        start: its number; 0: it was not known, and the last one is meant.
        days: how long ago it may have ended.

    Returns:
        The start.

    Raises:
        UnknownJob: nothing is written down of it on this host.
        SiteFault: what is written down is not there just now, cannot be believed, or tells nothing clear.
    """
    if policy.batch_system == "torque":
        import pathlib  # loaded already wherever this is asked for

        from .torque import accounting  # a program loads the one system of its site

        return accounting.past_job(job_id, start, pathlib.Path(policy.torque_home), days=days)
    if policy.batch_system == "slurm":
        found: PastJob = _slurm("adapter").past_job(job_id)
        return found
    raise _unknown(policy.batch_system)

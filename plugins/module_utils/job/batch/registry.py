# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch systems that vTorque knows, opened by name: the one place that imports `job/batch/<system>`.

A program loads the part that it needs, of the one system of its site: `PARTS` names the module of each.
"""

from __future__ import annotations

import importlib
import pathlib
import typing as t

from ...effects import leaves_nothing
from ...errors import SiteFault
from .shared.commands_directory import commands_directory

if t.TYPE_CHECKING:
    from ...system.clock import Deadline
    from ..config.parameters import Policy
    from .api import BatchSystem, PastJob
    from .contract import (
        DoctorAdapter,
        FrontAdapter,
        GuestTable,
        HistoryAdapter,
        HookAdapter,
        NodeAdapter,
        ShellAdapter,
        TrialAdapter,
    )
    from .openpbs import adapter as openpbs_adapter
    from .openpbs import doctor_checks as openpbs_doctor
    from .openpbs import front as openpbs_front
    from .openpbs import guest_table as openpbs_guest
    from .openpbs import hook_calls as openpbs_hooks
    from .openpbs import job_shell as openpbs_shell
    from .openpbs import mom_files as openpbs_node
    from .openpbs import terms as openpbs_terms
    from .openpbs import trial_job as openpbs_trial
    from .slurm import doctor_checks as slurm_doctor
    from .slurm import guest_variables as slurm_guest
    from .slurm import hook_calls as slurm_hooks
    from .slurm import job_shell as slurm_shell
    from .slurm import node_traces as slurm_node
    from .slurm.questions import past_jobs as slurm_history
    from .slurm.sbatch import front as slurm_front
    from .slurm.sbatch import session_front as slurm_session
    from .slurm.sbatch import terms as slurm_terms
    from .slurm.sbatch import trial_job as slurm_trial
    from .torque import accounting as torque_history
    from .torque import doctor_checks as torque_doctor
    from .torque import guest_table as torque_guest
    from .torque import hook_calls as torque_hooks
    from .torque import job_shell as torque_shell
    from .torque import mom_files as torque_node
    from .torque import trial_job as torque_trial
    from .torque.qsub import front as torque_front
    from .torque.qsub import terms as torque_terms

    # a type checker compares the modules with the contract here: at work they are opened by name
    _FRONT: tuple[FrontAdapter, ...] = (torque_front, slurm_front, slurm_session, openpbs_front)
    _GUEST: tuple[GuestTable, ...] = (torque_guest, slurm_guest, openpbs_guest)
    _HISTORY: tuple[HistoryAdapter, ...] = (torque_history, slurm_history, openpbs_adapter)
    _HOOKS: tuple[HookAdapter, ...] = (torque_hooks, slurm_hooks, openpbs_hooks)
    _SHELL: tuple[ShellAdapter, ...] = (torque_shell, slurm_shell, openpbs_shell)
    _NODE: tuple[NodeAdapter, ...] = (torque_node, slurm_node, openpbs_node)
    _DOCTOR: tuple[DoctorAdapter, ...] = (torque_doctor, slurm_doctor, openpbs_doctor)
    _TERMS: tuple[Terms, ...] = (torque_terms, slurm_terms, openpbs_terms)
    _TRIAL: tuple[TrialAdapter, ...] = (torque_trial, slurm_trial, openpbs_trial)


class Terms(t.Protocol):
    """What users of the batch system type, in messages that are the same for all systems otherwise.

    Attributes:
        HOSTS: the option that asks for a number of hosts.
        ASK_FOR_HOSTS: the same with the number, `{hosts}`.
        SLOTS: by which name a job's processors on a node are asked for.
        MEMORY: the same for its memory.
        REQUEST: what carries a job's request, as a user may change it.
        TERMINAL: what asks for a job with a terminal.
        SHELL: what names the job's shell.
        DIRECTORY: what names the directory in which a job starts.
        OTHER_DIRECTORY: what to do for another one.
        AS_OWNER: what to do where somebody submits for another user.
        OWN_CORES: what an administrator does so that jobs have cores of their own.
        JOB_TYPE: what gives a job a type.
    """

    HOSTS: str
    ASK_FOR_HOSTS: str
    SLOTS: str
    MEMORY: str
    REQUEST: str
    TERMINAL: str
    SHELL: str
    DIRECTORY: str
    OTHER_DIRECTORY: str
    AS_OWNER: str
    OWN_CORES: str
    JOB_TYPE: str


_OF_ALL = {"batch": "adapter", "hooks": "hook_calls", "shell": "job_shell", "doctor": "doctor_checks"}
PARTS: t.Final[dict[str, dict[str, str]]] = {
    "torque": {
        **_OF_ALL,
        "node": "mom_files",
        "trial": "trial_job",
        "history": "accounting",
        "front": "qsub.front",
        "terms": "qsub.terms",
        "guest": "guest_table",
    },
    "slurm": {
        **_OF_ALL,
        "node": "node_traces",
        "trial": "sbatch.trial_job",
        "history": "questions.past_jobs",
        "front": "sbatch.front",
        "terms": "sbatch.terms",
        "session": "sbatch.session_front",
        "completion": "sbatch.options",
        "guest": "guest_variables",
    },
    "openpbs": {
        **_OF_ALL,
        "node": "mom_files",
        "trial": "trial_job",
        "history": "adapter",
        "front": "front",
        "terms": "terms",
        "guest": "guest_table",
    },
}
"""By system, the module of each part of the contract (`contract.py`)."""
SYSTEMS = tuple(PARTS)
"""What `batch_system` in vtorque.yml may say."""
VARIABLE = "VTORQUE_BATCH_SYSTEM"
"""By which a launcher names its system to a program that works before it has read vtorque.yml, or without."""


def _open(system: str, part: str) -> t.Any:
    if system not in PARTS:
        raise SiteFault(f"batch_system {system[:40]!r}", f"vTorque knows {', '.join(SYSTEMS)}")
    return importlib.import_module(f"{__package__}.{system}.{PARTS[system][part]}")


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
        front_end: whether this host uses pbs_qsub_on_fe, not pbs_qsub_on_nodes.
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment.

    Returns:
        Ready to be asked; nothing was asked yet.
    """
    directory = commands_directory(policy, front_end=front_end)
    return open_commands(policy.batch_system, directory, timeout_s=timeout_s, deadline=deadline)


def open_commands(
    system: str, directory: pathlib.Path, *, timeout_s: float = 10.0, deadline: Deadline | None = None
) -> BatchSystem:
    """A batch system by the directory of its commands, for a process that may not read the site's configuration.

    Args:
        system: one of `SYSTEMS`.
        directory: of its commands on this host.
        timeout_s: seconds that any one command may take.
        deadline: when all of them must be done, if there is such a moment.
    """
    batch: BatchSystem = _open(system, "batch").ADAPTER(directory, timeout_s=timeout_s, deadline=deadline)
    return batch


def _opener(part: str) -> t.Callable[[str], t.Any]:
    """Return the function that opens a part of the contract of a system, one of `SYSTEMS`, as all of them do."""

    def open_part(system: str) -> t.Any:
        return _open(system, part)

    open_part.__name__ = open_part.__qualname__ = f"open_{part}"
    return open_part


open_hooks: t.Callable[[str], HookAdapter] = leaves_nothing(_opener("hooks"))
"""How a system calls hooks."""
open_shell: t.Callable[[str], ShellAdapter] = _opener("shell")
"""How a system starts the job's shell, and which variables of the job are its own."""
open_node: t.Callable[[str], NodeAdapter] = _opener("node")
"""What a system has on a node, whatever its server says."""
open_doctor: t.Callable[[str], DoctorAdapter] = _opener("doctor")
"""What of a system the doctor checks."""
open_trial: t.Callable[[str], TrialAdapter] = _opener("trial")
"""How a job of `vmgr selftest` is submitted."""
open_terms: t.Callable[[str], Terms] = _opener("terms")
"""What users of a system type."""
open_guest: t.Callable[[str], GuestTable] = _opener("guest")
"""What guests of a system's jobs have of it."""


def submit_command(policy: Policy, *, front_end: bool, front: FrontAdapter | None = None) -> str:
    """The path of the command that takes jobs: the site's qsub, or what another system has beside where that would be.

    Args:
        policy: the site's.
        front_end: whether it is for a host that uses pbs_qsub_on_fe, not pbs_qsub_on_nodes.
        front: of the command; None: of the one for scripts.
    """
    qsub = policy.pbs_qsub_on_fe if front_end else policy.pbs_qsub_on_nodes
    command = commands_directory(policy, front_end=front_end) / pathlib.Path(qsub).name
    return (front or open_front(policy.batch_system)).command_path(str(command))


def open_front(system: str, *, session: bool = False) -> FrontAdapter:
    """What stands before a system's command that takes jobs.

    Args:
        system: one of `SYSTEMS`.
        session: before the one for sessions, where a system has such a command.
    """
    opened: FrontAdapter = _open(system, "session" if session and "session" in PARTS[system] else "front")
    return opened


def completion_values(system: str) -> dict[str, t.Sequence[str]]:
    """Which words a shell completes after the commands that take jobs, where they are not qsub's.

    Args:
        system: one of `SYSTEMS`.

    Returns:
        `commands`, `letters` and `long`; nothing for a system whose command is `vsub` alone.
    """
    if "completion" not in PARTS.get(system, {}):
        return {}
    options = _open(system, "completion")
    return {"commands": options.COMMANDS, "letters": options.LETTERS, "long": options.OPTIONS}


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
    history: HistoryAdapter = _open(policy.batch_system, "history")
    return history.past_job(job_id, start, policy, days=days)

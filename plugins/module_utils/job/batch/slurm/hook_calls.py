# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Slurm calls Prolog and Epilog, and what it takes for their end.

    argv            prologue yes | prologue.other yes | epilogue yes     (templates/batch/slurm, prolog and epilog)
    environment     SLURM_* of slurmd's making, from the controller's signed credential: no user's word is among them
                    but the comment (recorded on Slurm 22.05.8)

Slurm calls the same program on each node of a job; which one runs the script follows from the list of nodes.
"""

from __future__ import annotations

import pathlib
import re
import typing as t

from ....effects import leaves_nothing
from ....errors import VTorqueError
from ....wire.messages import USER_NAME
from ..hook_call import HookCall, HookEnd, HookLimits, Role
from ..shared.commands_directory import commands_directory
from . import comment, host_list, ids

if t.TYPE_CHECKING:
    from ...config.parameters import Policy

BEGINS = {"prologue": True, "prologue.other": True, "epilogue": False}
"""The first argument of the launchers' call, and whether a job begins with it."""
END_HOLDS_NODE = True
FAILED = 1
"""Slurm drains the node and holds the job: nothing of it runs."""
CONFIGURATIONS = (pathlib.Path("/etc/slurm/slurm.conf"), pathlib.Path("/run/slurm/conf/slurm.conf"))
"""Where a node has slurm.conf: its own, or what slurmd got from the controller (configless); see `configurations`."""
LIMITS = {True: ("prologtimeout", "prologepilogtimeout"), False: ("epilogtimeout", "prologepilogtimeout")}
"""Settings that bound a hook, for its begin and its end; the first is 25.05's."""
EPILOG_S = 300.0
"""For the end of a job where the site sets no bound: its node waits for it, and the sweep looks after what is left."""
MARGIN_S = 10
"""Of the bound of a site, from its signal to a hook that is over."""


@leaves_nothing
def read_call(arguments: t.Sequence[str], environment: t.Mapping[str, str]) -> HookCall:
    """Read what the launcher hands on.

    Args:
        arguments: of the program.
        environment: of slurmd's making.

    Returns:
        The call, whose job id and user are of their forms.

    Raises:
        VTorqueError: the job's id, its user or its nodes are of another form.
    """
    name = arguments[0] if arguments else ""
    if name not in BEGINS:
        raise VTorqueError(f"hook {name[:40]!r}", "is not one that vTorque has")
    job_id = ids.of_environment(environment)
    user = environment.get("SLURM_JOB_USER", "")
    if not re.fullmatch(USER_NAME, user):
        raise VTorqueError(f"user {user[:80]!r}", "not of the form of a user's name")
    restarts = environment.get("SLURM_JOB_RESTART_COUNT", "")
    if not re.fullmatch(r"[0-9]{1,9}", restarts):
        raise VTorqueError(
            f"start of job {job_id}", "Slurm does not tell which one begins or ended", "Slurm 22.05 tells it"
        )
    nodes = host_list.expand(environment.get("SLURM_NODELIST", ""))
    first = nodes[0] == environment.get("SLURMD_NODENAME", "")
    if BEGINS[name]:
        role = Role.BEGIN_FIRST if first else Role.BEGIN_OTHER
    else:
        role = Role.END_FIRST if first else Role.END_OTHER
    return HookCall(
        role,
        comment.wants_guests(environment.get("SLURM_JOB_COMMENT", "")) or not BEGINS[name],
        0,
        nodes[0],
        job_id,
        user,
        None if BEGINS[name] else _status(environment.get("SLURM_JOB_EXIT_CODE2", "")),
        # an Epilog of a start that was requeued counts the next one already: each up to it is over
        start=int(restarts) + 1,
        nodes=nodes,
    )


def _status(text: str) -> int | None:
    """Return the exit status, as a shell has it, of `status:signal`."""
    found = re.fullmatch(r"([0-9]{1,3}):([0-9]{1,3})", text)
    if not found:
        return None
    return 128 + int(found[2]) if int(found[2]) else int(found[1])


@leaves_nothing
def exit_status(end: HookEnd) -> int:
    """Return what the program exits with: a job that was queued again or held needs no more; an array is braked so.

    A job of another form has no record, so that its shell runs nothing.  FAILED would drain a node for each such job.
    """
    return FAILED if end == HookEnd.FAILED else 0


@leaves_nothing
def hook_limits(policy: Policy) -> HookLimits:
    """Return the bound of a Prolog by slurm.conf of this node; by default there is none."""
    setting, seconds = _limit(policy, begins=True)

    def remedy(needed: int) -> str:
        return f"write PrologEpilogTimeout={needed + MARGIN_S} into slurm.conf, or none, then scontrol reconfigure"

    figure = "none" if seconds == float("inf") else f"{seconds:.0f}s"
    return HookLimits(setting, figure, seconds, remedy)


@leaves_nothing
def hook_ends(call: HookCall, policy: Policy, began: float) -> float:
    """Return when Slurm ends a hook, in seconds of the monotonic clock; see `HookAdapter.hook_ends`."""
    begins = call.role in (Role.BEGIN_FIRST, Role.BEGIN_OTHER)
    seconds = _limit(policy, begins=begins)[1]
    return began + (seconds if begins else min(seconds, EPILOG_S))


def _limit(policy: Policy, *, begins: bool) -> tuple[str, float]:
    """The setting that bounds a hook, as slurm.conf has it, and its seconds."""
    settings = read_settings(policy)
    for name in LIMITS[begins]:
        key, value = settings.get(name, ("", ""))
        if re.fullmatch(r"[1-9][0-9]{0,4}", value) and int(value) < 65534:
            return f"{key}={value}", float(value)
    return "PrologEpilogTimeout (none)", float("inf")


def configurations(policy: Policy) -> tuple[pathlib.Path, ...]:
    """Return where slurm.conf of this node may be: a Slurm that is built with a prefix has its own in PREFIX/etc."""
    return (commands_directory(policy).parent / "etc/slurm.conf", *CONFIGURATIONS)


def read_settings(policy: Policy) -> dict[str, tuple[str, str]]:
    """Return what slurm.conf of this node says: by each name in small letters, the name and its value; the last counts.

    Files that it includes are not read: the doctor asks the controller (`doctor_checks`).

    Args:
        policy: the site's.
    """
    for path in configurations(policy):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = re.findall(r"^[ \t]*([A-Za-z]+)[ \t]*=[ \t]*([^\s#]*)", text, re.MULTILINE)
        return {key.lower(): (key, value) for key, value in found}
    return {}

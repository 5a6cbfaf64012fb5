# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job left on the node itself is ended, where the node was the job's alone at its start and still is."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import time
import typing as t

from ....module_utils.errors import VTorqueError
from ....module_utils.job.batch import hook_call
from ....module_utils.job.config import consistency, policy_file
from ....module_utils.job.hooks import playbook
from ....module_utils.node.removal import job_processes
from ....module_utils.node.removal.job_processes import Marks
from ....module_utils.state import event_log, layout, shell_link
from ....module_utils.system import files
from ....module_utils.system.clock import Deadline
from ....module_utils.system.process.process_id import ProcessId
from ....module_utils.time_budget import EXCLUSIVE_ASK_S, LEFTOVER_PROCESSES_END_S
from .. import exclusive_note

if t.TYPE_CHECKING:
    from ....module_utils.job.batch.hook_call import HookCall
    from ....module_utils.job.config.parameters import Policy
    from ....module_utils.job.hooks.start import Start

NEVER = Deadline(float("inf"))
SHOWN = 10
"""Processes that a line of the log names."""


def end_leftovers(call: HookCall, start: Start, policy: Policy, until: float, log: t.IO[bytes]) -> None:
    """End what the job left on its mother superior.

    Args:
        call: of the epilogue.
        start: whose guests are gone.
        policy: the site's.
        until: when the hook must be done, in seconds of the monotonic clock.
        log: the job's.
    """
    links = shell_link.links_to(start.directory, start.places.run_dir)
    shells = [ProcessId(*map(int, link.name.split("."))) for link in links]
    shell = next((one for one in shells if call.session and one.pid == call.session), None)
    over = job_processes.ticks_of(hook_call.hook_began())
    seconds = min(LEFTOVER_PROCESSES_END_S, until - time.monotonic())
    node = call.mother_superior or os.uname().nodename
    _end(
        call.job_id,
        call.user,
        start.record_directory,
        lambda: policy,
        node,
        log,
        session=call.session,
        shell=shell,
        over_ticks=over,
        deadline=Deadline.after(seconds),
        hook_until=Deadline(until),
    )


def end_leftovers_of_sister(argv: t.Sequence[str], load: t.Callable[[], Policy], node: str) -> None:
    """End what the job left on another of its nodes, which no session tells: Torque says 0 there.

    Args:
        argv: user, job id and start, as root's hook gave them.
        load: gives the site's policy.
        node: this node.
    """
    user, job_id, start = argv
    policy, _broken = policy_file.load_usable(load)
    settings = consistency.log_settings_of(policy)
    event_log.configure(settings, program="vtorque-node", component="epilogue", job=job_id)
    directory = layout.STATE_DIR / "records" / layout.job_key(job_id, int(start))
    with os.fdopen(os.dup(2), "wb", buffering=0) as log:
        _end(
            job_id,
            user,
            directory,
            load,
            node,
            log,
            session=0,
            shell=None,
            over_ticks=0,
            deadline=Deadline.after(LEFTOVER_PROCESSES_END_S),
        )


def _end(
    job_id: str,
    user: str,
    directory: pathlib.Path,
    load: t.Callable[[], Policy],
    node: str,
    log: t.IO[bytes],
    *,
    session: int,
    shell: ProcessId | None,
    over_ticks: int,
    deadline: Deadline,
    hook_until: Deadline = NEVER,
) -> None:
    try:
        policy = load()
    except VTorqueError:
        return  # nobody knows what the site wants; its fault is told by others
    if not policy.kill_user_processes_after_job:
        return
    try:
        marks = Marks(job_id, pwd.getpwnam(user).pw_uid, session, shell, over_ticks)
    except KeyError:
        return
    there = job_processes.list_processes(marks)
    ours = [seen for seen in there if seen.ours]
    if ours:
        why = _why_not(job_id, directory, policy, node, hook_until)
        if why:
            playbook.note(log, f"left on {node}, {why}: {_join_names(ours)}")
        else:
            ended, left = job_processes.end(marks, deadline)
            playbook.note(log, f"ended on {node}: {_join_names(ended)}")
            if left:
                playbook.note(log, f"left on {node}, would not end: {_join_names(left)}", event_log.WARNING)
    if strange := [seen for seen in there if not seen.ours]:
        what = "neither the job's session nor its cgroup tells whose they are"
        playbook.note(log, f"left on {node}, {user}'s, {what}: {_join_names(strange)}")


def _why_not(job_id: str, directory: pathlib.Path, policy: Policy, node: str, hook_until: Deadline) -> str:
    """Why nothing is ended here; "" when the node is the job's alone, and was so at its start."""
    try:
        before = files.read_json(directory / layout.ALONE).get("others")
    except (FileNotFoundError, VTorqueError):
        return "since nobody knows whether the job had it for itself"
    if before != []:
        return f"which the job did not have for itself ({_join_names(before or ())})"
    with contextlib.suppress(VTorqueError, OSError):
        found = exclusive_note.others(job_id, policy, node, hook_until.left_s(EXCLUSIVE_ASK_S))
        return f"which the job does not have for itself ({_join_names(found)})" if found else ""
    return "since the batch system does not tell whether the job has it for itself"


def _join_names(things: t.Sequence[object]) -> str:
    more = f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
    return ", ".join(map(str, things[:SHOWN])) + more

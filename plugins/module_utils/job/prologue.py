# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`prologue`: guests for a job, or a word for its shell why not."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import time

from .. import records
from ..errors import SiteFault, VTorqueError
from ..records import ProcessId
from . import hook_call, playbook
from . import policy as site_policy
from .batch import BatchJob, open_batch
from .guest_environment import NODE_PATHS
from .hook_call import HookCall
from .parameters import Policy
from .playbook import Places, Start
from .request import MARKER
from .verdict import decide_verdict

FORMER = ("ready.json", "refusal.json", "job_key", "known_hosts")


def is_ours(job: BatchJob) -> bool:
    """Does the server's word bear our marker?  Exact, as the launcher looks for it."""
    return MARKER in job.resource_list.get("other", "").split("+")


def run(call: HookCall, places: Places, *, began: float) -> None:
    """Make the guests of this start, or leave a refusal for the job's shell.

    Args:
        began: when Torque started the hook, in seconds since the epoch.

    Raises:
        VTorqueError: not even a refusal could be left; the job's shell then runs nothing.
    """
    shell = ProcessId.of(call.parent)
    try:
        policy = site_policy.load(places.config)
        job = open_batch(policy).job(call.job_id)
    except VTorqueError as error:
        if call.marked:  # without a mark this may be anybody's job, which our trouble does not concern
            _refuse(call, Start(call.job_id, 0, places), shell, error)
        return
    if not call.marked and not is_ours(job):
        return
    start = Start(call.job_id, job.start_count, places)
    records.make_directory(start.directory)
    for name in (*FORMER, "error.json"):
        (start.directory / name).unlink(missing_ok=True)
    torque_home = pathlib.Path(policy.torque_home)
    until = hook_call.deadline(call, torque_home, began=began, at_most_s=policy.prologue_timeout)
    try:
        error_of_start = _make(call, start, policy, shell, began=began, until=until)
    except VTorqueError as error:
        error_of_start = error
    except OSError as error:
        error_of_start = VTorqueError(f"the prologue of job {call.job_id} could not work", str(error))
    if error_of_start is not None:
        try:  # first the word: Torque takes a prologue that it had to kill for a success
            _refuse(call, start, shell, error_of_start)
        finally:
            _take_back(call, start, until)


def _make(
    call: HookCall, start: Start, policy: Policy, shell: ProcessId, *, began: float, until: float
) -> VTorqueError | None:
    torque_home = pathlib.Path(policy.torque_home)
    if until <= time.time():
        return SiteFault(
            f"$prologalarm {hook_call.read_alarm_s(torque_home)}", "leaves no time for a virtual machine to start"
        )
    nodefile = torque_home / "aux" / call.job_id
    with start.open_log(_uid(call.user)) as log:
        playbook.prepare(start, nodefile if nodefile.exists() else None, policy.ssh_timeout)
        playbook.note(log, f"prologue of job {call.job_id}, start {start.number}, until {until:.0f}")
        dropped = b" ".join(NODE_PATHS).decode()
        playbook.note(log, f"variables that name paths of the node do not reach the guest: {dropped}")
        error = playbook.play(start, "prologue", until=until, log=log, shell=shell)
        if error is None and not (start.directory / "ready.json").exists():
            error = VTorqueError(f"job {call.job_id} is not ready", "the playbook ended well and left no ready record")
        figure = {"began": round(began, 3), "seconds": round(time.time() - began, 3)}
        records.write(start.directory / "phase.prologue.json", json.dumps(figure))
    return error


def _take_back(call: HookCall, start: Start, until: float) -> None:
    if not (start.directory / "plan.json").exists() and not start.guests_directory.exists():
        return
    with start.open_any_log(_uid(call.user)) as log:
        node = call.mother_superior or os.uname().nodename
        left = playbook.remove_here(start, node, timeout_s=playbook.removal_time_s(until), log=log)
        if left is not None:
            playbook.note(log, f"left behind for the epilogue: {left}")


def _refuse(call: HookCall, start: Start, shell: ProcessId, error: VTorqueError) -> None:
    """Leave the word that the job's shell prints instead of running the job."""
    node = os.uname().nodename
    refusal = decide_verdict(error, job_id=call.job_id, start=start.number, node=node)
    records.make_directory(start.directory)
    for name in FORMER:
        (start.directory / name).unlink(missing_ok=True)
    records.write_json(start.directory / "refusal.json", refusal, reader_uid=_uid(call.user))
    records.point_shell(shell, start.directory, start.places.run_dir)
    with start.open_any_log(_uid(call.user)) as log:
        playbook.note(log, f"refused: {error}")


def _uid(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise SiteFault(f"user {user}", "is not known on this node") from None

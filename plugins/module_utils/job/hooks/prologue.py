# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`prologue`: guests for a job, or a word for its shell why not, and a verdict."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
import typing as t

from ...errors import SiteFault, UserFault, VTorqueError
from ...frozen import frozen
from ...state import event_log, layout, login_fifos, shell_link, shell_message
from ...state.phases import write_phase
from ...state.records import RefusalRecord
from ...system import clock, files
from ...system.clock import Deadline
from ...system.process.process_id import ProcessId
from ...text import printable
from ...time_budget import SERVER_CALL_S, VERDICT_CALL_S
from ..batch import job_snapshot, mother_superior
from ..batch.api import BatchJob, BatchSystem, UnknownJob
from ..batch.hook_call import HookCall
from ..batch.hook_call import deadline as hook_deadline
from ..batch.patience import await_job
from ..batch.registry import open_batch, open_hooks, open_node
from ..batch.vm_job import is_marked
from ..config import policy_file
from ..config.consistency import log_settings_of
from ..config.parameters import Policy
from ..verdict import array_brake
from ..verdict.decide import Action, Verdict, advice, decide, find_loop, may_be_braked, names_node
from ..verdict.enforce import EnforcementResult, enforce, message, outcome
from . import playbook, user_script
from .ansible_process import PlaybookRunner
from .live_log import follow_log, log_wishes
from .replaced_nodes import blame_replaced
from .server_queries import StartWatch, give_back, query_job
from .start import GoAhead, Places, Start

FORMER = (
    *layout.SHELL_FILES,
    layout.REFUSAL,
    layout.VERDICT,
    layout.ERROR,
    layout.LOST,
    layout.PLAN,
    layout.ASKED,
    *(f"{key}.json" for key in (user_script.PROLOGUE, user_script.EPILOGUE)),
)
"""What a former start of this number may have left; the last two say how its scripts ended."""


@frozen
class Ending:
    """How a prologue of ours ended.

    Attributes:
        requeue: Torque is to end this start and queue the job again, held or not; all that makes that safe was read
            back, or follows from the number of this start.
        message: what the owner is to read in the job's error file; the job's shell tells them the rest.
        alarm: what an administrator is to hear of it, or "".
        grave: now.
        brake: the job ends although it should have been held, and others of its array would follow it within seconds.
    """

    requeue: bool = False
    message: tuple[str, ...] = ()
    alarm: str = ""
    grave: bool = False
    brake: bool = False


@frozen
class _Case:
    """One start, with all that a verdict on it needs.

    Attributes:
        job: the server's word when the hook began; None: there was none.
        until: when the hook's own work must be done, in seconds of the monotonic clock.
    """

    call: HookCall
    start: Start
    shell: ProcessId
    policy: Policy
    job: BatchJob | None
    until: float
    runner: PlaybookRunner
    head_start: GoAhead
    watch: StartWatch


def run(call: HookCall, places: Places, runner: PlaybookRunner, *, began: float, head_start: GoAhead) -> Ending:
    """Make the guests of this start, or leave a refusal for the job's shell and do what the verdict says.

    Args:
        runner: runs the playbook; it may have begun to load.
        began: when the batch system started the hook, in seconds of the monotonic clock.
        head_start: may begin what the playbook will ask of this node.

    Returns:
        What the batch system and people are to be told.

    Raises:
        VTorqueError: not even a refusal could be left; the job's shell then runs nothing.
    """
    shell = ProcessId.of(call.parent) if call.parent else shell_link.of_job(call.job_id)
    # what can be read of a broken configuration is enough to ask the server, and to bound the tries
    policy, broken = policy_file.load_usable(lambda: policy_file.load(places.config))
    event_log.configure(log_settings_of(policy), component="prologue")
    until = began
    if broken is not None and not call.marked:  # this may be anybody's job, which our trouble does not concern
        return Ending()
    try:
        ends = open_hooks(policy.batch_system).hook_ends(call, policy, began)
        until = hook_deadline(ends, began=began, at_most_s=policy.prologue_timeout)
        job = query_job(call, policy, until)
    except VTorqueError as error:
        if not call.marked:
            return Ending()
        return _conclude(
            _Case(
                call,
                Start(call.job_id, 0, places),
                shell,
                policy,
                None,
                until,
                runner,
                head_start,
                StartWatch(policy, call.job_id, 0),
            ),
            _both(broken, error),
        )
    if not call.marked and not is_marked(job):
        return Ending()
    watch = StartWatch(policy, call.job_id, job.start_count)
    start = Start(call.job_id, job.start_count, places)
    case = _Case(call, start, shell, policy, job, until, runner, head_start, watch)
    try:
        failed = find_loop(job) or broken or _run_playbook(case, began)
    except VTorqueError as error:
        failed = error
    except OSError as error:
        failed = VTorqueError(f"the prologue of job {call.job_id} could not work", str(error))
    if failed is None:
        return _end_well(case)
    try:
        return _end_unwanted(case) if case.watch.is_abandoned else _conclude(case, failed)
    finally:
        _remove_leftovers(case)


def _both(broken: SiteFault | None, error: VTorqueError) -> VTorqueError:
    """What is told when nobody can be asked: with a broken configuration, that comes first."""
    if broken is None:
        return error
    return SiteFault(broken.what, f"{broken.why}; and {error}", broken.hint)


def _run_playbook(case: _Case, began: float) -> VTorqueError | None:
    call, start, policy = case.call, case.start, case.policy
    if other := _users_differ(case) or mother_superior.script_elsewhere(call, case.job):
        return other
    files.make_directory(start.directory)
    login_fifos.end(start.directory)
    for name in FORMER:
        (start.directory / name).unlink(missing_ok=True)
    shell_message.offer(start.directory, _uid(call))
    if case.until <= time.monotonic():
        setting = open_hooks(policy.batch_system).hook_limits(policy).setting
        return SiteFault(setting, "leaves no time for a virtual machine to start")
    nodefile = open_node(policy.batch_system).node_file(policy, call.job_id)
    case.head_start.decide(wanted=policy.fast_start)
    if case.job is not None:
        job_snapshot.save_snapshot(case.job, start.directory)
        case.head_start.go(case.job, policy, directory=start.directory, nodefile=nodefile, until=case.until)
    show, level = log_wishes(case.job, policy)
    event_log.configure(job_level=level)
    with start.open_log(_uid(call)) as log, follow_log(log, show):
        playbook.prepare(start, nodefile if nodefile and nodefile.exists() else None, policy, case.runner)
        ends = clock.since_epoch(case.until)
        playbook.begin_log(start, log, f"prologue of job {call.job_id}, start {start.number}, until {ends:.0f}")
        if case.job is not None and case.job.preface:
            playbook.note(
                log, f"the batch server's command wrote text before its answer, which was not read: {case.job.preface}"
            )
        if case.job is not None:
            how = "begun early" if policy.fast_start else "by ansible-playbook alone"
            playbook.note(log, f"hosts {', '.join(case.job.nodes)}; {how}", event_log.DEBUG)
        case.head_start.hand_over()
        error = playbook.run_playbook(
            start,
            "prologue",
            until=case.until,
            log=log,
            shell=case.shell,
            runner=case.runner,
            plain=not policy.fast_start,
            detail=level != event_log.INFO,
            pool=pathlib.Path(policy.vm_img_dir),
            unwanted=case.watch.check,
        )
        if error is None and not (start.directory / layout.READY).exists():
            error = VTorqueError(f"job {call.job_id} is not ready", "the playbook ended well and left no ready record")
        error = error or _run_users(case, log)
        if error is None and case.watch.is_suspended():
            playbook.note(log, "the job is suspended: its guests are to stand still")
            shell_message.notify_worker(start.directory)
        took_s = time.monotonic() - began
        given_s = give_back(case.job, policy, took_s, log) if error is None else 0
        more = {"given_back": given_s} if given_s else {}
        write_phase(start.directory, "prologue", began=clock.since_epoch(began), seconds=took_s, **more)
    return error


def _users_differ(case: _Case) -> VTorqueError | None:
    """Return what is wrong where this node runs the job as somebody else than the server says; None: nothing.

    Their home would be in the other's guest.
    """
    if case.job is None or case.job.euser in ("", case.call.user):
        return None
    what = f"job {case.call.job_id} is {case.call.user}'s for the batch system on this node"
    return VTorqueError(what, f"and {printable(case.job.euser)}'s for the batch server")


def _run_users(case: _Case, log: t.IO[bytes]) -> VTorqueError | None:
    """The user's own prologue, in the guest.

    Meanwhile the job's shell has no word: Torque takes a hook that is killed here for a success.
    """
    if case.job is None or (script := user_script.requested_script(case.job, user_script.PROLOGUE)) is None:
        return None
    start = case.start
    if files.read_json(start.directory / layout.READY).get("returned"):
        return None  # it ran before the checkpoint
    for link in shell_link.links_to(start.directory, start.places.run_dir):
        link.unlink()
    timeout_s = case.until - time.monotonic()
    ended = user_script.run(script, case.job, start, case.policy, timeout_s=timeout_s, log=log)
    if ended.fault is None:
        shell_link.point(case.shell, start.directory, start.places.run_dir)
    return ended.fault


def _conclude(case: _Case, error: VTorqueError) -> Ending:
    """First the shell's word, for Torque takes a prologue that it had to kill for a success; then the verdict."""
    unwritten = _refuse(case, error)
    if not isinstance(error, UserFault):  # whose verdict needs no server
        _await_server(case)
    deadline = Deadline.after(playbook.verdict_time_s(case.until))
    batch = open_batch(case.policy, timeout_s=VERDICT_CALL_S, deadline=deadline)
    verdict, enforced = _judge(case, error, batch)
    lines = outcome(verdict, enforced, batch.release_command(case.call.job_id))
    if enforced.action == Action.REFUSE:
        unwritten = _refuse(case, error, *lines)
    _write_down(case, error, verdict, enforced, lines)
    if unwritten is not None and enforced.action == Action.REFUSE:
        raise unwritten
    message_lines = () if enforced.action == Action.REFUSE else message(error, verdict, lines)
    if case.job is not None and (message_lines or case.job.interactive):
        batch.notify_owner(case.job, message(error, verdict, lines), held=enforced.action == Action.HOLD)
    what = f"job {case.call.job_id}, start {case.start.number}: {enforced.action}: {error}; {'; '.join(lines)}"
    loud = enforced.action == Action.HOLD or enforced.offline or enforced.failed or verdict.grave
    brake = (verdict.action, enforced.action) == (Action.HOLD, Action.REFUSE) and bool(
        array_brake.array_of(case.call.job_id)
    )
    alarm = what if loud else ""
    return Ending(enforced.action != Action.REFUSE, message_lines, alarm, verdict.grave or bool(enforced.failed), brake)


def _end_well(case: _Case) -> Ending:
    if case.job is None or not any(case.start.directory.glob(layout.StepFile.REPLACED.pattern)):
        return Ending()
    alarm = blame_replaced(case.start, case.job, case.policy, until=case.until, uid=case.call.uid)
    return Ending(alarm=alarm.text, grave=alarm.grave)


def _end_unwanted(case: _Case) -> Ending:
    """Leave a start that the batch system has given up: nobody is to blame, and it is queued again or over already."""
    error = VTorqueError(f"job {case.call.job_id} was cancelled, or queued again", "while its guests booted")
    unwritten = _refuse(case, error)
    with case.start.open_any_log(case.call.uid) as log:
        playbook.note(log, f"given up: {error}", event_log.WARNING)
    if unwritten is not None:
        raise unwritten
    return Ending()


def _await_server(case: _Case) -> None:
    """Give a server that does not answer what is left of the time for guests: without it no verdict is carried out."""
    deadline = Deadline(case.until)
    if case.job is not None and not deadline.passed:
        batch = open_batch(case.policy, timeout_s=SERVER_CALL_S, deadline=deadline)
        with contextlib.suppress(SiteFault):
            await_job(batch, case.call.job_id, deadline)


def _judge(case: _Case, error: VTorqueError, batch: BatchSystem) -> tuple[Verdict, EnforcementResult]:
    here = os.uname().nodename
    refused = 0
    try:
        job = _job_now(case, batch)
        # what is over for the server, or at another start, is not to be held
        if may_be_braked(error, job) and (job is not None or case.job is None):
            refused = array_brake.record_refusal(case.call.job_id, case.start.places.run_dir)
        nodes = None
        if names_node(error):
            try:
                nodes = batch.nodes()
            except SiteFault:
                nodes = None
        verdict = decide(error, job=job, nodes=nodes, policy=case.policy, node=here, refused=refused)
        return verdict, enforce(verdict, batch, case.call.job_id, reason=f"{error.what}: {error.why}")
    except (VTorqueError, OSError) as trouble:
        verdict = decide(error, job=None, nodes=None, policy=case.policy, node=here)
        return verdict, EnforcementResult(Action.REFUSE, "", (f"nothing more could be done: {trouble}",))


def _job_now(case: _Case, batch: BatchSystem) -> BatchJob | None:
    """The job of this start; None: the server was silent then, or it is at another start, which is not to be held."""
    if case.job is None:
        return None
    try:
        now = batch.job(case.call.job_id)
    except UnknownJob:
        return None
    except SiteFault:
        return case.job
    return now if now.start_count == case.job.start_count else None


def _refuse(case: _Case, error: VTorqueError, *lines: str) -> VTorqueError | None:
    """Leave the word that the job's shell prints instead of running the job.

    Returns:
        None, or why it could not be left: without any record too, the shell runs nothing.
    """
    start, reasons = case.start, (error.what, error.why, error.hint)
    lines = (*lines, *advice(error, os.uname().nodename))
    refusal = RefusalRecord(case.call.job_id, start.number, error.fault, *reasons, lines)
    try:
        files.make_directory(start.directory)
        for name in (*layout.SHELL_FILES, layout.VERDICT):
            (start.directory / name).unlink(missing_ok=True)
        files.write_json(start.directory / layout.REFUSAL, refusal, reader_uid=_uid(case.call))
        shell_link.point(case.shell, start.directory, start.places.run_dir)
    except OSError as failed:
        return VTorqueError(f"{start.directory} was not written", str(failed))
    except VTorqueError as failed:
        return failed
    return None


def _write_down(
    case: _Case, error: VTorqueError, verdict: Verdict, enforced: EnforcementResult, lines: tuple[str, ...]
) -> None:
    """Into the job's log, and for its record; that it cannot be written changes no verdict."""
    data = {
        "fault": verdict.fault,
        "action": enforced.action,
        "try": verdict.tried,
        "of": verdict.of,
        "node": enforced.offline,
        "note": verdict.note if enforced.offline else "",
        "lines": lines,
    }
    with case.start.open_any_log(case.call.uid) as log:
        try:
            files.write(case.start.directory / layout.VERDICT, json.dumps(data))
        except VTorqueError as failed:
            playbook.note(log, str(failed), event_log.ERROR, "verdict")
        verb = {Action.REFUSE: "refused", Action.REQUEUE: "tried again", Action.HOLD: "held"}[enforced.action]
        level = event_log.INFO if isinstance(error, UserFault) else event_log.ERROR
        playbook.note(log, f"{verb}: {error}", level, "verdict")
        for line in lines:
            playbook.note(log, line, component="verdict")
        playbook.note(log, f"{verdict.fault}, try {verdict.tried} of {verdict.of}", event_log.DEBUG, "verdict")


def _remove_leftovers(case: _Case) -> None:
    start = case.start
    if not (start.directory / layout.PLAN).exists() and not start.guests_directory.exists():
        return
    with start.open_any_log(case.call.uid) as log:
        try:
            login_fifos.end(start.directory)
        except VTorqueError as error:
            playbook.note(log, f"left behind for the epilogue: {error}", event_log.WARNING)
        node = case.call.mother_superior or os.uname().nodename
        left = playbook.remove_here(start, node, timeout_s=playbook.removal_time_s(case.until), log=log)
        if left is not None:
            playbook.note(log, f"left behind for the epilogue: {left}", event_log.WARNING)


def _uid(call: HookCall) -> int:
    uid = call.uid
    if uid is None:
        raise SiteFault(f"user {call.user}", "is not known on this node")
    return uid

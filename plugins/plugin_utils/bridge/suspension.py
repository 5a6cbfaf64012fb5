# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque_follow JOB START`: orders the pause of a job's guests on all its nodes, by the batch server's word.

The worker on the mother superior calls it when the job's shell was stopped or goes on.  Anybody may have done that, so
the server is asked; the order on this node (`node/state/pause_order.py`) is what is remembered between two calls.
Below: jobs whose guests are on this node's disk, and their removal once no batch server wants them any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import subprocess
import sys
import time
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.job.batch.api import BatchJob, BatchSystem, UnknownJob
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.job.batch.liveness import RESTING, is_suspended
from ...module_utils.job.batch.registry import open_batch
from ...module_utils.job.config.parameters import Policy
from ...module_utils.node.lifecycle import present_absent, room
from ...module_utils.node.state import moves, pause_order, saved_memory, start_lock
from ...module_utils.node.state.directories import entries
from ...module_utils.node.state.guest_file import read_guest_file
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.node.system.side_channels import OFF
from ...module_utils.state import event_log, shell_message
from ...module_utils.state.layout import PARKED, job_key, run_directory, start_of
from ...module_utils.system.clock import Deadline
from ...module_utils.system.early_question import EarlyQuestion
from ...module_utils.text import printable
from ...module_utils.time_budget import SUSPENSION_ANSWER_S, SUSPENSION_CONNECTION_S, SUSPENSION_PATIENCE_S
from ...module_utils.wire.messages import VERSION, CheckpointStep, SavedRequest, Suspension
from .checkpoints import coordinate
from .moves.connection import open_call
from .node_settings import LoadPolicy, read_usable_configuration

LOOK_S = 1.0
"""Between two questions to the server, until it says that the job is suspended."""
LOOKS = 5
"""Questions at that pace after a ring: OpenPBS calls a hook before it resumes a job, and the server says so when all
nodes have (2 s and more on a busy machine; 23.06.06)."""
PAUSED_LOOK_S = 15.0
"""The same, while it is; its end is heard by a ring, too."""
AGAIN_S = 5.0
"""Until a sister is told again that was not told."""
SHOWN = 300


def follow(job_id: str, start: int, load: LoadPolicy, node: str) -> None:
    """Order the pause of a start as long as it is suspended, and end with that; or where nothing is suspended.

    Standard input rings: then the server is asked at once.  Its end is the end of whoever needs this.

    Args:
        job_id: of a job that this node leads.
        start: its number.
        load: gives the site's policy.
        node: this node.
    """
    policy, settings = read_usable_configuration(load)
    suspension = _Suspension(job_id, start, settings, node)
    batch, patience = open_batch(policy), Deadline.after(SUSPENSION_PATIENCE_S)
    # a job that ends with its checkpoint lets no guest go on, whoever rings while it does
    parked = run_directory(job_id, start, settings.run_dir) / PARKED
    looks = 0
    while not start_lock.tombstone(settings, suspension.key).exists() and not parked.exists():
        try:
            pause_s = suspension.go_on(batch)
        except SiteFault as error:  # no proof of anything
            _log(f"whether job {job_id} is suspended is not known: {error}", event_log.WARNING)
            pause_s = AGAIN_S
        answered = time.monotonic()
        if pause_s is None or (not suspension.ordered and patience.passed):
            return
        # a ring may be heard before the server knows what it was for
        rung = _rung(min(pause_s, LOOK_S) if looks else pause_s)
        if rung is None:
            return
        looks = LOOKS if rung else max(0, looks - 1)
        park = shell_message.PARK in rung
        if (park or shell_message.CHECKPOINT in rung) and suspension.take_checkpoint(batch, policy, park=park):
            return
        if rung:
            patience = Deadline.after(SUSPENSION_PATIENCE_S)
            # whoever rings is the job's user: the server is not asked more often
            time.sleep(max(0.0, answered + LOOK_S - time.monotonic()))


class _Suspension:
    """One start, and what its nodes were told."""

    def __init__(self, job_id: str, start: int, settings: NodeSettings, node: str) -> None:
        self._job_id, self._start, self._settings, self._node = job_id, start, settings, node
        self.key = job_key(job_id, start)
        self._sisters: tuple[str, ...] = ()
        self._untold: dict[str, set[str]] = {}

    @property
    def ordered(self) -> bool:
        return pause_order.is_ordered(self._settings, self.key) or bool(self._untold.get("resume"))

    def go_on(self, batch: BatchSystem) -> float | None:
        """Ask the server and give the orders that follow; seconds until it is to be asked again, None: never.

        Raises:
            SiteFault: it does not tell.
        """
        try:
            job = batch.job(self._job_id)
        except UnknownJob:
            job = None
        if job is None or job.start_count != self._start or job.state not in ("R", "S"):
            # what ends the guests finds them at work; on sisters, too, who hear of the end in their own way
            self._take_back()
            return None
        here = coordinate.nodes_in_use(job, self._settings.run_dir)
        hosts = (*here, *moves.targets_of(self._settings.record_dir(self._job_id, self._start)))
        self._sisters = tuple(host for host in dict.fromkeys(hosts) if not same_host(host, self._node))
        return self._suspend(job) if is_suspended(job, self._start) else self._resume(batch, job)

    def take_checkpoint(self, batch: BatchSystem, policy: Policy, *, park: bool) -> bool:
        """Have the guests of the whole job saved, to begin again from there; whoever rings is the job's user.

        Returns:
            Whether the job has ended with it, which is requested separately (`park`).
        """

        def end() -> None:
            with contextlib.suppress(SiteFault):  # for people
                release = batch.release_command(self._job_id)
                batch.comment(self._job_id, f"vtorque: suspended by its owner; {release} lets it go on")
            batch.park(self._job_id)

        try:
            job = batch.job(self._job_id)
            if job.start_count != self._start or job.state != "R" or self.ordered:
                raise coordinate.CheckpointRefused(f"a checkpoint of job {self._job_id}", f"it is in state {job.state}")
            coordinate.take_checkpoint(job, policy, self._settings, self._step_elsewhere, _log, end if park else None)
        except VTorqueError as error:
            _log(f"{'not suspended' if park else 'no checkpoint'}: {error}")
            return False
        return park

    def _step_elsewhere(self, host: str, step: CheckpointStep, seconds: float) -> tuple[str, ...]:
        reason, lacks = _outcome(self._send(host, step), Deadline.after(seconds + SUSPENSION_ANSWER_S))
        if reason:
            raise VTorqueError(f"{step.do} of job {self._job_id} on {host}", reason)
        return tuple(printable(str(one))[:SHOWN] for one in lacks)

    def _suspend(self, job: BatchJob) -> float:
        if pause_order.order_pause(self._settings, self.key):
            _log(f"job {job.job_id} is suspended")
        self._notify_sisters("suspend")
        return AGAIN_S if self._untold["suspend"] else PAUSED_LOOK_S

    def _resume(self, batch: BatchSystem, job: BatchJob) -> float | None:
        if not self.ordered:
            return LOOK_S
        asked = self._settings.suspend_guests == "save" or self._settings.side_channels != OFF
        if asked and (why := self._lack(batch, job)):
            _log(f"job {job.job_id} is suspended again: {why}", event_log.WARNING)
            batch.suspend(job.job_id)
            batch.comment(job.job_id, f"vtorque: still suspended: {why}; resume it later")
            return PAUSED_LOOK_S
        self._take_back()
        self._notify_sisters("resume")
        return AGAIN_S if self._untold["resume"] else None

    def _lack(self, batch: BatchSystem, job: BatchJob) -> str:
        """Why its saved guests have no room on a node of the job: nobody looks when a batch system resumes one.

        Raises:
            SiteFault: that is not known.
        """
        own = EarlyQuestion(lambda: room.lack_here(self._settings, self.key))  # it waits for answers of the network
        for node in job.nodes:
            others = [batch.job(other) for other in sorted(batch.jobs(node) - {job.job_id})]
            running = [other for other in others if other.state == "R"]
            slots = sum(same_host(host, node) for one in (job, *running) for host in one.slot_hosts)
            alone = any(one.node_exclusive for one in (job, *running))
            if running and (alone or slots > batch.node(node).slots):
                return f"job {running[0].job_id} runs on {node}"
        calls = {host: self._call(host, "fit") for host in self._sisters}
        answers = {host: _outcome(call, Deadline.after(SUSPENSION_ANSWER_S)) for host, call in calls.items()}
        if why := own():
            return why
        for host, (reason, _lacks) in answers.items():
            if reason:
                raise SiteFault(f"room for job {job.job_id} on {host}", reason)
        return "; ".join(printable(str(one))[:SHOWN] for _reason, lacks in answers.values() for one in lacks)

    def _take_back(self) -> None:
        if pause_order.take_back(self._settings, self.key):
            _log(f"job {self._job_id} is not suspended any more")

    def _notify_sisters(self, do: str) -> None:
        """Tell each sister that was not told since it became so."""
        if do not in self._untold:
            self._untold = {do: set(self._sisters)}
        untold = self._untold[do]
        calls = {host: self._call(host, do) for host in sorted(untold)}
        answers = {host: _answer(call, Deadline.after(SUSPENSION_ANSWER_S)) for host, call in calls.items()}
        for host, reason in answers.items():
            if not reason:
                untold.discard(host)
            else:
                _log(f"{host} was not told to {do}, it is tried again: {reason}", event_log.WARNING)

    def _call(self, host: str, do: str) -> subprocess.Popen[bytes]:
        return self._send(host, Suspension(VERSION, do, self._job_id, self._start, host))

    def _send(self, host: str, message: Suspension | CheckpointStep) -> subprocess.Popen[bytes]:
        return open_call(host, message, SUSPENSION_CONNECTION_S, errors=subprocess.STDOUT)


def _answer(call: subprocess.Popen[bytes], deadline: Deadline) -> str:
    """Return why a call did not go well; "": it did."""
    return _outcome(call, deadline)[0]


def _outcome(call: subprocess.Popen[bytes], deadline: Deadline) -> tuple[str, tuple[t.Any, ...]]:
    """Return why a call did not go well, "" where it did; and what the node lacks that a job needs to be resumed."""
    try:
        out = call.communicate(timeout=deadline.left_s())[0]
    except subprocess.TimeoutExpired:
        call.kill()
        call.communicate()
        return f"no answer within {SUSPENSION_ANSWER_S:.0f} s", ()
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        answer = json.loads(out.strip().rpartition(b"\n")[2])
        if call.returncode == 0 and answer.get("ok") is True:
            return "", tuple(answer.get("lack", ()))
    return printable(out.decode(errors="replace").strip()[:SHOWN]) or f"status {call.returncode}", ()


def _rung(timeout_s: float) -> bytes | None:
    """Return what standard input rang in time; None: it has ended."""
    if not select.select([sys.stdin], [], [], timeout_s)[0]:
        return b""
    return os.read(sys.stdin.fileno(), 1 << 16) or None


def _log(text: str, level: str = event_log.INFO) -> None:
    event_log.note(2, text, level, "suspension")


def list_saved(settings: NodeSettings) -> list[dict[str, t.Any]]:
    """Return a row for each start that has guests on this node's disk: job, start, user, node, since, guests, bytes.

    Args:
        settings: NodeSettings of this node.

    Raises:
        NodeFault: they cannot be read.
    """
    rows = []
    for start in entries(settings.guests_dir):
        saved = saved_memory.read_saved(start)
        named = start_of(start.name) if saved else None
        if named is None:
            continue
        file = read_guest_file(start / saved[0].name)
        row = {"job_id": named[0], "start": named[1], "user": _user(file.owner_uid) if file else ""}
        row |= {"node": settings.node_name, "since": min(one.since for one in saved)}
        rows.append({**row, "guests": len(saved), "bytes": sum(one.disk_bytes for one in saved)})
    return rows


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def forget_saved(request: SavedRequest, policy: Policy, settings: NodeSettings) -> list[str]:
    """Remove from this node what there is of the starts of a job that has saved guests here, unless it may resume.

    Args:
        request: names the job.
        policy: the site's.
        settings: NodeSettings of this node.

    Returns:
        What was removed.

    Raises:
        UserFault: the batch server has the job suspended or running.
        VTorqueError: something could not be removed, or the batch server does not answer.
    """
    starts = [row["start"] for row in list_saved(settings) if row["job_id"] == request.job_id]
    if not starts:
        return []
    try:
        state = open_batch(policy).job(request.job_id).state
    except UnknownJob:
        state = ""
    if state and state not in RESTING:
        why = f"is in state {state}: its guests are on the disk of {settings.node_name} until it is resumed"
        raise UserFault(f"job {request.job_id}", why, "delete the job itself, and they go with it")
    deadline = Deadline.after(request.timeout_s)
    return [thing for start in starts for thing in present_absent.absent(request.job_id, start, settings, deadline)]

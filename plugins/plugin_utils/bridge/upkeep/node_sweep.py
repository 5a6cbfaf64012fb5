# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sweep of a node: its guests by the batch server's word on their jobs, our note there, and records that wait."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ....module_utils.errors import VTorqueError
from ....module_utils.job.batch import liveness, offline_note
from ....module_utils.job.batch.api import BatchSystem, UnknownJob
from ....module_utils.job.batch.registry import open_batch, open_node
from ....module_utils.job.config import parameters, policy_file
from ....module_utils.job.records import retention
from ....module_utils.job.records.transfer import delivery, running
from ....module_utils.node import doctor, sweep
from ....module_utils.node.lifecycle import room
from ....module_utils.node.state import gone_checkpoints, pause_order
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.node.telemetry import node_figures
from ....module_utils.state import delivery_queue, event_log, layout
from ....module_utils.system.clock import Deadline
from .. import templates_ahead
from ..moves import evacuate
from ..node_settings import LoadPolicy, settings_of
from . import node_health

VERSION = 1
CALL_S = 10.0
"""Seconds for each question to the batch server."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What one call did and found; `--json` shows it as it is."""

    version: int
    node: str
    ok: bool
    removed: tuple[sweep.StartReport, ...]
    left: tuple[sweep.StartReport, ...]
    living: tuple[sweep.StartReport, ...]
    note: offline_note.NoteWord
    retired: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    handed_over: tuple[delivery.Delivery, ...] = ()
    health: node_health.HealthChange = node_health.WELL


def sweep_at_boot(node: str, deadline: Deadline) -> Report:
    """What is of an earlier boot.  A broken configuration must not keep a node from coming up clean: none is read."""
    settings = NodeSettings(node_name=node, node_number=None)
    swept = sweep.sweep_earlier_boot(settings, deadline)
    _mark_removed(settings, swept)
    return _report(node, swept, offline_note.NoteWord())


def sweep_by_policy(node: str, deadline: Deadline, any_number: bool, load: LoadPolicy = policy_file.load) -> Report:
    """What belongs to no living start; the rest of our work only where all of the site's configuration can be read.

    A broken one keeps nothing that is nobody's: what can be read of it, and the defaults, say where to look, and where
    that is wrong the MOM's files and the server are not found, so that nothing goes.  Whether a node's trouble is over,
    and how long records are kept, are the site's wishes: they wait until it can be read.

    Args:
        node: this node.
        deadline: when to end.
        any_number: see `sweep_everything`.
        load: gives the site's policy.

    Raises:
        VTorqueError: see `sweep.sweep`.
    """
    policy, broken = policy_file.load_usable(load)
    if broken is None:
        return sweep_everything(node, policy, deadline, any_number)
    swept = _swept(policy, node, open_batch(policy, timeout_s=CALL_S), deadline, any_number)
    problem = f"{broken.what}: {broken.why}; until it is mended no record is retired, and no note taken back"
    return _report(node, _with(swept, problem), offline_note.NoteWord())


def sweep_everything(node: str, policy: parameters.Policy, deadline: Deadline, any_number: bool) -> Report:
    """What belongs to no living start, and our note.

    Args:
        node: this node.
        policy: the site's.
        deadline: when to end.
        any_number: take away more than `sweep.MASS` starts at once, too.

    Raises:
        VTorqueError: see `sweep.sweep`.
    """
    settings = settings_of(policy, node)
    batch = open_batch(policy, timeout_s=CALL_S)
    swept = _swept(policy, node, batch, deadline, any_number)
    handed_over: tuple[delivery.Delivery, ...] = ()
    try:
        handed_over = delivery.send_waiting(policy, deadline, state_dir=settings.state_dir, run_dir=settings.run_dir)
    except OSError as error:
        swept = _with(swept, f"the records that wait for the front end cannot be read: {error}")
    running.send_due(policy, deadline, state_dir=settings.state_dir, run_dir=settings.run_dir)
    if settings.checkpoint_dir is not None:
        for problem in gone_checkpoints.forget_gone(
            settings.checkpoint_dir, _is_known(batch), sweep.TWICE_S, any_number=any_number
        ):
            swept = dataclasses.replace(swept, removed=(*swept.removed, sweep.StartReport("", problem)))
    old = retention.retire(policy.record_days, state_dir=settings.state_dir, run_dir=settings.run_dir)
    # last, as it calls programs of the site
    health = node_health.follow_health(policy, settings, batch, deadline)
    swept = _with(swept, *health.problems)
    try:
        evacuate.give_back_spare(policy, settings, batch)
        note = offline_note.take_back(batch, node, lambda cause: node_health.find_faults(settings, cause))
        node_figures.write_offline(settings, offline=bool(note.note) and not note.taken_back)
    except VTorqueError as error:
        swept = _with(swept, f"whether this node carries a note of ours is not known: {error}")
        note = offline_note.NoteWord()
    report = _report(node, _with(swept, *old.failed), note, old.removed)
    ok = report.ok and not health.degrading
    return dataclasses.replace(report, ok=ok, lost=old.lost, handed_over=handed_over, health=health)


def _is_known(batch: BatchSystem) -> t.Callable[[str], bool]:
    """Return what asks the batch system whether a job is there that has not ended."""

    def is_known(job_id: str) -> bool:
        try:
            return batch.job(job_id).state not in ("C", "F")
        except UnknownJob:
            return False

    return is_known


def _swept(
    policy: parameters.Policy, node: str, batch: BatchSystem, deadline: Deadline, any_number: bool
) -> sweep.SweepReport:
    settings = settings_of(policy, node)
    batch_files = open_node(policy.batch_system)
    alive_here = batch_files.alive_here(policy)
    asked = liveness.JobAnswers(batch)
    lives_here = liveness.by_server(asked, node)

    def lives(job_id: str, start: int) -> bool:
        return lives_here(job_id, start) or evacuate.came_and_lives(settings, asked, job_id, start)

    swept = sweep.sweep(settings, lives, alive_here, deadline, any_number=any_number)
    try:
        batch_files.remove_notes(lambda job_id, start: not alive_here(job_id) and not lives(job_id, start))
    except OSError as error:
        swept = _with(swept, f"a note of a job that is over stays: {error}")
    for problem in _follow_suspensions(settings, batch, swept.living):
        swept = _with(swept, problem)
    swept = _with(swept, *evacuate.finish_moves(settings, batch))
    doctor.note_sweep(settings, [f"{item.key}: {item.why}" if item.key else item.why for item in swept.left])
    event_log.configure(settings.log)
    if policy.log_rotate:
        retention.bound_logs(settings.state_dir, settings.log.file)
    _mark_removed(settings, swept)
    if problem := templates_ahead.want_default_template(policy, settings):
        swept = _with(swept, problem)
    return swept


def _follow_suspensions(
    settings: NodeSettings, batch: BatchSystem, living: tuple[sweep.StartReport, ...]
) -> t.Iterator[str]:
    """Pause the guests of suspended jobs and let those of others go on, where nobody else has given the order.

    A job whose shell was not told of its suspension, or hid it; or whose mother superior was lost while it lasted.  The
    server is asked again: what was removed may have taken minutes, in which a job was suspended or resumed.

    Returns:
        What could not be done, in words.
    """
    asked = liveness.JobAnswers(batch)
    for item in living:
        named = layout.start_of(item.key)
        if named is None or not settings.start_dir(*named).is_dir():
            continue
        try:
            suspended = liveness.is_suspended(asked.job(named[0]), named[1])
            if suspended and settings.suspend_guests != "session":
                pause_order.order_pause(settings, item.key)
            elif pause_order.is_ordered(settings, item.key) and pause_order.checkpoint_until(settings, item.key):
                continue  # a checkpoint, which ends by itself
            elif not suspended and (why := room.lack_here(settings, item.key)):
                yield f"start {item.key} is resumed, its saved guests stay on the disk: {why}"
            else:
                pause_order.take_back(settings, item.key)
        except (VTorqueError, OSError) as error:
            yield f"whether start {item.key} is suspended is not followed: {error}"


def _mark_removed(settings: NodeSettings, swept: sweep.SweepReport) -> None:
    """The record of a start whose epilogue was lost is handed over too, as far as it goes."""
    for item in swept.removed:
        if layout.start_of(item.key) and (settings.state_dir / "records" / item.key / layout.RECORD).exists():
            with contextlib.suppress(VTorqueError):
                delivery_queue.mark_pending(item.key, settings.state_dir)


def _with(swept: sweep.SweepReport, *troubles: str) -> sweep.SweepReport:
    """What was swept, with words that belong to no start."""
    return dataclasses.replace(swept, left=(*swept.left, *(sweep.StartReport("", trouble) for trouble in troubles)))


def _report(node: str, swept: sweep.SweepReport, note: offline_note.NoteWord, retired: tuple[str, ...] = ()) -> Report:
    ok = not swept.left and (not note.note or note.taken_back)
    return Report(VERSION, node, ok, swept.removed, swept.left, swept.living, note, retired)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is degrading: our note, lines in logs, and a checkpoint or a move of its jobs, by the site's choice.

The sweep calls this, every two minutes.  The note is taken back as every note of ours (`offline_note.take_back`), when
`find_faults` finds nothing any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import typing as t

from ....module_utils.errors import DEGRADING, NodeFault, SiteFault, VTorqueError
from ....module_utils.job.batch.api import NOTE_PREFIX, BatchSystem, UnknownJob
from ....module_utils.job.batch.host_match import find_node
from ....module_utils.job.config.parameters import Policy
from ....module_utils.job.verdict.decide import find_brake, plain_note
from ....module_utils.node.health import causes, degrading
from ....module_utils.node.health.degrading import NodeHealth
from ....module_utils.node.state.directories import entries
from ....module_utils.node.state.guest_file import read_guest_file
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.node.telemetry import node_figures
from ....module_utils.state import event_log, layout
from ....module_utils.system.clock import Deadline
from ..moves import evacuate, spares

LOOK_S = 60.0
"""Seconds for all sources of a node."""
CHECKPOINT, EVACUATE = "checkpoint", "evacuate"
ORDERS = {CHECKPOINT: "a checkpoint", EVACUATE: "a move to a spare node"}
"""What `on_degrading` orders for jobs, in words."""
COMPONENT = "health"


@dataclasses.dataclass(frozen=True, slots=True)
class HealthChange:
    """What a look at the health of this node found, and what was done.

    Attributes:
        degrading: what its sources report, in one line; "": it is well.
        note: that was written on the node now, or "".
        ordered: starts of jobs for which something was ordered now.
        problems: what could not be read or done, a line each.
        order: what that was, in words.
    """

    degrading: str = ""
    note: str = ""
    ordered: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    order: str = ""


WELL = HealthChange()


def follow_health(policy: Policy, settings: NodeSettings, batch: BatchSystem, deadline: Deadline) -> HealthChange:
    """Read the sources of this node's health, and do what the site wants for a node that is degrading.

    Args:
        policy: the site's.
        settings: NodeSettings of this node.
        batch: the batch system; its calls end in time.
        deadline: when to end.

    Returns:
        What was found and done; nothing is raised, since a sweep has more to do.
    """
    node = settings.node_name
    if not settings.health_sources:
        node_figures.write_degrading(settings, degrading=False)
        degrading.forget_all(settings)
        return WELL
    try:
        before, now = degrading.read_sources(
            settings, lambda: batch.node(node).message, Deadline.after(deadline.left_s(LOOK_S))
        )
    except (OSError, VTorqueError) as error:
        return HealthChange(problems=(f"the health of this node is not known: {error}",))
    node_figures.write_degrading(settings, degrading=bool(now.degrading))
    if bool(before.degrading) != bool(now.degrading):
        _report_change(before, now, settings)
    problems = [f"health of this node, {one.name}: {one.unknown}" for one in now.sources if one.unknown]
    if not now.degrading:
        return HealthChange(problems=tuple(problems))
    note = ""
    try:
        note, refused = _write_note(batch, policy, node, now.why)
        if refused:
            problems.append(f"{node} is degrading, and takes jobs all the same: {refused}")
            if not before.degrading:
                event_log.report(problems[-1], event_log.ERROR, COMPONENT)
    except SiteFault as error:
        problems.append(f"{node} is degrading, and whether it takes jobs is not known: {error}")
    ordered, failed = _order_more(batch, policy, settings, now.ordered)
    return HealthChange(now.why, note, ordered, (*problems, *failed), ORDERS[policy.on_degrading] if ordered else "")


def find_faults(settings: NodeSettings, cause: str) -> tuple[NodeFault, ...]:
    """Return what is wrong with this node now, for the cause that a note of ours names.

    Args:
        settings: NodeSettings of this node.
        cause: one of `errors.CAUSES`, `errors.DEGRADING`, or "" for every cause.
    """
    faults = causes.troubles(settings, cause) if cause != DEGRADING else ()
    known = degrading.read_health(settings) if cause in (DEGRADING, "") else NodeHealth()
    if known.degrading:
        return (*faults, NodeFault(f"{settings.node_name} is degrading", known.why, cause=DEGRADING))
    return faults


def _write_note(batch: BatchSystem, policy: Policy, name: str, why: str) -> tuple[str, str]:
    """Set the node offline with a note of ours; returns the note that is new, and why there is none."""
    nodes = batch.nodes()
    node = find_node(nodes, name)
    if node.note.startswith(NOTE_PREFIX) and node.offline:
        return "", ""
    if node.offline or (node.note and not node.note.startswith(NOTE_PREFIX)):
        return "", "" if node.offline else f"it has a note of an administrator ({node.note[:80]})"
    if braked := find_brake(node, nodes, policy):
        return "", braked
    note = plain_note(DEGRADING, why)
    after = batch.offline(node.name, note)
    if not after.offline or not after.note.startswith(NOTE_PREFIX):
        return "", "somebody else wrote a note meanwhile"
    nodes = batch.nodes()
    # others may have done the same since we looked: more than the brake allows never stay
    if braked := find_brake(find_node(nodes, name), nodes, policy):
        batch.clear(node.name, after.note)
        return "", braked
    return after.note, ""


def _order_more(
    batch: BatchSystem, policy: Policy, settings: NodeSettings, ordered: t.Collection[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Order what the site wants besides a note; returns the starts for which it is, and what went wrong."""
    try:
        if policy.on_degrading == CHECKPOINT:
            return _order_checkpoints(batch, settings, ordered)
        if policy.on_degrading == EVACUATE:
            return _order_evacuation(batch, policy, settings, ordered)
    except (OSError, VTorqueError) as error:
        return (), [f"no {policy.on_degrading} was ordered: {error}"]
    return (), []


def _order_checkpoints(
    batch: BatchSystem, settings: NodeSettings, ordered: t.Collection[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Order one checkpoint of each job here that can have one; returns the starts, and what went wrong."""
    new, problems = [], []
    for directory in entries(settings.guests_dir):
        start = layout.start_of(directory.name)
        if start is None or directory.name in ordered or not _has_checkpoints(directory):
            continue
        try:
            job = batch.job(start[0])
            if job.state != "R" or job.start_count != start[1]:
                continue  # it ends, or is suspended: asked again at the next look
            batch.request_checkpoint(job.job_id)
            new.append(directory.name)
        except UnknownJob:
            continue
        except SiteFault as error:
            problems.append(f"no checkpoint of start {directory.name} was ordered: {error}")
    problems += _note_order(settings, new, CHECKPOINT)
    return tuple(new), problems


def _order_evacuation(
    batch: BatchSystem, policy: Policy, settings: NodeSettings, ordered: t.Collection[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Order one move of the guests here; returns their starts, and what went wrong.

    A move that fails pauses its guest, so that it is not tried at each look; `vmgr node evacuate` tries again.
    """
    names = [directory.name for directory in entries(settings.guests_dir)]
    new = tuple(name for name in names if layout.start_of(name) and name not in ordered)
    if not new:
        return (), []
    free, why = spares.find_free(policy, batch, but=(settings.node_name,))
    if not free:
        return (), [f"no guest is moved, since no spare node is free: {why}"]
    evacuate.begin(policy, settings.node_name)
    return new, _note_order(settings, new, EVACUATE)


def _note_order(settings: NodeSettings, keys: t.Sequence[str], kind: str) -> list[str]:
    for key in keys:
        _add_to_log(settings, key, f"{ORDERS[kind]} was ordered, since the node is degrading")
    try:
        if keys:
            degrading.note_order(settings, keys, Deadline.after(degrading.LOCK_S))
    except (OSError, VTorqueError) as error:
        return [f"the order is not noted, and is given again: {error}"]
    return []


def _has_checkpoints(directory: pathlib.Path) -> bool:
    """A job without them would get the order as a signal, which ends its program."""
    guests = [read_guest_file(guest) for guest in entries(directory)]
    return any(guest is not None and guest.checkpoint for guest in guests)


def _report_change(before: NodeHealth, now: NodeHealth, settings: NodeSettings) -> None:
    """For the administrators, and in the logs of the jobs that are here."""
    node = settings.node_name
    if now.degrading:
        text, level = f"node {node} is degrading: {now.why}", event_log.ERROR
    else:
        text, level = f"node {node} is well again; it was degrading: {before.why}", event_log.INFO
    event_log.report(text, level, COMPONENT)
    with contextlib.suppress(VTorqueError):
        for directory in entries(settings.guests_dir):
            if layout.start_of(directory.name):
                _add_to_log(settings, directory.name, text)


def _add_to_log(settings: NodeSettings, key: str, text: str) -> None:
    """Add a line to a job's log where this node has it; its owner reads it, and nothing waits for it."""
    path = settings.state_dir / "records" / key / layout.LOG
    with contextlib.suppress(OSError):
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(log, event_log.format_text(text, event_log.WARNING, COMPONENT))
        finally:
            os.close(log)

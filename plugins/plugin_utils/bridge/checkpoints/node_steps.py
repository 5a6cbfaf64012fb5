# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node does for a checkpoint of a job, one step after the other; its mother superior asks (`coordinate.py`)."""

from __future__ import annotations

import pathlib
import shutil
import time
import typing as t

from ....module_utils.eligibility.guest_saving import objections_to_saving
from ....module_utils.errors import VTorqueError
from ....module_utils.node.domain.connection import Domains
from ....module_utils.node.domain.domain_xml import memory_bytes, unsavable_parts
from ....module_utils.node.guest.join import guests_of
from ....module_utils.node.state import checkpoint_store, pause_order, saved_memory, start_lock
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.state.layout import job_key
from ....module_utils.system.clock import Deadline
from ....module_utils.wire.messages import CheckpointStep


def take_step(step: CheckpointStep, settings: NodeSettings) -> tuple[str, ...]:
    """Do one step here.

    Args:
        step: which.
        settings: NodeSettings of this node.

    Returns:
        Why it is not done, or not yet; (): it is.

    Raises:
        VTorqueError: it cannot be done.
    """
    return STEPS[step.do](step, settings)


def _pause(step: CheckpointStep, settings: NodeSettings) -> tuple[str, ...]:
    key = job_key(step.job_id, step.start)
    ordered = pause_order.order_checkpoint(settings, key, time.time() + step.seconds)
    return () if ordered else ("its guests stand still already",)


def _resume(step: CheckpointStep, settings: NodeSettings) -> tuple[str, ...]:
    key = job_key(step.job_id, step.start)
    if pause_order.checkpoint_until(settings, key):
        pause_order.take_back(settings, key)
    return ()


def _unsaved_guests(step: CheckpointStep, settings: NodeSettings) -> tuple[str, ...]:
    """Return the guests whose memory is not on the disk yet."""
    return tuple(guest.name for guest in _directories(step, settings) if not saved_memory.needs_nothing(guest))


def _store(step: CheckpointStep, settings: NodeSettings) -> tuple[str, ...]:
    if settings.checkpoint_dir is None:
        raise VTorqueError(f"{settings.node_name} has no checkpoint_dir", "where guests could be saved")
    place = checkpoint_store.job_dir(settings.checkpoint_dir, step.job_id) / f"{step.generation}{checkpoint_store.NEW}"
    deadline = Deadline.after(step.seconds)
    for guest in _directories(step, settings):
        checkpoint_store.save_guest(guest, place / guest.name, deadline)
    return ()


def _directories(step: CheckpointStep, settings: NodeSettings) -> list[pathlib.Path]:
    directory = settings.start_dir(step.job_id, step.start)
    return [directory / guest.name for guest in guests_of(step.job_id, step.start, settings)]


def _objections(step: CheckpointStep, settings: NodeSettings) -> tuple[str, ...]:
    """Why this node's guests of a start cannot be saved now."""
    here = settings.node_name
    store = settings.checkpoint_dir
    if store is None:
        return (f"{here} has no checkpoint_dir",)
    if why := checkpoint_store.why_unsafe(store):
        return (f"checkpoint_dir on {here}: {why}",)
    key = job_key(step.job_id, step.start)
    guests = guests_of(step.job_id, step.start, settings)
    if not guests or not start_lock.is_locked(start_lock.start_lock(settings, key)):
        return (f"nobody watches over its guests on {here}",)
    if pause_order.is_ordered(settings, key):
        return (f"its guests on {here} stand still already",)
    found, needed = [], 0
    with Domains(settings.libvirt_uri) as domains:
        for guest in guests:
            facts = domains.facts(guest.name)
            if facts is None or facts.state != "running":
                found.append(f"guest {guest.name} does not run")
            else:
                found += [f"guest {guest.name}: {why}" for why in objections_to_saving(unsavable_parts(facts.xml))]
                directory = settings.start_dir(step.job_id, step.start) / guest.name
                needed += memory_bytes(facts.xml) + (directory / "disk.qcow2").stat().st_blocks * 512
    if needed > (free := shutil.disk_usage(store).free):
        found.append(f"{store} has {free >> 20} MiB free, and {needed >> 20} MiB are needed for {here}")
    return tuple(found)


STEPS: dict[str, t.Callable[[CheckpointStep, NodeSettings], tuple[str, ...]]] = {
    "can_save": _objections,
    "hold": _pause,
    "held": _unsaved_guests,
    "store": _store,
    "let_go": _resume,
}
"""What is done for each value of `CheckpointStep.do`."""

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a start that begins again from a checkpoint of its job."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils.errors import CheckpointFault, SiteFault, VTorqueError
from ....module_utils.job.plan.job_plan import NO_ADDITIONS, JobPlan
from ....module_utils.node.state import checkpoint_store
from ....module_utils.wire.messages import GuestSpec

DECIDED_AGAIN = ("host_key", "authorized_key", "saved_in", "saved_digest", "vcpu_cores", "other_cores")
"""What of a guest need not be as it was: keys are those of the checkpoint, cores are those of the new node."""


def return_from(plan: JobPlan, store: pathlib.Path | None) -> JobPlan:
    """Return the plan with the guests of the newest checkpoint of its job, or as it is where there is none.

    Args:
        plan: of a start, as if it began anew.
        store: the site's `checkpoint_dir`; None: it has none.

    Raises:
        CheckpointFault: there is one, and this start cannot begin from it.
        SiteFault: whether there is one is not known, because the store is not there.
    """
    if store is None or all(part.checkpoint_min < 0 for part in plan.node_parts):
        return plan
    if why_unsafe := checkpoint_store.why_unsafe(store):
        hint = "is it mounted? see checkpoint_dir"
        raise SiteFault(f"whether job {plan.job_id} has checkpoints is not known", why_unsafe, hint)
    found = checkpoint_store.generations(store, plan.job_id)
    why: list[str] = []
    for generation in found:
        try:
            return _returned(plan, checkpoint_store.read_manifest(store, plan.job_id, generation), store)
        except VTorqueError as error:
            why.append(str(error))
    if not found:
        return plan
    hint = "root lets it begin from its start: vmgr job checkpoint JOB --delete"
    raise CheckpointFault(f"job {plan.job_id} cannot begin from its checkpoints", "; ".join(why), hint)


def forget_checkpoints(store: pathlib.Path, job_id: str) -> bool:
    """Remove all checkpoints of a job; returns whether there were any.

    Args:
        store: the site's `checkpoint_dir`.
        job_id: of the job.

    Raises:
        OSError: they cannot be removed.
    """
    return checkpoint_store.forget(store, job_id)


def _returned(plan: JobPlan, manifest: t.Mapping[str, t.Any], store: pathlib.Path) -> JobPlan:
    what = f"checkpoint {manifest['generation']} of job {plan.job_id}"
    old = JobPlan.from_json(manifest["plan"])
    if (old.job_id, old.owner, old.user_shell) != (plan.job_id, plan.owner, plan.user_shell):
        raise VTorqueError(what, "is of another user, or another job")
    before = [part.guests for part in old.parts_by_rank]
    if [len(guests) for guests in before] != [len(part.guests) for part in plan.parts_by_rank]:
        had, has = (", ".join(str(len(part.guests)) for part in one.parts_by_rank) for one in (old, plan))
        raise VTorqueError(what, f"has {had} guests on its nodes, and this start {has}")
    saved = {one["rank"]: one for one in manifest["guests"]}
    place = checkpoint_store.job_dir(store, plan.job_id) / str(manifest["generation"])
    parts = {part.node: part for part in plan.node_parts}
    for part, guests in zip(plan.parts_by_rank, before, strict=True):
        for new, was in zip(part.guests, guests, strict=True):
            if differs := _differences(new, was):
                raise VTorqueError(what, f"guest {was.rank} was saved with another {', '.join(differs)}")
        returned = tuple(
            dataclasses.replace(
                was,
                saved_in=str(place / saved[was.rank]["name"]),
                saved_digest=saved[was.rank]["digest"],
                vcpu_cores="",
                other_cores="",
            )
            for was in guests
        )
        parts[part.node] = dataclasses.replace(part, guests=returned)
    new_plan = dataclasses.replace(plan, node_parts=tuple(parts.values()), job_key=old.job_key, additions=NO_ADDITIONS)
    return JobPlan.from_json(new_plan.to_json())


def _differences(new: GuestSpec, was: GuestSpec) -> list[str]:
    names = [field.name for field in dataclasses.fields(new) if field.name not in DECIDED_AGAIN]
    return [name for name in names if getattr(new, name) != getattr(was, name)]

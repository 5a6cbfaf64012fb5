# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that their owners have suspended (`vmgr job suspend`), and whether one can be saved at all."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ....module_utils.job.admission.resolve import why_not_saved
from ....module_utils.job.batch.api import BatchJob, BatchSystem, UnknownJob
from ....module_utils.job.batch.liveness import RESTING
from ....module_utils.job.batch.vm_job import vm_job_of
from ....module_utils.node.state import checkpoint_store
from ....module_utils.node.state.directories import entries
from ....module_utils.state.layout import start_of

if t.TYPE_CHECKING:
    from ....module_utils.job.config.parameters import Policy


def find_objection(job: BatchJob, policy: Policy) -> str:
    """Return why the guests of a job are not saved when its owner wants it; "": they are.

    The signal that asks for it would end a job that does not listen for it.

    Args:
        job: the batch server's word.
        policy: the site's.

    Raises:
        VTorqueError: its request cannot be read.
    """
    vm_job = vm_job_of(job)
    if vm_job is None:
        return "runs in no virtual machines"
    return why_not_saved(vm_job.request, policy, interactive=job.interactive)


def list_parked(store: pathlib.Path, batch: BatchSystem) -> list[dict[str, t.Any]]:
    """Return a row for each job that rests in a checkpoint: job, start, user, since, guests, bytes; no node has it.

    Args:
        store: the site's `checkpoint_dir`, on a host that has it.
        batch: tells whether a job still rests.

    Raises:
        VTorqueError: the store cannot be read, or the batch system does not tell.
    """
    rows = []
    for place in entries(store):
        named = start_of(f"{place.name}.0")
        note = checkpoint_store.read_parked(store, named[0]) if named else {}
        if named is None or not note or note.get("failed"):
            continue
        with contextlib.suppress(UnknownJob):
            if batch.job(named[0]).state in RESTING - {"C"}:
                row = {"job_id": named[0], "start": note["start"], "user": note["user"], "node": ""}
                rows.append({**row, "since": note["since"], **_size(store, named[0])})
    return rows


def _size(store: pathlib.Path, job_id: str) -> dict[str, int]:
    """Return how many guests the newest checkpoint of a job has, and how much all of its checkpoints take."""
    place = checkpoint_store.job_dir(store, job_id)
    newest = next(iter(checkpoint_store.generations(store, job_id)), 0)
    guests = sum(path.is_dir() for path in entries(place / str(newest)))
    taken = 0
    for path in place.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            taken += path.lstat().st_blocks * 512
    return {"guests": guests, "bytes": taken}

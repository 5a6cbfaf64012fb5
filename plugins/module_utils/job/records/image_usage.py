# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs need an image, as far as the batch server can tell; and when one was used last, as far as records can."""

from __future__ import annotations

import pathlib
import typing as t

from ...errors import VTorqueError
from ..batch.api import BatchJob
from ..batch.vm_job import vm_job_of
from .job_record import RECORDS, read_all

CLOCKS_S = 600
"""By which the clocks of the server and of who publishes images may differ."""
LOOKED_AT = 5000
"""Records, the newest first, in which the last use of images is looked for."""
_SUFFIXES = (".qcow2", ".img")


def in_need(
    entry: str, jobs: t.Iterable[BatchJob], *, default: str | None, revisions: t.Mapping[str, float | None]
) -> tuple[str, ...]:
    """The jobs that run on an image, or would not find it when they start.

    A job that names no revision took the newest of the moment when it started, so one that started when there was a
    newer one does not run on an older one.

    Args:
        entry: the image, `debian12@3` or `old.img`.
        jobs: all of the batch server's.
        default: the image of a request that names none.
        revisions: when each entry of the pool that stays was made, in seconds since the epoch; None: not known.

    Returns:
        In words, a job each.
    """
    stem, _at, number = entry.partition("@")
    newer = [made for other, made in revisions.items() if _follows(other, stem, number)]
    others = any(_stem(other) == _stem(entry) for other in revisions)
    found = []
    for job in jobs:
        wanted = _image(job, default)
        if job.state == "C" or wanted is None or _stem(wanted) != _stem(entry) or ("@" in wanted and wanted != entry):
            continue
        runs = job.state in ("R", "E", "S")
        named = wanted == entry
        if not named and not runs and others:
            continue
        if not named and runs and any(made and job.started_s > made + CLOCKS_S for made in newer):
            continue
        found.append(f"job {job.job_id} of {job.euser or job.owner_user} ({'runs' if runs else 'waits'})")
    return tuple(found)


def _image(job: BatchJob, default: str | None) -> str | None:
    try:
        vm_job = vm_job_of(job)
    except VTorqueError:
        # root refuses it when it starts
        return None
    if vm_job is None:
        return None
    wanted = vm_job.request.values.get("img") or default
    return str(wanted) if wanted else None


def _stem(name: str) -> str:
    stem = name.partition("@")[0]
    return next((stem.removesuffix(suffix) for suffix in _SUFFIXES if stem.endswith(suffix)), stem)


def _follows(other: str, stem: str, number: str) -> bool:
    name, _at, its_number = other.partition("@")
    return name == stem and bool(number) and int(its_number or 0) > int(number)


def last_uses(directory: pathlib.Path = RECORDS) -> dict[str, float]:
    """When each image was used last: the end of its last job, or its beginning, in seconds since the epoch.

    Args:
        directory: of all records of this host; those that the caller may not read are not looked at.

    Returns:
        By image, as records name it.
    """
    found: dict[str, float] = {}
    try:
        records, _more = read_all(directory, last=LOOKED_AT)
    except VTorqueError:
        return found
    for record in records:
        moment = record.ended or record.began
        for guest in record.guests:
            if moment and guest.image:
                found[guest.image] = max(moment, found.get(guest.image, 0.0))
    return found

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job with the request that it carries: the one answer to whether a job is a VM job.

The marker among the job's resources is what hooks and the launcher find quickly; what is planned follows the request
alone, and a marked job without one is refused.
"""

from __future__ import annotations

import functools

from ...effects import leaves_nothing
from ...frozen import frozen
from ..request.request import MARKER, Request
from .api import BatchJob


@frozen
class VmJob:
    """A job that runs in guests.

    Attributes:
        job: the batch server's word.
        request: what the job carries in its attribute `x`.
    """

    job: BatchJob
    request: Request


@leaves_nothing
def vm_job_of(job: BatchJob) -> VmJob | None:
    """Return a job with its request; None: it carries none, so that it is no VM job.

    Args:
        job: the batch server's word; it is not trusted.

    Raises:
        UserFault: the request cannot be read (`Request.decode`).
        RequestErrors: it holds what the parsers refuse.
    """
    request = _decode(job.x)
    return VmJob(job, request) if request is not None else None


@leaves_nothing
def is_marked(job: BatchJob) -> bool:
    """Return whether the server's word bears our marker, exactly as the launcher looks for it."""
    return MARKER in job.resource_list.get("other", "").split("+")


@functools.lru_cache(maxsize=1)
def _decode(x_attribute: str) -> Request | None:
    """Decode a request once for all steps of a program that works for one job."""
    return Request.decode(x_attribute)

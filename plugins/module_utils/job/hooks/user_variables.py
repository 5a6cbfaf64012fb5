# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user gave the job by `-v` and `-V`, for the scripts that hooks start, which have no environment of the job.

The batch server tells Variable_List to the job's owner, from whichever host they ask, and not to an operator: so it is
the process that has become the user who asks.
"""

from __future__ import annotations

import typing as t

from ...errors import SiteFault

if t.TYPE_CHECKING:
    from ..batch.api import BatchSystem

REPLACED = "\ufffd"
"""Stands for what the answer could not hold: bytes that are no UTF-8, control characters, in Torque 6.1 also `<`."""


def query_variables(batch: BatchSystem, job_id: str) -> dict[str, str]:
    """The job's Variable_List.

    Args:
        batch: is asked.
        job_id: of a job of this process's user.

    Raises:
        SiteFault: the server does not tell.
    """
    listed = batch.job(job_id).variables
    if not listed:  # what qsub itself puts there is never missing
        raise SiteFault(f"Variable_List of job {job_id}", "the batch server does not show it to the job's owner")
    return listed


def exact(listed: t.Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What the server told as it is in the job, and the names of the rest: a value that is nearly right is none."""
    whole = {name: value for name, value in listed.items() if REPLACED not in name + value}
    return whole, tuple(name.replace(REPLACED, "?") for name in listed if name not in whole)


def merged(
    listed: t.Mapping[str, str], known: t.Mapping[str, str], is_submitted: t.Callable[[str], bool]
) -> dict[str, str]:
    """A job's environment, as the batch system puts it together: what its node says counts over what was submitted.

    Args:
        listed: of Variable_List; those of the submission are among it, and the user may have changed them.
        known: by root, of this start.
        is_submitted: returns whether a variable of this name belongs to the submission.
    """
    submitted = {name: value for name, value in known.items() if is_submitted(name)}
    return {**submitted, **listed, **{name: value for name, value in known.items() if name not in submitted}}

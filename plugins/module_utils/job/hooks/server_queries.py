# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries of a prologue to the batch system about its job, and the time that it gives back; verdicts are elsewhere."""

from __future__ import annotations

import time
import typing as t

from ...effects import leaves_nothing
from ...errors import SiteFault
from ...system.clock import Deadline
from ...time_budget import SERVER_CALL_S, SERVER_LEAST_S, SERVER_PATIENCE_S, SERVER_UNMARKED_S, VERDICT_CALL_S
from ..batch.api import GIVEN_UP, SUSPENDED, BatchJob
from ..batch.hook_call import HookCall
from ..batch.patience import await_job
from ..batch.registry import open_batch
from ..config.parameters import Policy
from . import playbook


def query_job(call: HookCall, policy: Policy, until: float) -> BatchJob:
    """Return the job as the server describes it; a server that is busy is queried again.

    Args:
        call: of the hook.
        policy: the site's.
        until: when the hook's own work must be done, in seconds of the monotonic clock.

    Raises:
        UnknownJob: it answered that there is none.
        SiteFault: it did not answer in all this time.
    """
    left_s = until - time.monotonic()
    patience_s = (
        max(SERVER_LEAST_S, min(max(SERVER_PATIENCE_S, left_s / 2), left_s)) if call.marked else SERVER_UNMARKED_S
    )
    deadline = Deadline.after(patience_s)
    batch = open_batch(policy, timeout_s=SERVER_CALL_S, deadline=deadline)
    if not call.marked:
        return batch.job(call.job_id)
    return await_job(batch, call.job_id, deadline, others=Deadline.after(min(patience_s, SERVER_PATIENCE_S)))


class StartWatch:
    """Queries the batch system whether this start is still wanted, until it is not.

    Args:
        policy: the site's.
        job_id: of the job.
        start: its number.
    """

    @leaves_nothing
    def __init__(self, policy: Policy, job_id: str, start: int) -> None:
        self._batch = open_batch(policy, timeout_s=VERDICT_CALL_S)
        self._job_id = job_id
        self._start = start
        self.is_abandoned = False

    def check(self) -> bool:
        """Return whether it was given up."""
        self.is_abandoned = self.is_abandoned or self._batch.start_state(self._job_id, self._start) == GIVEN_UP
        return self.is_abandoned

    def is_suspended(self) -> bool:
        """Return whether the job was suspended: its shell, which would let us know, does not run yet."""
        return self._batch.start_state(self._job_id, self._start) == SUSPENDED


def give_back(job: BatchJob | None, policy: Policy, seconds: float, log: t.IO[bytes]) -> int:
    """Give the time of this start back to the job's time limit; that it cannot be given back fails no start.

    Args:
        job: the server's word; None: there was none.
        policy: the site's.
        seconds: that the start took.
        log: the job's, open to be added to.

    Returns:
        Seconds, 0 where there is nothing to give back.
    """
    if job is None:
        return 0
    batch = open_batch(policy, timeout_s=VERDICT_CALL_S)
    try:
        given_s = batch.give_back_time(job, min(seconds, policy.prologue_timeout))
    except SiteFault as error:
        playbook.note(log, f"the {seconds:.0f} s of this start count as the job's time: {error}")
        return 0
    if given_s:
        playbook.note(log, f"the job's time limit is {given_s} s longer: this start took {seconds:.0f} s")
    return given_s

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries to a batch server that does not answer: it may be busy, restarted or upgraded, and jobs are to live through.

slurmctld that is restarted is away for seconds, and one that is upgraded or fails over for a minute or two; bare jobs
notice nothing of it.
"""

from __future__ import annotations

import time
import typing as t

from ...errors import SiteFault
from .api import UnknownJob
from .shared.server_command import ServerSilent

if t.TYPE_CHECKING:
    from ...system.clock import Deadline
    from .api import BatchJob, BatchSystem

PAUSES_S = (0.5, 1.0, 2.0)


def await_job(batch: BatchSystem, job_id: str, deadline: Deadline, *, others: Deadline | None = None) -> BatchJob:
    """Return the job as the server describes it; a server that does not answer is queried again.

    Args:
        batch: the server.
        job_id: of the job.
        deadline: when there is to be an answer.
        others: until when it is queried again after other faults, which more seldom pass; None: not at all.

    Raises:
        UnknownJob: it answered that there is none.
        SiteFault: it did not answer in all this time.
    """
    asked, last_error, whole_s = 0, None, deadline.left_s()
    while True:
        asked += 1
        try:
            return batch.job(job_id)
        except UnknownJob:
            raise
        except SiteFault as error:
            if last_error is None or not deadline.passed:  # one that was cut off by our end says less than those before
                last_error = error
            pause_s = PAUSES_S[min(asked, len(PAUSES_S)) - 1]
            until = deadline if isinstance(error, ServerSilent) else others
            if until is None or min(until.left_s(), deadline.left_s()) <= pause_s:
                often = f"; asked {asked} times in {whole_s:.0f} s" if asked > 1 else ""
                raise SiteFault(last_error.what, f"{last_error.why}{often}", last_error.hint) from error
            time.sleep(pause_s)  # nothing tells when a server answers again

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that a server tells of in another form than its adapter reads: it counts, with what can be read of it."""

from __future__ import annotations

from ...request.request import MARKER
from ..api import BatchJob

NOT_RUNNING = frozenset("QHWC")


def odd_job(
    job_id: str,
    *,
    name: str,
    owner: str,
    euser: str,
    egroup: str,
    state: str,
    queue: str,
    hosts: tuple[str, ...],
    x: str,
) -> BatchJob:
    """Return such a job; unless its server says that it waits or is over it runs, so that nobody takes its node.

    Args:
        job_id: of the job, or what there is of it.
        name: of the job, as all that follow; "": it cannot be read.
        owner: who submitted it.
        euser: the user as whom it runs.
        egroup: their group.
        state: a letter, as of `BatchJob`.
        queue: it is in.
        hosts: one for each slot; (): it may have any.
        x: its request, where it is one of ours; "": it is none.
    """
    return BatchJob(
        job_id=job_id,
        name=name,
        owner_user=owner,
        owner_host="",
        euser=euser,
        egroup=egroup,
        state=state if state in NOT_RUNNING else "R",
        queue=queue,
        slot_hosts=hosts,
        start_count=0,
        x=x,
        jobtype="",
        init_work_dir="",
        session_id=0,
        substate=0,
        interactive=False,
        walltime_s=0,
        variables={},
        submit_args="",
        resource_list={"other": MARKER} if x else {},
        account="",
    )

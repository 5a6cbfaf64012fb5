# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job checkpoint` and `suspend`: have the guests of a job saved, or forget what was saved of it."""

from __future__ import annotations

import argparse
import os
import pathlib
import typing as t

from .....module_utils.errors import SiteFault, UserFault
from .....module_utils.job.batch.api import UnknownJob
from .....module_utils.job.batch.liveness import RESTING
from .....module_utils.job.batch.registry import open_batch
from .....module_utils.job.config.batch_systems import facts_of
from .....module_utils.job.request.host_expressions import host_matches
from ....bridge.checkpoints.parked import find_objection
from ....bridge.checkpoints.return_plan import forget_checkpoints

if t.TYPE_CHECKING:
    from .....module_utils.job.config.parameters import Policy

EPILOG = """\
The job must have been submitted with -vm checkpoint=on or checkpoint_every=.  Its guests stand still for seconds; a
later start of the job begins from there.  The job's log says when it is done, or why not.  With --delete, as root on a
host that has checkpoint_dir, a job that is queued or held begins from its start again.

examples:
  vmgr job checkpoint 4711
  vmgr job log 4711
  vmgr job checkpoint 4711 --delete
"""
SUSPEND_EPILOG = """\
The job must have been submitted with -vm checkpoint=on or checkpoint_every=.  Its guests are saved, and end; its nodes
are free for other jobs.  The job is queued again and held.  The batch system's own command releases it, and is
printed: then the job goes on from there, on whatever nodes.  If it cannot be saved or held, it runs on, and its log
says why.

example:
  vmgr job suspend 4711
"""


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Ask for a checkpoint of a job, one in which it rests, or remove all; see `Subject` of `main.py`.

    Raises:
        UserFault: the job is none of which there could be one.
        SiteFault: the batch system does not answer, or does not let the caller.
    """
    policy = load()
    if not facts_of(policy.batch_system).checkpoints or policy.checkpoint_dir is None:
        raise SiteFault(
            "checkpoints of jobs", "this site has none", "see checkpoint_dir, and the manual of its batch system"
        )
    batch = open_batch(policy, front_end=host_matches(policy.regex_fe, os.uname().nodename))
    try:
        job = batch.job(batch.find_id(call.job))
    except UnknownJob:
        if call.verb == "checkpoint" and call.delete:
            return _delete(policy.checkpoint_dir, call.job)
        raise UserFault(f"job {call.job}", "is not known to the batch system") from None
    park = call.verb == "suspend"
    if not park and call.delete:
        if job.state not in RESTING:
            raise UserFault(f"job {job.job_id}", f"is in state {job.state}: it may begin from them", "delete the job")
        return _delete(policy.checkpoint_dir, job.job_id)
    if job.state != "R":
        raise UserFault(f"job {job.job_id}", f"is in state {job.state or 'unknown'}: only a running one can be saved")
    if why := find_objection(job, policy):
        raise UserFault(f"job {job.job_id}", why, "vmgr job show says what a job can live through")
    if park and not job.rerunnable:
        raise UserFault(f"job {job.job_id}", "was submitted as one that may not run again")
    batch.request_checkpoint(job.job_id, park=park)
    print(f"asked for; vmgr job log {job.job_id.partition('.')[0]} says when it is done")
    if park:
        print(f"then it is held, and goes on after: {batch.release_command(job.job_id)}")
    return 0


def _delete(store: str, job_id: str) -> int:
    try:
        found = forget_checkpoints(pathlib.Path(store), job_id)
    except OSError as error:
        raise SiteFault(f"the checkpoints of job {job_id}", str(error), "as root, on a host that has them") from error
    print("removed" if found else "none")
    return 0

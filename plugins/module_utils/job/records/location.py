# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the record of a job is that has none here, as far as the batch server can tell."""

from __future__ import annotations

import os

from ...errors import VTorqueError
from ...text import printable
from ..batch import liveness
from ..batch.api import NOTE_PREFIX, BatchJob, BatchSystem
from ..batch.host_match import same_host
from ..batch.registry import open_batch
from ..config.parameters import Policy
from ..request.request import PREFIX

ASK_S = 3.0
WAITING = frozenset("QHW")
"""Letters of a job that has not begun, or not again."""


def find_id(named: str, policy: Policy) -> str:
    """The id of a job that somebody names as users of the batch system do.

    Args:
        named: `4711`, `4711.head`, `72[1]`, `33_1`.
        policy: says where the batch system is.

    Returns:
        Its id in the product's form; "" when nobody knows it.
    """
    try:
        return open_batch(policy, front_end=True, timeout_s=ASK_S).find_id(named)
    except VTorqueError:  # what is not known, nobody is told
        return ""


def describe(job_id: str, policy: Policy) -> str:
    """What to say of a job of which there is no record here.

    Args:
        job_id: the whole id.
        policy: names the front end that keeps records, and where the batch system is.

    Returns:
        "" when nothing is known of it.
    """
    batch = open_batch(policy, front_end=True, timeout_s=ASK_S)
    try:
        job = batch.job(job_id)
    except VTorqueError:
        return ""
    if PREFIX not in job.x:
        return "it asked for no virtual machines, and has no record"
    if job.state in WAITING and job.comment.startswith(NOTE_PREFIX):
        return _of_waiting(job, batch)
    return _of(job, policy)


def _of_waiting(job: BatchJob, batch: BatchSystem) -> str:
    """Return what we left on a job that was tried: lists of its batch system show no reason of ours."""
    word = printable(job.comment.removeprefix(NOTE_PREFIX).removeprefix("held: "))
    if job.state == "H":
        return f"it is held: {word}; {batch.release_command(job.job_id)} releases it"
    return f"it waits to be tried again: {word}"


def _of(job: BatchJob, policy: Policy) -> str:
    node = printable(job.nodes[0]) if job.nodes else ""
    if not node:
        return "it has not started yet"
    host = printable(policy.record_host or "")
    if job.state in liveness.RUNNING:
        there = f"it runs: vmgr job watch {job.job_id} shows how it goes. Its record is on {node}"
        return f"{there} until it ends; {host} gets it then" if host else there
    if not host:
        return f"its record is on {node}"
    if not same_host(host, os.uname().nodename):
        return f"its record is on {node}, and on {host} once that has got it"
    return f"its record has not arrived: it is on {node}, which hands it over to {host} as soon as it can"

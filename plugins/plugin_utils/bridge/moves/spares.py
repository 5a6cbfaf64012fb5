# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spare nodes of the site (`spare_nodes`): offline with a note of ours, which names the job that has one.

    vtorque: spare                 it is free
    vtorque: spare for 4711.head   it is set aside for guests of this job

A note is compared and set; no batch system does both in one step.  So the spare node itself looks at the note, and has
guests of one job alone: where two jobs have believed that they have it, one of them is refused.
"""

from __future__ import annotations

import typing as t

from ....module_utils.errors import SiteFault
from ....module_utils.job.batch.api import BatchNode, BatchSystem
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.job.batch.offline_note import SPARE_NOTE
from ....module_utils.job.config.parameters import Policy

NOTE = SPARE_NOTE
FOR = f"{SPARE_NOTE} for "


def note_of(job_id: str) -> str:
    """Return the note of a spare node that is set aside for a job."""
    return f"{FOR}{job_id}"


def job_of(note: str) -> str:
    """Return the job for which a spare node is set aside by its note; "": for none."""
    return note.removeprefix(FOR) if note.startswith(FOR) else ""


def is_spare(policy: Policy, node: str) -> bool:
    """Return whether the site has named a node as a spare one."""
    return any(same_host(node, one) for one in policy.spare_nodes)


def find_free(policy: Policy, batch: BatchSystem, but: t.Collection[str] = ()) -> tuple[tuple[str, ...], str]:
    """Return the spare nodes that no job has, and why each of the others cannot be had.

    Args:
        policy: the site's.
        batch: tells of the nodes.
        but: nodes that are none, whatever is said of them.

    Raises:
        SiteFault: the batch server does not answer.
    """
    wanted = [name for name in policy.spare_nodes if not any(same_host(name, one) for one in but)]
    if not wanted:
        return (), "the site has no other spare nodes (spare_nodes)"
    found, reasons = [], []
    known = batch.nodes()
    for name in wanted:
        node = next((one for one in known if same_host(name, one.name)), None)
        why = _why_not(node, batch) if node else "is not known to the batch server"
        if node and not why:
            found.append(node.name)
        else:
            reasons.append(f"{name} {why}")
    return tuple(found), "; ".join(reasons)


def _why_not(node: BatchNode, batch: BatchSystem) -> str:
    if not node.offline or node.note != NOTE:
        return f"is not offline with the note {NOTE!r}, but {'with ' + repr(node.note) if node.note else 'without one'}"
    if node.states & {"down", "unknown"}:
        return "is down"
    # not every system tells of them with its nodes
    jobs = node.jobs or batch.jobs(node.name)
    return f"has job {min(jobs)}" if jobs else ""


def claim(batch: BatchSystem, node: str, job_id: str) -> None:
    """Set a spare node aside for a job.

    Raises:
        SiteFault: it is not free any more, or the batch system did not do it.
    """
    seen = batch.node(node)
    if why := _why_not(seen, batch):
        raise SiteFault(f"spare node {node}", why)
    seen = batch.offline(node, note_of(job_id))
    if seen.note != note_of(job_id):
        raise SiteFault(f"spare node {node}", f"somebody else wrote its note: {seen.note!r}")


def check_claim(batch: BatchSystem, node: str, job_id: str) -> None:
    """Check that a node is set aside for a job, by its batch system's answer.

    Raises:
        SiteFault: it is not.
    """
    seen = batch.node(node)
    if not seen.offline or seen.note != note_of(job_id):
        raise SiteFault(f"guests of job {job_id} on {node}", f"its note is {seen.note!r}, not {note_of(job_id)!r}")


def give_back(batch: BatchSystem, node: str, job_id: str) -> bool:
    """Let a spare node be free again that was set aside for a job; False: it was not.

    Raises:
        SiteFault: the batch system did not do it.
    """
    if batch.node(node).note != note_of(job_id):
        return False
    batch.offline(node, NOTE)
    return True

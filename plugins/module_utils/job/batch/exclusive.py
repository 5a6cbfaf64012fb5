# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node runs one job alone."""

from __future__ import annotations

import typing as t

from ..config.parameters import Policy
from .api import BatchJob, BatchSystem
from .host_match import same_host
from .registry import open_node


def others(batch: BatchSystem, job_id: str, node: str, policy: Policy) -> tuple[str, ...]:
    """What else is on this node: by the server's word, and by what the batch system has here, which may be more.

    That is asked before anything of a user's is ended there.

    Args:
        batch: the batch system.
        job_id: the job that should be alone.
        node: this node.
        policy: the site's.

    Returns:
        Jobs, and traces of jobs; () when it is alone.

    Raises:
        SiteFault: one of the two does not tell.
    """
    jobs = [f"job {other}" for other in sorted(batch.jobs(node) - {job_id})]
    return (*jobs, *open_node(policy.batch_system).others_here(policy, job_id))


def is_exclusive(job: BatchJob, node: str, open_batch: t.Callable[[], BatchSystem]) -> bool:
    """Return whether the batch system gives a node to nobody else as long as a job has it.

    Traces on the node are not looked at: those of the job before may still be there when this one begins.

    Args:
        job: the server's word.
        node: one of its nodes.
        open_batch: asked only where the job itself does not say so: when all slots are its own, none is left.

    Raises:
        SiteFault: the server does not tell.
    """
    if job.node_exclusive:
        return True
    if job.slots_shared:
        return False
    mine = sum(same_host(node, host) for host in job.slot_hosts)
    return 0 < open_batch().node(node).slots <= mine

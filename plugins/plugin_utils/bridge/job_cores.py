# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores of this node are a job's: qemu stays on them, whatever the guest does.

A cpuset of the batch system's decides where there is one.  Else a job that has the node alone gets all of its cores: by
the server's `node_exclusive`, or because all slots are the job's.  Where the cpuset is made after the hook, guests boot
on cores that no other job has, and their worker moves them to the job's.  A shared node without cpusets is refused.
"""

from __future__ import annotations

from ...module_utils.errors import SiteFault, UserFault
from ...module_utils.job.batch import exclusive
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.job.batch.registry import open_batch, open_node, open_terms
from ...module_utils.job.config.parameters import Policy
from ...module_utils.node.system import cpus, side_channels
from ...module_utils.system.clock import Deadline
from ...module_utils.time_budget import EXCLUSIVE_ASK_S


def cores_of(job: BatchJob, policy: Policy, node: str, *, with_host: bool = False) -> cpus.Cores:
    """The cores of this node on which the guests of a job may run.

    Args:
        job: the batch server's word.
        policy: the site's.
        node: this node.
        with_host: also those that are kept for the host, where no cpuset of the MOM's says which are the job's: guests
            with cores of their own need the host's for qemu's other threads.

    Returns:
        The cpuset of the job; else, where the node is the job's alone, the node's cores but for the host's; else, where
        its cpuset is still to come (`cpusets_of`), as many that no other job has.

    Raises:
        UserFault: others may run here too, because the job does not ask for what the site's jobs ask for.
        SiteFault: others may run here too, and the site wants it so; or it is not known.
    """
    if given := cpus.of_mom(job.job_id) or cpus.of_groups(cpusets_of(job.job_id, policy)):
        return given
    if exclusive.is_exclusive(job, node, lambda: open_batch(policy, deadline=Deadline.after(EXCLUSIVE_ASK_S))):
        return cpus.of_node(0 if with_host else policy.host_os_core_count)
    if others := open_node(policy.batch_system).cpusets(policy, "*"):
        mine = sum(same_host(node, host) for host in job.slot_hosts)
        return cpus.unassigned_cores(others, policy.host_os_core_count, mine)
    what, why = (
        f"the cores of job {job.job_id} on {node}",
        "other jobs may run there, and the batch system gives it no cores",
    )
    if policy.pbs_exclusive_node_alloc:
        raise UserFault(what, why, "submit the job with vsub, which asks for whole nodes")
    raise SiteFault(what, why, f"{open_terms(policy.batch_system).OWN_CORES}, or set pbs_exclusive_node_alloc: true")


def may_change(job: BatchJob, policy: Policy, cores: cpus.Cores) -> bool:
    """Return whether the cores of a job are a guess, since its cpuset is still to come, on a node that jobs share.

    Args:
        job: the batch server's word.
        policy: the site's.
        cores: what `cores_of` has returned.
    """
    patterns = cpusets_of(job.job_id, policy)
    whole = (cpus.of_node(0), cpus.of_node(policy.host_os_core_count))
    return bool(patterns) and cores not in whole and not cpus.of_groups(patterns)


def cpusets_of(job_id: str, policy: Policy) -> tuple[str, ...]:
    """Where the cpuset of a job will be that its guests are to stay in, as patterns below a hierarchy of cgroups.

    Args:
        job_id: of the job.
        policy: the site's.
    """
    return open_node(policy.batch_system).cpusets(policy, job_id)


def apply_side_channels(
    job: BatchJob, policy: Policy, node: str, cores: cpus.Cores
) -> tuple[cpus.Cores, tuple[str, ...]]:
    """Keep the promise of `side_channels` for the guests of a job, as far as the batch system's gifts decide it.

    Args:
        job: the batch server's word.
        policy: the site's.
        node: this node.
        cores: what `cores_of` has returned.

    Returns:
        The cores on which they may run, and where their cpuset is still to come (`cpusets_of`).

    Raises:
        UserFault: the job shares a node of which the site's jobs have all.
        SiteFault: the promise cannot be kept, or that is not known.
    """
    level, later = policy.side_channels, cpusets_of(job.job_id, policy)
    if level == side_channels.OFF:
        return cores, later
    what = f"side_channels={level} on {node}"
    alone = exclusive.is_exclusive(job, node, lambda: open_batch(policy, deadline=Deadline.after(EXCLUSIVE_ASK_S)))
    if level in side_channels.ALONE and not alone:
        why = f"job {job.job_id} does not have the node to itself"
        raise UserFault(what, why, "submit the job with vsub, which asks for whole nodes")
    if objections := side_channels.find_objections(level):
        raise SiteFault(what, "; ".join(objections), "vmgr doctor says more")
    if level not in side_channels.WHOLE_CORES:
        return cores, later
    if not alone and later and not cpus.of_groups(later):
        why = "the batch system gives a job its cores when its guests run already, and they may be parts of cores"
        raise SiteFault(what, why, "set pbs_exclusive_node_alloc: true")
    return side_channels.select_whole_cores(cores, node), later if alone else ()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores of this node are a job's: qemu stays on them, whatever the guest does.

The MOM's cpuset decides where there is one.  Else a job that has the node alone gets all of its cores: by the server's
`node_exclusive`, or because all slots are the job's.  A shared node without cpusets is refused.
"""

from __future__ import annotations

from ...module_utils.errors import SiteFault, UserFault
from ...module_utils.job.batch import exclusive
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.registry import open_batch
from ...module_utils.job.config.parameters import Policy
from ...module_utils.node.system import cpus
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
        The MOM's cpuset of the job; else, where the node is the job's alone, the node's cores but for the host's.

    Raises:
        UserFault: others may run here too, because the job does not ask for what the site's jobs ask for.
        SiteFault: others may run here too, and the site wants it so; or it is not known.
    """
    if given := cpus.of_mom(job.job_id):
        return given
    if exclusive.is_exclusive(job, node, lambda: open_batch(policy, deadline=Deadline.after(EXCLUSIVE_ASK_S))):
        return cpus.of_node(0 if with_host else policy.host_os_core_count)
    what, why = f"the cores of job {job.job_id} on {node}", "other jobs may run there, and the MOM makes no cpusets"
    if policy.pbs_exclusive_node_alloc:
        raise UserFault(what, why, "submit the job with vsub, which asks for whole nodes")
    raise SiteFault(what, why, "use a MOM that makes cpusets (--enable-cgroups), or pbs_exclusive_node_alloc: true")

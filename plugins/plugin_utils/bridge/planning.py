# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a start, from what the batch server, the policy and the pool say; it needs both wings."""

from __future__ import annotations

import pathlib
import platform

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import SiteFault
from ...module_utils.job.admission import resolve as site_policy
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.vm_job import vm_job_of
from ...module_utils.job.config import parameters
from ...module_utils.job.plan.job_plan import NO_ADDITIONS, JobPlan, make_plan, owner_of
from ...module_utils.job.request.request import ADDITIONS, is_path
from ...module_utils.node.pool.images import find
from ...module_utils.wire.messages import Additions


@leaves_nothing
def plan_start(job: BatchJob, policy: parameters.Policy, nodefile: pathlib.Path) -> JobPlan:
    """Plan the guests of a start, with new keys.

    Args:
        job: the batch server's word.
        policy: the site's.
        nodefile: the job's node file, which is only compared with the server's word.

    Returns:
        The plan.

    Raises:
        VTorqueError: it cannot be made; the class says whose fault it is.
    """
    return make_plan(
        job,
        policy,
        offers_of(job, policy),
        node_file=read_node_file(nodefile),
        timeout_s=float(policy.prologue_timeout),  # what is really left is told when the node is asked
        additions=additions_of(job, policy),
    )


def additions_of(job: BatchJob, policy: parameters.Policy) -> Additions:
    """What the job's user adds to his guests, read again as himself and checked again.

    Args:
        job: the batch server's word.
        policy: the site's.

    Raises:
        UserFault: the request cannot be read; the file is not what was submitted, or asks for what it may not.
        SiteFault: the file is out of reach.
    """
    vm_job = vm_job_of(job)
    if vm_job is None or ADDITIONS not in vm_job.request.values or job.euser != job.owner_user:
        return NO_ADDITIONS  # the plan says why another user's job is none
    from ...module_utils.job.admission import metadata  # only who has such a file pays
    from ...module_utils.job.hooks import user_file  # only who has such a file pays

    path, owner = str(vm_job.request.values[ADDITIONS]), owner_of(job.euser, job.egroup)
    content = user_file.read(ADDITIONS, path, vm_job.request.digests[ADDITIONS], owner, limit=metadata.MAX_BYTES)
    return metadata.read(content, path, policy, owner.home)


def offers_of(job: BatchJob, policy: parameters.Policy) -> site_policy.Offers:
    """The one image that the job asks for, as the pool of this node has it.

    Args:
        job: the batch server's word.
        policy: says where the pool is.

    Returns:
        That image, or none, and this node's architecture.

    Raises:
        VTorqueError: there is no such image, or it cannot be believed; the request cannot be read.
    """
    vm_job = vm_job_of(job)
    asked = (vm_job.request.values.get("img") if vm_job else None) or policy.img_default
    images: tuple[site_policy.ImageFacts, ...] = ()
    if asked and not is_path(asked):
        image = find(str(asked), pathlib.Path(policy.vm_img_dir))
        images = (site_policy.ImageFacts(image.name, image.distro, image.arch),)
    return site_policy.Offers(images=images, archs=(platform.machine(),))


def read_node_file(path: pathlib.Path) -> str:
    """The job's node file, which is only compared with the server's word.

    Args:
        path: where it is.

    Returns:
        Its content.

    Raises:
        SiteFault: it is not there.
    """
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise SiteFault(f"the node file {path}", str(error), "is torque_home right in the configuration?") from error

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a start, from what the batch server, the policy and the pool say; it needs both job and node.

A plan is made once.  Its identity is a digest of its inputs, which costs little: who finds a plan of the same inputs
takes it over (`action/job_plan.py`), whoever made it (`faststart/head_start.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import platform
import types
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import SiteFault, VTorqueError
from ...module_utils.frozen import frozen
from ...module_utils.job.admission import resolve as site_policy
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.vm_job import vm_job_of
from ...module_utils.job.config import parameters
from ...module_utils.job.plan.job_plan import NO_ADDITIONS, JobPlan, make_plan
from ...module_utils.job.plan.owner import owner_of
from ...module_utils.job.request.keys import ADDITIONS, PINNING
from ...module_utils.job.request.request import is_path
from ...module_utils.node.pool.images import Image, find
from ...module_utils.wire.messages import Additions, Owner
from .checkpoints.return_plan import return_from

if t.TYPE_CHECKING:
    from ...module_utils.job.admission.vcpu_map import VcpuMap


@frozen
@leaves_nothing
class PlanInputs:
    """All that a plan is made of, but for keys, which are new in each.

    What a user adds to their guests is in the job, whose request holds the digest of the file.

    Attributes:
        job: the batch server's word: with the request and the nodes.
        policy: the site's.
        image: of the pool; None: the job brings its own, whose digest is in the request.
        node_file: content of the job's node file; None: its batch system has none.
        owner: this node's word on the job's owner, or why it has none, which the plan will say.
    """

    job: BatchJob
    policy: parameters.Policy
    image: Image | None
    node_file: str | None
    owner: Owner | VTorqueError

    @functools.cached_property
    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of the inputs."""
        image, owner = self.image, self.owner
        parts = {
            "job": vars(self.job),
            "policy": vars(self.policy),
            # its content decides nothing here: the nodes read it, and hold it against the record
            "image": [] if image is None else [image.name, str(image.path), dict(image.record)],
            "arch": platform.machine(),
            "node_file": self.node_file,
            "owner": [type(owner).__name__, str(owner)] if isinstance(owner, VTorqueError) else [repr(owner)],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()

    def find_owner(self, _user: str, _group: str) -> Owner:
        """Return the job's owner, of whom the batch server's word has the names.

        Raises:
            VTorqueError: this node has none.
        """
        if isinstance(self.owner, VTorqueError):
            raise self.owner
        return self.owner


@leaves_nothing
def inputs_of(job: BatchJob, policy: parameters.Policy, nodefile: pathlib.Path | None) -> PlanInputs:
    """Gather what the plan of a start is made of.

    Args:
        job: the batch server's word.
        policy: the site's.
        nodefile: the job's node file, which is only compared with the server's word; None: there is none.

    Raises:
        VTorqueError: there is no such image, or it cannot be believed; the request or the node file cannot be read.
    """
    node_file = None if nodefile is None else read_node_file(nodefile)
    return PlanInputs(job, policy, image_of(job, policy), node_file, _owner_known(job))


@leaves_nothing
def create_plan(inputs: PlanInputs) -> JobPlan:
    """Plan the guests of a start, with new keys.

    Args:
        inputs: of the plan.

    Raises:
        VTorqueError: it cannot be made; the class says whose fault it is.
    """
    job, policy = inputs.job, inputs.policy
    plan = make_plan(
        job,
        policy,
        _offers(inputs.image),
        node_file=inputs.node_file,
        timeout_s=float(policy.prologue_timeout),  # what is really left is told when the node is asked
        find_owner=inputs.find_owner,
        additions=additions_of(job, policy, inputs.find_owner),
        pinning=read_vcpu_map(job, inputs.find_owner),
        inputs=inputs.digest,
    )
    if policy.checkpoint_dir is None or job.start_count < 2:
        return plan
    return return_from(plan, pathlib.Path(policy.checkpoint_dir))


def _owner_known(job: BatchJob) -> Owner | VTorqueError:
    try:
        return owner_of(job.euser, job.egroup)
    except VTorqueError as error:
        return error


@leaves_nothing
def plan_start(job: BatchJob, policy: parameters.Policy, nodefile: pathlib.Path | None) -> JobPlan:
    """Plan the guests of a start, with new keys: `create_plan` what `inputs_of` gathers."""
    return create_plan(inputs_of(job, policy, nodefile))


def additions_of(
    job: BatchJob, policy: parameters.Policy, find_owner: t.Callable[[str, str], Owner] = owner_of
) -> Additions:
    """What the job's user adds to their guests, read again as themselves and checked again.

    Args:
        job: the batch server's word.
        policy: the site's.
        find_owner: from the names of user and group to the owner.

    Raises:
        UserFault: the request cannot be read; the file is not what was submitted, or asks for what it may not.
        SiteFault: the file is out of reach.
    """
    vm_job = vm_job_of(job)
    if vm_job is None or ADDITIONS not in vm_job.request.values or job.euser != job.owner_user:
        return NO_ADDITIONS  # the plan says why another user's job is none
    found: Additions = _load_user_files().read(vm_job, policy, find_owner(job.euser, job.egroup))
    return found


def read_vcpu_map(job: BatchJob, find_owner: t.Callable[[str, str], Owner] = owner_of) -> VcpuMap | None:
    """Return the user's map of vCPUs to cores, read again as themselves; None: they have none.

    Args:
        job: the batch server's word.
        find_owner: from the names of user and group to the owner.

    Raises:
        UserFault: the request cannot be read; the file is not what was submitted, or no map.
        SiteFault: the file is out of reach.
    """
    vm_job = vm_job_of(job)
    if vm_job is None or not is_path(vm_job.request.values.get(PINNING)) or job.euser != job.owner_user:
        return None  # as for additions
    found: VcpuMap = _load_user_files().read_map(vm_job, find_owner(job.euser, job.egroup))
    return found


def _load_user_files() -> types.ModuleType:
    """Return `user_additions`."""
    from . import user_additions  # 5 ms that only those pay who have such a file

    return user_additions


def image_of(job: BatchJob, policy: parameters.Policy) -> Image | None:
    """Return the one image that the job asks for, as the pool of this node has it; None: it asks for none of the pool.

    Args:
        job: the batch server's word.
        policy: says where the pool is.

    Raises:
        VTorqueError: there is no such image, or it cannot be believed; the request cannot be read.
    """
    vm_job = vm_job_of(job)
    asked = (vm_job.request.values.get("img") if vm_job else None) or policy.img_default
    return find(str(asked), pathlib.Path(policy.vm_img_dir)) if asked and not is_path(asked) else None


def _offers(image: Image | None) -> site_policy.Offers:
    if image is None:
        return site_policy.Offers(images=(), archs=(platform.machine(),))
    images = (
        site_policy.ImageFacts(image.name, image.distro, image.arch, image.boot.mode, image.record.get("rdma", "")),
    )
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

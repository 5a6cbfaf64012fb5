# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user's own files say of their guests, read again as themselves and checked again."""

from __future__ import annotations

from ...module_utils.job.admission import metadata, vcpu_map
from ...module_utils.job.batch.vm_job import VmJob
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.hooks import user_file
from ...module_utils.job.request.keys import ADDITIONS, PINNING
from ...module_utils.wire.messages import Additions, Owner


def read(vm_job: VmJob, policy: Policy, owner: Owner) -> Additions:
    """Return what the file says that the request names.

    Args:
        vm_job: names the file, and has its digest of the submission.
        policy: the site's.
        owner: the job's.

    Raises:
        UserFault: the file is not what was submitted, or asks for what it may not.
        SiteFault: the file is out of reach.
    """
    path, digest = str(vm_job.request.values[ADDITIONS]), vm_job.request.digests[ADDITIONS]
    content = user_file.read(ADDITIONS, path, digest, owner, limit=metadata.MAX_BYTES)
    return metadata.read(content, path, policy, owner.home)


def read_map(vm_job: VmJob, owner: Owner) -> vcpu_map.VcpuMap:
    """Return the map of vCPUs in the file that the request names.

    Args:
        vm_job: names the file, and has its digest of the submission.
        owner: the job's.

    Raises:
        UserFault: the file is not what was submitted, or no map.
        SiteFault: the file is out of reach.
    """
    path, digest = str(vm_job.request.values[PINNING]), vm_job.request.digests[PINNING]
    return vcpu_map.read(user_file.read(PINNING, path, digest, owner, limit=vcpu_map.MAX_BYTES), path)

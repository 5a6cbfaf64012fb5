# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of a job whose guests can be saved."""

from __future__ import annotations

import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import GuestSpec, NodePart, Owner

JOB = "7.head"
ALICE = Owner("alice", 1001, 1001, "alice", "/home/alice", "/bin/bash")


def make_plan(*nodes: str, start: int = 1, owner: Owner = ALICE, **guest: t.Any) -> JobPlan:
    """Return a plan with one guest on each node, and new keys."""
    key = make_key("job@test")
    parts = []
    for rank, node in enumerate(nodes):
        facts: dict[str, t.Any] = {"image": "tiny@1", "distro": "debian", "arch": "x86_64", "vcpus": 1, "ram_mib": 256}
        facts |= {"hypervisor": "qemu", "fs_type": "sharedfs", "authorized_key": key.public}
        spec = GuestSpec(rank=rank, index=0, host_key=make_key(f"guest-{rank}@test"), **{**facts, **guest})
        parts.append(NodePart(1, "present", JOB, start, node, 60.0, owner, (spec,), checkpoint_min=0))
    return JobPlan(owner, key, tuple(parts), 1, JOB, start, nodes[0], "")

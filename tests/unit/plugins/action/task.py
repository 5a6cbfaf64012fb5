# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action run as Ansible runs it, over a connection that answers as a node would."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import types
import typing as t
from unittest import mock

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import guestspec, records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan import JobPlan

JOB = "4711.head"
START = 2
OWNER = guestspec.Owner(user="alice", uid=1234, gid=1234, group="domain users", home="/home/alice", shell="/bin/bash")
FACTS = {"rank": 0, "name": "vn1-3", "mac": "52:54:00:00:01:03", "address": "192.0.2.17", "timings_s": {"ready": 3.2}}
KEYS = {rank: make_key(f"guest-{rank}@test") for rank in range(2)}
JOB_KEY = make_key("job@test")


def guest(rank: int) -> guestspec.GuestSpec:
    return guestspec.GuestSpec(
        rank=rank, index=0, image="tiny@1", distro="debian", arch="x86_64", vcpus=1, ram_mib=256,
        hypervisor="qemu", fs_type="sharedfs", host_key=KEYS[rank], authorized_key=JOB_KEY.public,
    )  # fmt: skip


def make_plan(*nodes: str, ram_mib: int = 256) -> JobPlan:
    parts = tuple(
        guestspec.NodePart(
            version=1,
            do="present",
            job_id=JOB,
            start=START,
            node=node,
            timeout_s=100.0,
            owner=OWNER,
            guests=(dataclasses.replace(guest(rank), ram_mib=ram_mib),),
        )
        for rank, node in enumerate(nodes)
    )
    return JobPlan(
        version=1, job_id=JOB, start=START, mother_superior=nodes[0], owner=OWNER, user_shell="", job_key=JOB_KEY,
        node_parts=parts,
    )  # fmt: skip


class Node:
    """A connection to a node whose `vtorque-node` gives an answer; it remembers what it was asked."""

    def __init__(self, answer: t.Any = None, *, status: int = 0, complaint: bytes = b"") -> None:
        self.answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.status = status
        self.complaint = complaint
        self.commands: list[str] = []
        self.requests: list[dict[str, t.Any]] = []
        self._shell = types.SimpleNamespace(tmpdir=None)

    def exec_command(self, cmd: str, in_data: bytes, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        self.commands.append(cmd)
        self.requests.append(json.loads(in_data))
        return self.status, self.answer, self.complaint


class Gone(Node):
    """A node that is not there."""

    def exec_command(self, cmd: str, in_data: bytes, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        raise AnsibleConnectionFailure("Connection timed out")


def good(*guests: dict[str, t.Any], **others: t.Any) -> dict[str, t.Any]:
    return {"version": 1, "ok": True, "guests": list(guests), "removed": [], "left": [], **others}


def act(
    module: types.ModuleType, run_dir: pathlib.Path, node: Node | None = None, *, host: str = "n1", check: bool = False,
    **args: t.Any,
) -> dict[str, t.Any]:  # fmt: skip
    """Run an action as Ansible does, and return its result."""
    task = mock.MagicMock(
        args={"job_id": JOB, "start": START, "run_dir": str(run_dir), **args}, check_mode=check, diff=True, async_val=0
    )
    action = module.ActionModule(
        task=task, connection=node or Node(), play_context=mock.MagicMock(), loader=mock.MagicMock(),
        templar=mock.MagicMock(), shared_loader_obj=None,
    )  # fmt: skip
    action._early_needs_tmp_path = lambda: False
    result: dict[str, t.Any] = action.run(task_vars={"inventory_hostname": host})
    assert not any(key in json.dumps(result) for key in ("PRIVATE KEY", KEYS[0].private[60:100], "ssh-ed25519"))
    return result


def error(run_dir: pathlib.Path) -> dict[str, t.Any]:
    return records.read_json(run_dir / "error.json")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action run as Ansible runs it, over a connection that answers as a node would."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
import types
import typing as t
from unittest import mock

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import GuestFacts

JOB = "4711.head"
START = 2
OWNER = messages.Owner(user="alice", uid=1234, gid=1234, group="domain users", home="/home/alice", shell="/bin/bash")
FACTS = to_dict(GuestFacts(0, "vn1-3", "52:54:00:00:01:03", "192.0.2.17", {"ready": 3.2}))
KEYS = {rank: make_key(f"guest-{rank}@test") for rank in range(4)}
JOB_KEY = make_key("job@test")


def guest(rank: int) -> messages.GuestSpec:
    return messages.GuestSpec(
        rank=rank, index=0, image="tiny@1", distro="debian", arch="x86_64", vcpus=1, ram_mib=256,
        hypervisor="qemu", fs_type="sharedfs", host_key=KEYS[rank], authorized_key=JOB_KEY.public,
    )  # fmt: skip


def make_plan(*nodes: str, ram_mib: int = 256, image: str = "tiny@1") -> JobPlan:
    parts = tuple(
        messages.NodePart(
            version=1,
            do="present",
            job_id=JOB,
            start=START,
            node=node,
            timeout_s=100.0,
            owner=OWNER,
            guests=(dataclasses.replace(guest(rank), ram_mib=ram_mib, image=image),),
        )
        for rank, node in enumerate(nodes)
    )
    return JobPlan(
        version=1, job_id=JOB, start=START, mother_superior=nodes[0], owner=OWNER, user_shell="", job_key=JOB_KEY,
        node_parts=parts,
    )  # fmt: skip


PROGRAM = """#!/usr/bin/python3
import json, pathlib, sys, time
place = pathlib.Path(__file__).parent
with (place / "requests").open("a") as requests:
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        print(json.dumps(asked), file=requests, flush=True)
        told = json.loads((place / "answers.json").read_text())
        one = told.get(asked["node"], told[""])
        sys.stderr.write(one["complaint"])
        time.sleep(one["sleep"])
        if asked["do"] == "join" and one["answer"]:
            one["answer"] = one["join"]
        sys.stdout.write(one["answer"] + ("\\n" if one["answer"] else ""))
        sys.stdout.flush()
        if one["status"]:
            sys.exit(one["status"])
        if not one["answer"]:
            break
"""


class Node:
    """Nodes whose `vtorque-node` gives an answer, and what it was asked.

    Args:
        answer: JSON, or text of it, in answer to the first line; nothing: it ends.
        join: the same to the second.
        others: of other nodes than the first, by name; each of the form of the arguments here.
    """

    def __init__(
        self, answer: t.Any = None, *, status: int = 0, complaint: bytes = b"", join: t.Any = None, sleep: float = 0,
        others: dict[str, Node] | None = None,
    ) -> None:  # fmt: skip
        self.reported = {
            "answer": answer.decode() if isinstance(answer, bytes) else json.dumps(answer),
            "join": json.dumps(join or good()),
            "status": status, "complaint": complaint.decode(), "sleep": sleep,
        }  # fmt: skip
        self.others = others or {}
        self.place: pathlib.Path | None = None

    def put(self, prefix: pathlib.Path) -> None:
        self.place = prefix / "bin"
        self.place.mkdir(parents=True)
        (self.place / "vtorque-node").write_text(PROGRAM, encoding="ascii")
        (self.place / "vtorque-node").chmod(0o755)
        report = {"": self.reported, **{name: other.reported for name, other in self.others.items()}}
        (self.place / "answers.json").write_text(json.dumps(report), encoding="utf-8")

    @property
    def requests(self) -> list[dict[str, t.Any]]:
        """Everything that was asked, in the order in which it came."""
        path = (self.place or pathlib.Path("/nonexistent")) / "requests"
        return [json.loads(line) for line in path.read_text("ascii").splitlines()] if path.exists() else []

    def asked(self, do: str) -> list[str]:
        """Which nodes were asked that."""
        return sorted(request["node"] for request in self.requests if request["do"] == do)


class Gone(Node):
    """A node that is not there."""

    def __init__(self) -> None:
        super().__init__(b"", status=255, complaint=b"ssh: connect to host n1 port 22: Connection timed out\n")


def good(*guests: dict[str, t.Any], **others: t.Any) -> dict[str, t.Any]:
    return {"version": 1, "ok": True, "guests": list(guests), "removed": [], "left": [], **others}


def act(
    module: types.ModuleType, run_dir: pathlib.Path, node: Node | None = None, *, host: str = "n1",
    hosts: t.Sequence[str] = (), check: bool = False, **args: t.Any,
) -> dict[str, t.Any]:  # fmt: skip
    """Run an action as Ansible does, and return its result; all nodes are this one."""
    if node is not None and node.place is None:
        node.put(pathlib.Path(tempfile.mkdtemp(dir=run_dir.parents[1])))
    if node is not None and node.place is not None and module.__name__.endswith("job_guests"):
        args.setdefault("prefix", str(node.place.parent))
    task = mock.MagicMock(
        args={"job_id": JOB, "start": START, "run_dir": str(run_dir), **args}, check_mode=check, diff=True, async_val=0
    )
    action = module.ActionModule(
        task=task, connection=mock.MagicMock(), play_context=mock.MagicMock(), loader=mock.MagicMock(),
        templar=mock.MagicMock(), shared_loader_obj=None,
    )  # fmt: skip
    # the loader's own mark: ansible-core 2.18 gives it no default
    action._load_name = module.__name__.rpartition(".")[2]
    action._early_needs_tmp_path = lambda: False
    names = list(hosts) or [host]
    known = {
        "inventory_hostname": names[0], "ansible_play_hosts": names,
        "hostvars": {name: {"ansible_connection": "local"} for name in names},
    }  # fmt: skip
    result: dict[str, t.Any] = action.run(task_vars=known)
    assert not any(key in json.dumps(result) for key in ("PRIVATE KEY", KEYS[0].private[60:100], "ssh-ed25519"))
    return result


def error(run_dir: pathlib.Path) -> dict[str, t.Any]:
    return files.read_json(run_dir / "error.json")

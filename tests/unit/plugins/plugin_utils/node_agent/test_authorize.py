# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may send a guest here, and what its former node may pass on afterwards."""

from __future__ import annotations

import os
import pathlib
import pwd
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import mother_superior
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import NodePart, Owner, Suspension
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import authorize, move_requests

JOB = "7.head"
FROM_HERE = {"SSH_CONNECTION": "127.0.0.1 40000 127.0.0.1 22"}


class Job(t.NamedTuple):
    job_id: str = JOB
    state: str = "R"
    start_count: int = 1
    nodes: tuple[str, ...] = ("head0", "localhost")
    euser: str = "nobody"
    owner_user: str = "nobody"


def batch_of(job: Job) -> t.Callable[[Policy], t.Any]:
    return lambda _policy, **_more: types.SimpleNamespace(job=lambda _job_id: job)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> NodeSettings:
    return NodeSettings(node_name="cn3", node_number=3, run_dir=tmp_path / "run", state_dir=tmp_path / "state")


def part(node: str = "cn3", start: int = 1) -> NodePart:
    entry = pwd.getpwnam("nobody")
    owner = Owner("nobody", entry.pw_uid, entry.pw_gid, "nogroup", "/nonexistent", "/bin/false")
    return NodePart(1, "present", JOB, start, node, 30.0, owner, ())


@pytest.mark.parametrize(
    ("job", "asked", "source", "why"),
    [
        (Job(), part(), "localhost", ""),
        (Job(), part("cn4"), "localhost", "this is cn3"),
        (Job(nodes=("cn1",)), part(), "localhost", "it runs on cn1"),
        (Job(state="S"), part(), "localhost", "its state is S"),
        (Job(start_count=2), part(), "localhost", "the server is at 2"),
        (Job(euser="root"), part(), "localhost", "it is root's"),
        (Job(euser=""), part(), "localhost", "it is nobody's, not"),
        (Job(owner_user="root"), part(), "localhost", "root submitted it, not nobody"),
        (Job(nodes=("192.0.2.7",)), part(), "192.0.2.7", "that is not the node of its guest"),
    ],
)
def test_guest_comes_from_a_node_of_its_job_alone(
    node: NodeSettings, monkeypatch: pytest.MonkeyPatch, job: Job, asked: NodePart, source: str, why: str
) -> None:
    monkeypatch.setattr(authorize, "open_batch", batch_of(job))
    if not why:
        assert authorize.check_arrival(asked, source, Policy(), node, FROM_HERE) == job
        return
    with pytest.raises(VTorqueError, match=why):
        authorize.check_arrival(asked, source, Policy(), node, FROM_HERE)


def test_bytes_of_a_guest_come_from_the_node_whose_guest_is_awaited(node: NodeSettings) -> None:
    with pytest.raises(VTorqueError, match="awaits no guest of it"):
        authorize.check_source(JOB, 1, "cn3", node, FROM_HERE)
    assert not authorize.is_awaited(JOB, 1, node)
    mother_superior.save_superior("localhost", node.record_dir(JOB, 1), reader_uid=os.geteuid())
    assert authorize.is_awaited(JOB, 1, node)
    authorize.check_source(JOB, 1, "cn3", node, FROM_HERE)
    with pytest.raises(VTorqueError, match="that is not the node of its guest"):
        authorize.check_source(JOB, 1, "cn3", node, {"SSH_CONNECTION": "192.0.2.9 1 127.0.0.1 22"})
    with pytest.raises(VTorqueError, match="awaits no guest"):
        authorize.check_source(JOB, 2, "cn3", node, FROM_HERE)


def test_former_node_of_a_guest_passes_on_a_suspension_that_the_server_confirms(
    node: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorize, "open_batch", batch_of(Job(state="S")))
    message = Suspension(1, "suspend", JOB, 1, "cn3")
    authorize.check_suspension(message, Policy(), node, FROM_HERE, "localhost")
    for source in ("", "192.0.2.7"):
        with pytest.raises(VTorqueError, match=r"asked for from|its address|the address"):
            authorize.check_suspension(message, Policy(), node, FROM_HERE, source)
    monkeypatch.setattr(authorize, "open_batch", batch_of(Job()))
    with pytest.raises(VTorqueError, match="the server says state R"):
        authorize.check_suspension(message, Policy(), node, FROM_HERE, "localhost")


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b'{"name": "seed.iso", "size": 4}\nseed{"name": "used_before.json", "size": 2}\n{}', ""),
        (b'{"name": "disk.qcow2", "size": 1}\nx', "is none of them"),
        (b'{"name": "../seed.iso", "size": 1}\nx', "is none of them"),
        (b'{"name": "seed.iso", "size": 9}\nx', "did not come whole"),
        (b'{"name": "seed.iso", "size": -1}\nx', "is none of them"),
        (b"nothing\n", "not of their form"),
    ],
)
def test_files_of_a_guest_are_taken_by_their_names_alone(tmp_path: pathlib.Path, stream: bytes, why: str) -> None:
    source, sink = os.pipe()
    os.write(sink, stream)
    os.close(sink)
    stdin = os.dup(0)
    os.dup2(source, 0)
    os.close(source)
    try:
        if why:
            with pytest.raises(VTorqueError, match=why):
                move_requests._take_files(tmp_path)
            return
        move_requests._take_files(tmp_path)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "seed.iso": b"seed",
        "used_before.json": b"{}",
    }

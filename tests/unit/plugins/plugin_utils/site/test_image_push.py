# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image brought to nodes: what a node answers, and what comes of many answers."""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue, copy_worker
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import VERSION, ImageOrder
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import configuration_of
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output.json_output import add_json
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.images import image_push as program
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import handlers, serve, site_requests
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.site import image_push

from ...module_utils.node.pool import image_pool

ORDER = ImageOrder(VERSION, "image", "tiny@1", "local", False, 0.0)


class Node:
    """A node that is asked by a line of JSON."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.settings: NodeSettings = image_pool.settings_for(directory)
        image_pool.add(self.settings.pool)
        patch.setattr(site_requests, "read_settings", lambda _load: self.settings)
        patch.setattr(copy_queue, "ensure_worker", lambda _settings: None)

    def ask(self, **changes: t.Any) -> dict[str, t.Any]:
        line = json.dumps({**to_dict(ORDER), **changes}).encode() + b"\n"
        return serve.respond(io.BytesIO(line), handlers.Call({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, Policy))

    def work(self) -> None:
        copy_worker.work_off(self.settings, lambda *_words: None)


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_node_says_how_far_it_is_until_the_copy_is_there(node: Node) -> None:
    first = node.ask()
    assert (first["ok"], first["image"]["here"]) == (True, False)
    assert "nobody fetches it" in first["image"]["words"]
    node.work()
    assert node.ask(again=True)["image"] == {"here": True, "words": ""}
    assert copy_queue.wanted(node.settings) == ()


def test_failed_push_is_reported_once_and_begins_again_on_request(node: Node) -> None:
    image_pool.spoil(node.settings.pool / "tiny@1/disk.img")
    node.ask()
    node.work()
    again = node.ask(again=True)
    assert (again["ok"], again["error"]["fault"]) == (False, "image")
    assert copy_queue.wanted(node.settings) == ()
    assert node.ask()["image"]["here"] is False
    assert len(copy_queue.wanted(node.settings)) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": "tini@1"}, "no such image"),
        ({"image": "../../etc"}, "not of the form"),
        ({"fs_type": "sharedfs"}, "not of the form"),
        ({"timeout_s": 1e9}, "timeout_s"),
        ({"path": "/etc/shadow"}, "unknown key 'path'"),
        ({"fs_type": "ramdisk"}, "nobody fetches"),
    ],
)
def test_order_for_another_image_is_refused(node: Node, changes: dict[str, str], message: str) -> None:
    assert message in json.dumps(node.ask(**changes))


# -- the front end


def ssh_that(directory: pathlib.Path, *answers: str) -> str:
    """An ssh to several nodes, by whose names it answers: line after line at each call."""
    program_file = directory / "ssh"
    for number, answer in enumerate(answers):
        (directory / f"answer{number}").write_text(answer)
    program_file.write_text(
        f"""#!/bin/sh
cat >>{directory}/asked
for node; do case $node in cn*) break ;; esac; done
case $node in cn3) echo 'no route to host' >&2; exit 255 ;; esac
echo x >>{directory}/$node
n=$(wc -l <{directory}/$node)
[ "$node" = cn2 ] && n=2
[ -e {directory}/answer$((n - 1)) ] && cat {directory}/answer$((n - 1)) || exit 1
"""
    )
    program_file.chmod(0o755)
    return str(program_file)


COMING = json.dumps({"version": 1, "ok": True, "image": {"here": False, "words": "41 %\u001b[2J of it"}})
DONE = json.dumps({"version": 1, "ok": True, "image": {"here": True, "words": ""}})
BAD = json.dumps({"version": 1, "ok": False, "error": {"fault": "site", "what": "no room", "why": "", "hint": ""}})


def test_nodes_are_asked_until_they_have_it_or_cannot(tmp_path: pathlib.Path) -> None:
    report: list[tuple[str, str]] = []
    ssh = ssh_that(tmp_path, COMING, BAD)
    brought = image_push.push(
        "tiny@1", ("cn1", "cn2", "cn3", "-oProxyCommand=x"), fs_type="local", ssh_timeout_s=5, ssh=ssh,
        report=lambda node, arguments: report.append((node, arguments)),
    )  # fmt: skip
    assert [(one.node, one.state) for one in brought] == [
        ("cn1", "failed"), ("cn2", "failed"), ("cn3", "silent"), ("-oProxyCommand=x", "silent"),
    ]  # fmt: skip
    assert brought[0].reason == "no room"
    assert "no route to host" in brought[2].reason
    assert ("cn1", "41 %?[2J of it") in report
    asked = [json.loads(line)["again"] for line in (tmp_path / "asked").read_text().splitlines()]
    assert sorted(asked) == [False, False, False, True]


def test_node_of_another_version_is_told_so(tmp_path: pathlib.Path) -> None:
    (brought,) = image_push.push("tiny@1", ("cn1",), fs_type="local", ssh_timeout_s=5, ssh=ssh_that(tmp_path, "{}"))
    assert (brought.state, brought.reason) == ("failed", "an error without words") or "version" in brought.reason


class Command:
    """`vmgr image push` on a front end."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.policy = Policy(vm_img_dir=str(directory / "pool"))
        self.pushed: list[tuple[t.Any, ...]] = []
        self.states: dict[str, image_push.PushResult] = {}
        self._capsys = capsys
        image_pool.settings_for(directory)
        for number in (1, 2):
            image_pool.add(directory / "pool", f"tiny@{number}")
        patch.setattr(program, "push", self.push)
        patch.setattr(program, "list_nodes", lambda _policy: ("cn1", "cn2", "cn3"))

    def push(self, image: str, nodes: tuple[str, ...], **how: t.Any) -> tuple[image_push.PushResult, ...]:
        self.pushed.append((image, nodes, how["fs_type"]))
        return tuple(self.states.get(node, image_push.PushResult(node, "here")) for node in nodes)

    def call(self, *arguments: str) -> tuple[int, str]:
        parser = argparse.ArgumentParser()
        add_json(parser)
        program.add_arguments(parser)
        return program.run(parser.parse_args(arguments), configuration_of(self.policy)), self._capsys.readouterr().out


@pytest.fixture
def command(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:  # fmt: skip
    return Command(tmp_path, monkeypatch, capsys)


def test_all_nodes_get_the_same_revision(command: Command) -> None:
    assert command.call("tiny") == (0, "cn[1-3]: tiny@2 is here\n")
    command.call("tiny@1", "--fs-type", "ramdisk", "--node", "cn[1-2]")
    assert command.pushed == [("tiny@2", ("cn1", "cn2", "cn3"), "local"), ("tiny@1", ("cn1", "cn2"), "ramdisk")]


def test_exit_status_tells_whether_all_have_it(command: Command) -> None:
    command.states["cn2"] = image_push.PushResult("cn2", "failed", "no room")
    assert command.call("tiny") == (1, "cn[1,3]: tiny@2 is here\ncn2: failed: no room\n")
    command.states["cn3"] = image_push.PushResult("cn3", "silent", "no answer")
    status, out = command.call("tiny", "--json")
    assert status == 4
    assert [(row["node"], row["state"]) for row in json.loads(out)] == [
        ("cn1", "here"), ("cn2", "failed"), ("cn3", "silent"),
    ]  # fmt: skip


def test_image_that_cannot_be_pushed_is_refused_before_any_node_is_asked(
    command: Command, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "pool/old.img").write_bytes(b"x")
    (tmp_path / "pool/old.img").chmod(0o444)
    for name, arguments in (("tini", "did you mean tiny"), ("old", "has no record")):
        with pytest.raises(UserFault, match=arguments):
            command.call(name)
    assert command.pushed == []

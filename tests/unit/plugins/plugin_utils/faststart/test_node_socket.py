# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's program that the hook asks before Ansible has loaded answers like one that Ansible starts."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
import time
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import NodePart
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import planning
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import node_socket, spawn
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart.head_start import HeadStart
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions.node_connection import NodeCall, Reply

ECHO = "import os, sys; os.write(2, b'complaint'); print(sys.stdin.readline().strip()[::-1])"


PART = NodePart.removal("4711.head", 2, "n1", 60.0)


class Loading:
    """An Ansible that loads beside the hook, and holds the way to the node's answer."""

    loading = True

    def ready_to_begin(self) -> bool:
        return True

    def begin(self, *_given: object) -> None:
        """It has begun."""


@pytest.fixture
def begun(
    tmp_path_factory: pytest.TempPathFactory,
) -> t.Iterator[t.Callable[[str], tuple[HeadStart, node_socket.EarlyNode]]]:
    """Begin a program of this text; it is ended afterwards."""
    starts = []
    tmp_path = tmp_path_factory.mktemp("site")

    def begin(text: str) -> tuple[HeadStart, node_socket.EarlyNode]:
        program = spawn.begin([sys.executable, "-c", text], {})
        starts.append(HeadStart(program, t.cast(t.Any, Loading()), place=tmp_path / "mark", config=tmp_path / "config"))
        node = starts[-1].begin()
        assert node is not None
        return starts[-1], node

    yield begin
    for start in starts:
        start.__exit__()


def process(start: HeadStart) -> t.Any:
    return start._program


def answer(node: node_socket.EarlyNode) -> Reply | None:
    """What a conversation that goes on hears; None: another program was asked, which says so."""
    command = [sys.executable, "-c", "print('anew', input())"]
    with NodeCall("n1", command, node) as call:
        call.send_request(b"abc")
        while (reply := call.read_reply()) is None:
            pass
    return None if reply.output == b"anew abc" else reply


def test_answer_is_that_of_a_command(begun: t.Any) -> None:
    _start, node = begun(ECHO)
    node.send(b"abc")
    assert answer(node) == Reply(0, b"cba", b"complaint")


@pytest.mark.parametrize("text", ["import sys; input(); sys.exit('it broke')", "import os; os.abort()"])
def test_program_that_ends_without_an_answer_has_none(begun: t.Any, text: str) -> None:
    """Then the caller asks another way."""
    start, node = begun(text)
    if "abort" in text:
        process(start).wait(60)
        with pytest.raises(OSError, match="pipe"):
            node.send(b"abc")
    else:
        node.send(b"abc")
    assert answer(node) is None


def test_fork_finds_the_answer(begun: t.Any) -> None:
    """Ansible's workers are forks of the process that inherits the descriptors."""
    _start, node = begun(ECHO)
    node.send(b"abc")
    pid = os.fork()
    if pid == 0:
        found = node_socket.find({node_socket.VARIABLE: node.variable})
        os._exit(0 if found and answer(found) == Reply(0, b"cba", b"complaint") else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_early_node_without_a_caller_ends(begun: t.Any) -> None:
    start, _node = begun("import sys; sys.exit(3 if sys.stdin.read() == '' else 4)")
    start.hand_over()
    assert process(start).wait(60) == 3


@pytest.mark.parametrize("text", ["", "7", "a.b", "7.x", ".7"])
def test_without_its_descriptors_there_is_none(text: str) -> None:
    assert node_socket.find({node_socket.VARIABLE: text}) is None


def test_programs_do_not_inherit_the_way_to_it(begun: t.Any) -> None:
    _start, node = begun(ECHO)
    for number in (node.socket, node.complaint):
        os.set_inheritable(number, True)
    node_socket.keep_from_programs({node_socket.VARIABLE: node.variable})
    assert not os.get_inheritable(node.socket)
    assert not os.get_inheritable(node.complaint)


class Plan(types.SimpleNamespace):
    """As much of a plan as is asked for."""

    def to_json(self) -> str:
        return json.dumps({"planned": True})


@pytest.mark.parametrize("fault", [None, UserFault("img=x", "there is none")], ids=["planned", "refused"])
def test_hook_plans_and_asks_or_leaves_it_to_the_playbook(
    begun: t.Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    """What it asked is written down, so that Ansible takes no answer to something else."""

    def plan_start(*_args: object) -> Plan:
        if fault is not None:
            raise fault
        return Plan(mother_superior="n1", parts={"n1": PART})

    monkeypatch.setattr(planning, "plan_start", plan_start)
    start, node = begun(ECHO)
    keeper = node_socket.EarlyNode(os.dup(node.socket), os.dup(node.complaint))
    until = time.monotonic() + 1e5
    start.go(t.cast(t.Any, None), t.cast(t.Any, None), directory=tmp_path, nodefile=tmp_path, until=until)
    start.hand_over()
    heard = answer(keeper) if fault is None else None
    keeper.close()
    if fault is not None:
        assert list(tmp_path.iterdir()) == []
        return
    reported = files.read_json(tmp_path / layout.ASKED)
    assert reported.keys() == {"digest", "asked_s"}
    assert reported["digest"] == node_socket.digest(PART)
    assert 0 < time.monotonic() - reported["asked_s"] < 60
    assert files.read_json(tmp_path / "plan.json") == {"planned": True}
    assert heard is not None
    assert json.loads(heard.output[::-1])["job_id"] == PART.job_id


def test_part_that_was_not_sent_is_not_marked_as_sent(
    begun: t.Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever believed it would wait for an answer until their time is up."""
    monkeypatch.setattr(planning, "plan_start", lambda *_args: Plan(mother_superior="n1", parts={"n1": PART}))
    start, _node = begun("pass")
    process(start).wait(60)
    until = time.monotonic() + 1e5
    start.go(t.cast(t.Any, None), t.cast(t.Any, None), directory=tmp_path, nodefile=tmp_path, until=until)
    start.hand_over()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_time_is_no_part_of_what_is_asked() -> None:
    assert node_socket.digest(dataclasses.replace(PART, timeout_s=7.0)) == node_socket.digest(PART)
    assert node_socket.digest(dataclasses.replace(PART, start=PART.start + 1)) != node_socket.digest(PART)

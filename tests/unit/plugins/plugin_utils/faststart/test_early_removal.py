# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An epilogue asks its own node before Ansible has loaded, where the site wants it, and never what nobody answers."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import NodePart
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import mark, node_socket
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart.early_removal import EarlyRemoval
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions.node_connection import NodeCall, Reply

ECHO = "import sys; print(sys.argv[1], sys.stdin.readline().strip())"
PART = NodePart.removal("4711.head", 2, "n1", 0.0)
LATE = 1e5


class Runner:
    """An Ansible that loads beside the hook."""

    def __init__(self, *, ready: bool = True) -> None:
        self.ready = ready
        self.loading = False
        self.begun: list[t.Any] = []

    def ready_to_begin(self) -> bool:
        return self.ready

    def begin(self, *given: object, idle: bool) -> None:
        self.loading = True
        self.begun.append((*given, idle))

    def end(self) -> None:
        self.loading = False


class Hook(t.NamedTuple):
    """An epilogue, and where its mark is."""

    removal: EarlyRemoval
    runner: Runner
    mark: pathlib.Path
    config: pathlib.Path

    def allow(self) -> None:
        """An earlier hook has read this configuration, and it wants this."""
        mark.set_to(mark.name_of(self.config), self.mark)


@pytest.fixture
def epilogue(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[t.Callable[..., Hook]]:
    """An epilogue whose node's program has this text; it is ended afterwards."""
    made: list[Hook] = []

    def make(text: str = ECHO, *, ready: bool = True, allowed: bool = True) -> Hook:
        place = tmp_path_factory.mktemp("node")
        runner = Runner(ready=ready)
        config = place / "vtorque.yml"
        config.touch()
        command = (sys.executable, "-c", text)
        removal = EarlyRemoval(command, t.cast(t.Any, runner), place=place / mark.NAME, config=config)
        made.append(Hook(removal, runner, place / mark.NAME, config))
        if allowed:
            made[-1].allow()
        return made[-1]

    yield make
    for one in made:
        one.removal.__exit__()


def until() -> float:
    return time.monotonic() + LATE


def answer(node: node_socket.EarlyNode) -> Reply:
    """What the playbook hears, which holds the way after the hook."""
    with NodeCall("n1", [sys.executable, "-c", "print('anew', input())"], node) as call:
        call.send_request(b"abc")
        while (reply := call.read_reply()) is None:
            pass
    return reply


def test_node_is_asked_and_the_playbook_finds_its_answer(epilogue: t.Any, tmp_path: pathlib.Path) -> None:
    hook = epilogue()
    node = hook.removal.begin()
    assert node is not None
    ((variables, inherited, idle),) = hook.runner.begun
    assert (variables, inherited, idle) == ({node_socket.VARIABLE: node.variable}, (node.socket, node.complaint), False)
    hook.removal.go(PART, directory=tmp_path, until=until())
    assert files.read_json(tmp_path / layout.ASKED)["digest"] == node_socket.digest(PART)
    argument, request = answer(node).output.split(maxsplit=1)
    assert argument == mark.EARLY_REMOVAL.encode()
    asked = json.loads(request)
    assert (asked["do"], asked["job_id"], asked["start"]) == ("absent", "4711.head", 2)
    assert LATE - 60 < asked["timeout_s"] < LATE


@pytest.mark.parametrize(("ready", "allowed"), [(False, True), (True, False)])
def test_nothing_begins_where_the_site_or_the_node_does_not_let_it(
    epilogue: t.Any, tmp_path: pathlib.Path, ready: bool, allowed: bool
) -> None:
    """The first job after a boot has no settings of Ansible's, and no mark."""
    hook = epilogue(ready=ready, allowed=allowed)
    assert hook.removal.begin() is None
    assert hook.runner.begun == []
    hook.removal.go(PART, directory=tmp_path, until=until())
    hook.removal.end()
    assert list(tmp_path.iterdir()) == []


def test_configuration_that_has_changed_begins_nothing(epilogue: t.Any) -> None:
    hook = epilogue()
    hook.config.write_text("fast_start: false\n")
    assert hook.removal.begin() is None


@pytest.mark.parametrize("why", ["Ansible has ended", "the program has ended", "no time is left"])
def test_what_was_not_asked_is_not_marked_as_asked(epilogue: t.Any, tmp_path: pathlib.Path, why: str) -> None:
    """The playbook would wait for an answer until its time is up."""
    hook = epilogue("pass" if "program" in why else ECHO)
    assert hook.removal.begin() is not None
    if "program" in why:
        hook.removal._program.wait(60)
    hook.runner.loading = "Ansible" not in why
    hook.removal.go(PART, directory=tmp_path, until=time.monotonic() + 1 if "time" in why else until())
    assert list(tmp_path.iterdir()) == []


def test_full_disk_leaves_the_question_to_the_playbook(
    epilogue: t.Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise VTorqueError("asked.json", "no space left on device")

    hook = epilogue()
    assert hook.removal.begin() is not None
    monkeypatch.setattr(node_socket.files, "write", full)
    with pytest.raises(VTorqueError, match="no space"):
        hook.removal.go(PART, directory=tmp_path, until=until())
    assert list(tmp_path.iterdir()) == []


def test_program_that_is_not_asked_ends(epilogue: t.Any) -> None:
    """As its standard input does."""
    hook = epilogue("import sys; sys.exit(3 if sys.stdin.read() == '' else 4)")
    assert hook.removal.begin() is not None
    hook.removal.end()
    assert not hook.runner.loading
    assert hook.removal._program.wait(60) == 3


def test_hook_ends_ansible_and_lets_go_of_its_descriptors(epilogue: t.Any) -> None:
    hook = epilogue("pass")
    before = len(os.listdir("/proc/self/fd"))
    with hook.removal as removal:
        assert removal.begin() is not None
    assert not hook.runner.loading
    assert len(os.listdir("/proc/self/fd")) == before

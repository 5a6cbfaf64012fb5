# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that was begun before it is asked answers like one that is started for it, or takes no request."""

from __future__ import annotations

import os
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils import early_node

ECHO = "import sys; sys.stderr.write('complaint'); sys.stdout.write(sys.stdin.read()[::-1])"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[str], t.Any]]:
    """Begin a program of this text; its descriptors are closed afterwards."""
    monkeypatch.setenv(early_node.VARIABLE, "")
    processes = []

    def begin(text: str) -> t.Any:
        processes.append(early_node.begin([sys.executable, "-c", text]))
        return processes[-1]

    yield begin
    if node := early_node.find(os.environ):
        os.close(node.socket)
        os.close(node.complaint)
    for process in processes:
        process.wait(timeout=60)


def found() -> early_node.EarlyNode:
    node = early_node.find(os.environ)
    assert node is not None
    return node


def test_the_answer_is_that_of_a_command(begun: t.Any) -> None:
    begun(ECHO)
    assert found().ask(b"abc") == (0, b"cba", b"complaint")


def test_a_program_without_an_answer_has_failed(begun: t.Any) -> None:
    begun("import sys; sys.stdin.read(); sys.exit('it broke')")
    assert found().ask(b"abc") == (1, b"", b"it broke\n")


@pytest.mark.parametrize("end", [ECHO, "pass"])
def test_what_has_ended_or_was_asked_already_takes_no_request(begun: t.Any, end: str) -> None:
    """Then the caller asks another way."""
    process = begun(end)
    if end is ECHO:
        found().ask(b"abc")
    process.wait(timeout=60)
    assert found().ask(b"x" * (1 << 20)) is None


def test_a_fork_finds_it_too(begun: t.Any) -> None:
    """Ansible's workers are forks of the process that began it."""
    begun(ECHO)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if found().ask(b"abc") == (0, b"cba", b"complaint") else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_it_ends_when_nobody_is_left_to_ask(begun: t.Any) -> None:
    process = begun("import sys; sys.exit(3 if sys.stdin.read() == '' else 4)")
    os.close(found().socket)
    assert process.wait(timeout=60) == 3
    os.environ[early_node.VARIABLE] = ""


@pytest.mark.parametrize("text", ["", "7", "a.b", "7.x", ".7"])
def test_without_its_descriptors_there_is_none(text: str) -> None:
    assert early_node.find({early_node.VARIABLE: text}) is None

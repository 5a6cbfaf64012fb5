# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversations with programs, several at a time; each of these programs is a few lines of Python."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_command
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions import node_connection
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions.node_connection import (
    NodeCall,
    Reply,
    read_replies,
)

ECHO = "import sys\nfor line in sys.stdin: print(line.strip()[::-1], flush=True)"
SILENT = "import sys; sys.stdin.read()"
PATIENCE_S = 60.0


@pytest.fixture
def call() -> t.Iterator[t.Callable[[str, str], NodeCall]]:
    """Begin a conversation; it is over when the test is."""
    with contextlib.ExitStack() as stack:
        yield lambda name, text: stack.enter_context(NodeCall(name, [sys.executable, "-c", text]))


def replies(calls: t.Sequence[NodeCall], timeout_s: float = PATIENCE_S, **more: t.Any) -> tuple[t.Any, t.Any]:
    heard: dict[str, Reply] = {}

    def read(node: str, reply: Reply) -> None:
        if reply.status or not reply.output:
            raise VTorqueError(node, f"status {reply.status}: {reply.complaint.decode()}")
        heard[node] = reply

    return heard, read_replies(calls, read, Deadline.after(timeout_s), **more)


def test_each_is_asked_and_heard_again_and_again(call: t.Any) -> None:
    calls = [call(f"n{number}", ECHO) for number in range(5)]
    for one in calls:
        one.send_request(one.node.encode())
    heard, errors = replies(calls)
    assert errors == {}
    assert {node: reply.output for node, reply in heard.items()} == {f"n{n}": b"%dn" % n for n in range(5)}
    for one in calls:
        one.send_line(b"abc")
    assert {reply.output for reply in replies(calls)[0].values()} == {b"cba"}


def test_program_that_ends_tells_its_status_and_its_last_words(call: t.Any) -> None:
    one = call("n1", "import sys; sys.stderr.write('trouble'); sys.exit(7)")
    one.send_request(b"abc")
    assert str(replies([one])[1]["n1"]) == "n1: status 7: trouble"


def test_a_line_without_an_end_is_read_to_its_limit(call: t.Any) -> None:
    one = call("n1", "print('x' * (1 << 22), end='', flush=True); input()")
    one.send_request(b"abc")
    heard, errors = replies([one])
    assert errors == {}
    assert len(heard["n1"].output) == node_connection.LIMIT


def test_answer_in_a_million_pieces_is_read_as_any(call: t.Any) -> None:
    """Each piece is looked at once: with all that came before, it was a minute of the mother superior's processor."""
    one = call("n1", "import os; [os.write(1, b'x') for _ in range(1 << 18)]; os.write(1, b'\\n'); input()")
    one.send_request(b"abc")
    heard, errors = replies([one])
    assert errors == {}
    assert heard["n1"].output == b"x" * (1 << 18)


def test_node_reply_of_two_lines_is_two_answers(call: t.Any) -> None:
    one = call("n1", "print('first\\nsecond', flush=True); input(); input(); print('third', flush=True); input()")
    one.send_request(b"abc")
    heard = [replies([one])[0]["n1"].output]
    one.send_line(b"def")
    heard.append(replies([one])[0]["n1"].output)
    assert heard == [b"first", b"second"]


FLOOD = "import os, sys\nsys.stdin.readline()\nfor _ in range(50): os.write(2, bytes(1 << 20))"


@pytest.mark.parametrize("rest", ["", "\nprint('answer', flush=True); input()"])
def test_another_node_that_complains_without_end_fills_no_memory(rest: str) -> None:
    with NodeCall("n1", [sys.executable, "-c", FLOOD + rest], far=True) as one:
        one.send_request(b"abc")
        heard, errors = replies([one])
        assert os.fstat(one._complaint).st_size <= 1 << 20
    assert heard == {}
    assert "its standard error has no end" in str(errors["n1"])


def test_our_own_program_writes_files_of_any_size() -> None:
    with NodeCall("n1", [sys.executable, "-c", FLOOD + "\nprint('answer', flush=True)"]) as one:
        one.send_request(b"abc")
        assert replies([one])[0]["n1"].output == b"answer"


def test_late_node_is_named_when_none_failed(call: t.Any) -> None:
    calls = [call("n1", ECHO), call("n2", SILENT)]
    for one in calls:
        one.send_request(b"abc")
    assert str(replies(calls, 3.0)[1]["n2"]) == "vtorque-node on n2: gave no answer in time"


def test_failure_of_one_node_leaves_the_others_time_and_blames_none(call: t.Any) -> None:
    calls = [call("n1", "import sys; sys.exit(3)"), call("n2", SILENT)]
    for one in calls:
        one.send_request(b"abc")
    assert list(replies(calls, patience_s=0.1)[1]) == ["n1"]


def test_hanging_up_ends_a_program_that_is_at_work(call: t.Any) -> None:
    one = call("n1", "import time\nwhile True: time.sleep(60)")
    one.send_request(b"abc")
    one.hang_up()
    assert one._process.wait(PATIENCE_S) == -9
    one.hang_up()


def test_program_that_has_answered_ends_by_itself(call: t.Any) -> None:
    one = call("n1", f"{ECHO}\nsys.exit(5)")
    one.send_request(b"abc")
    assert replies([one])[1] == {}
    one.hang_up()
    assert one._process.wait(PATIENCE_S) == 5


def test_program_that_is_not_there_is_said(call: t.Any) -> None:
    with pytest.raises(VTorqueError, match="vtorque-node on n1 was not run"):
        NodeCall("n1", ["/nonexistent"]).__enter__()


def test_another_node_is_reached_by_an_ssh_that_asks_nothing_and_dies_with_us() -> None:
    arguments = node_command.ssh_command(pathlib.Path("/opt/a b/bin/vtorque-node"), "n2", 5)
    assert arguments[:4] == ["/usr/bin/setpriv", "--pdeathsig", "KILL", "/usr/bin/ssh"]
    assert arguments[-3:] == ["--", "n2", "'/opt/a b/bin/vtorque-node'"]
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=5"} <= set(arguments)

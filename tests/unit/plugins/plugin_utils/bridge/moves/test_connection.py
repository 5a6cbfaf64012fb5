# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of another node's program during a move, with programs of this host in their place."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import FILES, MEMORY, Stream
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.moves import connection

ASKED = Stream(2, "stream", "7.head", 1, "cn3", "vcn1-1", FILES, 300.0)
REFUSAL = json.dumps({"version": 1, "ok": False, "error": NodeFault("guest vcn1-1", "no room here").to_dict()})
TAKES = """read -r asked; echo '{"ok": true}'; read -r about; head -c 5 >got; echo '{"ok": true, "slots": [4]}'"""
"""The node has a place: it says so, takes a file of five bytes, and says which slot it has."""
WAITS = "read -r asked; sleep 600"


@pytest.fixture
def call(monkeypatch, tmp_path):
    """A function that opens a call which runs a text of sh; every call ends with the test."""
    opened = []
    monkeypatch.chdir(tmp_path)

    def open_one(script):
        monkeypatch.setattr(connection, "ssh_command", lambda *_arguments: ["sh", "-c", f"cd {tmp_path}; {script}"])
        opened.append(connection.open_call("cn3", ASKED))
        return opened[-1]

    yield open_one
    for one in opened:
        connection.end_call(one)


def test_files_arrive_where_a_node_has_a_place(call, monkeypatch, tmp_path):
    arrival = call(WAITS)
    monkeypatch.setattr(connection, "ssh_command", lambda *_arguments: ["sh", "-c", f"cd {tmp_path}; {TAKES}"])
    answer = connection.send_files("cn3", ASKED, {"seed.iso": b"bytes"}, arrival)
    assert (answer["slots"], (tmp_path / "got").read_bytes()) == ([4], b"bytes")


def test_refusal_of_the_guest_ends_the_wait_for_its_place(call, monkeypatch):
    arrival = call(f"read -r asked; echo '{REFUSAL}'")
    monkeypatch.setattr(connection, "ssh_command", lambda *_arguments: ["sh", "-c", WAITS])
    with pytest.raises(NodeFault, match="no room here"):
        connection.send_files("cn3", ASKED, {"seed.iso": b"bytes"}, arrival)


def test_node_that_goes_ends_the_wait_for_its_place(call, monkeypatch):
    arrival = call("exit 255")
    monkeypatch.setattr(connection, "ssh_command", lambda *_arguments: ["sh", "-c", WAITS])
    with pytest.raises(connection.NotAnswered, match="ended without an answer"):
        connection.send_files("cn3", ASKED, {"seed.iso": b"bytes"}, arrival)


ECHOES = """read -r asked; echo '{"ok": true}'; read -r used || exit; echo '{"ok": true}'; echo x >>used; cat"""
"""The node is ready; once somebody is connected it connects, and gives back what comes."""
BYTES = Stream(2, "stream", "7.head", 1, "cn3", "vcn1-1", MEMORY, 300.0)


@pytest.fixture
def channel(monkeypatch, tmp_path):
    """A function that opens a channel whose node runs a text of sh, and connects to it so often: the near ends."""
    with contextlib.ExitStack() as opened:

        def open_one(script, times):
            monkeypatch.setattr(connection, "ssh_command", lambda *_arguments: ["sh", "-c", f"cd {tmp_path}; {script}"])
            found = opened.enter_context(connection.Channel("cn3", BYTES))
            ends = []
            for _number in range(times):
                near, far = map(opened.enter_context, socket.socketpair())
                near.settimeout(60)
                threading.Thread(target=found.serve, args=(far,), daemon=True).start()
                ends.append(near)
            return ends

        yield open_one


def test_bytes_are_carried_both_ways_on_each_connection(channel):
    for near in channel(ECHOES, 2):
        near.sendall(b"memory")
        assert near.recv(6) == b"memory"
        near.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""


def test_channel_that_nobody_used_connects_nowhere_and_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(connection, "ssh_command", lambda *_arguments: ["sh", "-c", f"cd {tmp_path}; {ECHOES}"])
    with connection.Channel("cn3", BYTES) as unused:
        (call,) = unused._unused
        connection.read_answer(call, "cn3", Deadline.after(60))
    assert call.returncode is not None
    assert not (tmp_path / "used").exists()


def test_socket_that_the_node_cannot_reach_is_the_end_of_the_connection(channel):
    (near,) = channel(f"read -r asked; echo '{{\"ok\": true}}'; read -r used; echo '{REFUSAL}'", 1)
    assert near.recv(1) == b""

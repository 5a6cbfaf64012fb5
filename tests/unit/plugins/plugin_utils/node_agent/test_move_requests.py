# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spare node that has refused a guest keeps no program that waits for it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import FILES, Stream
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import move_requests


def stream(timeout_s: float) -> Stream:
    return Stream(2, "stream", "7.head", 1, "n2", "vn1-1", FILES, timeout_s)


@pytest.mark.parametrize("awaited", [False, True], ids=["not awaited yet", "without a place yet"])
@pytest.mark.parametrize(
    ("reads", "timeout_s", "why"), [(False, 600.0, "waits no longer"), (True, 0.3, "not awaited|has no place")]
)
def test_wait_for_a_guest_ends_with_who_asks(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, awaited: bool, reads: bool, timeout_s: float, why: str
) -> None:
    """Found by a lab whose last look waited five minutes for it."""

    def check_source(*_words: object) -> None:
        if not awaited:
            raise VTorqueError("guest vn1-1", "is not awaited")

    settings = types.SimpleNamespace(run_dir=tmp_path, node_name="n2", start_dir=lambda *_words: tmp_path / "start")
    monkeypatch.setattr(move_requests, "read_settings", lambda _load: settings)
    monkeypatch.setattr(move_requests, "is_awaited", lambda *_words: awaited)
    monkeypatch.setattr(move_requests, "check_source", check_source)
    reading, writing = os.pipe()
    monkeypatch.setattr(move_requests, "ANSWERS", writing)
    if not reads:
        os.close(reading)
    try:
        with pytest.raises(VTorqueError, match=why):
            move_requests.answer_stream(stream(timeout_s), t.cast(t.Any, None), {})
    finally:
        os.close(writing)
        if reads:
            os.close(reading)


ROOT = str(pathlib.Path(move_requests.__file__).parents[6])
SPARE = f"""
import pathlib, sys, types
from {VTorqueError.__module__} import VTorqueError
from {Stream.__module__} import MEMORY, Stream
from {move_requests.__package__} import move_requests as there
place = pathlib.Path(sys.argv[1])
settings = types.SimpleNamespace(run_dir=place, node_name="n2", start_dir=lambda *_words: place)
there.read_settings = lambda _load: settings
there.is_awaited, there.check_source = lambda *_words: True, lambda *_words: None
there.OVER_LOOK_S = there.OVER_S = 0.05
try:
    there.answer_stream(Stream(2, "stream", "7.head", 1, "n2", "vn1-1", MEMORY, 60.0), None, {{}})
except VTorqueError as error:
    sys.exit(str(error))
"""
"""A spare node's program, of whose guest only the directory is there."""


class Spare:
    """That program at work, and the socket of the guest's memory."""

    def __init__(self, place: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self.move = place / "vn1-1" / "move"
        self.move.mkdir(parents=True)
        self.socket = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self.socket.settimeout(60)
        with contextlib.chdir(self.move):  # a socket has 107 bytes for its path
            self.socket.bind("memory.sock")
        self.socket.listen()
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", SPARE, "."],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=place,
                env={**os.environ, "PYTHONPATH": ROOT},
            )
        )  # fmt: skip
        stack.callback(self.process.kill)
        assert b'"ok":true' in self.line().replace(b" ", b"")

    def line(self) -> bytes:
        """Its next answer."""
        return t.cast("t.IO[bytes]", self.process.stdout).readline()

    def send(self, words: bytes) -> None:
        t.cast("t.IO[bytes]", self.process.stdin).write(words)

    def end(self) -> tuple[int, bytes]:
        """No more comes; return its status and what it complained of."""
        _out, complaint = self.process.communicate(timeout=60)
        return self.process.returncode, complaint

    def is_connected(self) -> bool:
        self.socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            self.socket.accept()
            return True
        return False


@pytest.fixture
def spare(tmp_path: pathlib.Path) -> t.Iterator[Spare]:
    with contextlib.ExitStack() as stack:
        yield Spare(tmp_path, stack)


def test_socket_of_a_guest_is_connected_once_it_is_wanted_and_until_its_move_is_over(spare: Spare) -> None:
    assert not spare.is_connected()
    spare.send(b"\n")
    assert b'"ok":true' in spare.line().replace(b" ", b"")
    spare.socket.settimeout(60)
    memory, _address = spare.socket.accept()
    with memory:
        memory.settimeout(60)
        spare.send(b"pages")
        assert memory.recv(5) == b"pages"
        memory.sendall(b"taken")
        assert os.read(t.cast("t.IO[bytes]", spare.process.stdout).fileno(), 5) == b"taken"
        shutil.rmtree(spare.move)
        assert memory.recv(1) == b""


@pytest.mark.parametrize(
    ("sent", "over", "complaint"),
    [(b"", False, b""), (b"pages", False, b"before they were asked for"), (b"\n", True, b"has no place")],
    ids=["unused", "another protocol", "the move is over"],
)
def test_socket_of_a_guest_is_connected_for_nothing_else(
    spare: Spare, sent: bytes, over: bool, complaint: bytes
) -> None:
    waiting = spare.socket.dup()
    if over:
        shutil.rmtree(spare.move)
    spare.send(sent)
    status, words = spare.end()
    assert (status != 0, complaint in words) == (bool(complaint), True)
    with waiting:
        assert not spare.is_connected()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes come through whole, both ways, and so does the end of each way."""

from __future__ import annotations

import os
import pathlib
import socket
import threading

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import relay


def test_carry_hands_on_all_bytes_and_both_ends() -> None:
    near, far = socket.socketpair()
    source, feed = os.pipe()
    drain, sink = os.pipe()
    worker = threading.Thread(target=relay.carry, args=(near, source, sink))
    worker.start()
    os.write(feed, b"there")
    os.close(feed)
    assert far.recv(100) == b"there"
    assert far.recv(100) == b""
    far.sendall(b"back")
    far.close()
    assert os.read(drain, 100) == b"back"
    assert os.read(drain, 100) == b""
    worker.join(10)
    assert not worker.is_alive()
    os.close(source)
    os.close(drain)


def test_listener_lets_root_alone_in_and_nobody_after_its_end(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    listener = relay.Listener(path, os.geteuid(), lambda connection: (connection.sendall(b"hello"), connection.close()))
    assert path.stat().st_mode & 0o777 == 0o600
    with relay.connect(path, 5.0) as connection:
        assert connection.recv(100) == b"hello"
    listener.close()
    with pytest.raises(OSError, match="refused"):
        relay.connect(path, 5.0)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that the other end of a connection has not taken are counted, of the processes that are asked for alone."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network.unsent import unacknowledged_bytes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_bytes_that_nobody_reads_wait_and_those_that_were_taken_do_not(family: int) -> None:
    place = ("localhost" if family == socket.AF_INET else "::1", 0)
    with (
        socket.create_server(place, family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as ours,
        server.accept()[0] as theirs,
    ):
        assert unacknowledged_bytes([os.getpid()]) == 0
        ours.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += ours.send(bytes(1 << 16))
        assert unacknowledged_bytes([os.getpid()]) > 0
        assert unacknowledged_bytes([os.getppid(), 1 << 30]) == 0
        while sent:
            sent -= len(theirs.recv(1 << 20))
        deadline = Deadline.after(60)
        while unacknowledged_bytes([os.getpid()]):
            assert not deadline.passed

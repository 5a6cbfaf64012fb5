# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of `vtorque-node`."""

from __future__ import annotations

import os

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import protocol


@pytest.mark.parametrize(
    ("output", "heard"),
    [(b"", b""), (b'{"version": 1', b""), (b'{"version": 1}\n', b'{"version": 1}\n'), (b"{}\n{}\n", b"{}\n")],
    ids=["nothing", "cut off", "whole", "more"],
)
def test_only_a_whole_line_tells_guests_of_their_job(output: bytes, heard: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, output)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert protocol.read_second_line(stream, 60.0) == heard


def test_caller_who_says_nothing_is_not_waited_for_without_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        assert protocol.read_second_line(stream, 0.0) == b""
    os.close(writing)

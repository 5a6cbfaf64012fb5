# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template's memory reaches who restores it whole and right, or without its end."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm.memory_feed import PIECE, MemoryFeed

CONTENT = os.urandom(PIECE) + os.urandom(PIECE) + b"the end"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def memory(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "mem"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("begin", [0, 10, PIECE - 1, PIECE, PIECE + 3, len(CONTENT) - 1])
def test_memory_comes_behind_the_other_header(memory: pathlib.Path, begin: int) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, begin, SHA256) as feed:
        assert stat.S_IMODE(fifo.stat().st_mode) == 0o600
        assert fifo.read_bytes() == b"header" + CONTENT[begin:]
        feed.check()
    assert not fifo.exists()


@pytest.mark.parametrize("spoil", ["changed", "shorter", "longer"])
def test_memory_that_is_not_the_recorded_one_has_no_end(memory: pathlib.Path, spoil: str) -> None:
    spoilt = {"changed": b"?" + CONTENT[1:], "shorter": CONTENT[:-1], "longer": CONTENT + b"+"}[spoil]
    memory.write_bytes(spoilt)
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256) as feed:
        received = fifo.read_bytes()
        with pytest.raises(VTorqueError, match="not what its record says"):
            feed.check()
    assert len(received) < len(b"header" + spoilt)
    assert (b"header" + spoilt).startswith(received)


def test_reader_that_ends_early_ends_the_feed(memory: pathlib.Path) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256) as feed:
        with fifo.open("rb") as stream:
            stream.read(10)
        with pytest.raises(VTorqueError, match="was not taken"):
            feed.check()


def test_fifo_that_nobody_opens_goes_with_the_feed(memory: pathlib.Path) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256) as feed:
        assert fifo.exists()
    assert not fifo.exists()
    with pytest.raises(VTorqueError, match="nobody"):
        feed.check()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template's memory reaches who restores it whole and right, or without its end."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
import threading

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import memory_feed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm.memory_feed import PIECE, PIPE, MemoryFeed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

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
    with MemoryFeed(fifo, b"header", memory, begin, SHA256, Deadline.after(60.0)) as feed:
        assert stat.S_IMODE(fifo.stat().st_mode) == 0o600
        assert fifo.read_bytes() == b"header" + CONTENT[begin:]
        feed.check()
    assert not fifo.exists()


@pytest.mark.parametrize("spoil", ["changed", "shorter", "longer"])
def test_memory_that_is_not_the_recorded_one_has_no_end(memory: pathlib.Path, spoil: str) -> None:
    spoilt = {"changed": b"?" + CONTENT[1:], "shorter": CONTENT[:-1], "longer": CONTENT + b"+"}[spoil]
    memory.write_bytes(spoilt)
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256, Deadline.after(60.0)) as feed:
        received = fifo.read_bytes()
        with pytest.raises(VTorqueError, match="not what its record says"):
            feed.check()
    assert len(received) < len(b"header" + spoilt)
    assert (b"header" + spoilt).startswith(received)


@pytest.mark.parametrize("read", [[], [0], [6], [10], [PIECE + 10], [6, 6, PIECE]])
def test_each_opening_reads_from_the_beginning(memory: pathlib.Path, read: list[int]) -> None:
    """libvirt from 11.2 on reads the header, closes the file, and opens it at once to read header and memory."""
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 4, SHA256, Deadline.after(60.0)) as feed:
        for size in read:
            with fifo.open("rb", buffering=0) as stream:
                while size > 0 and (piece := stream.read(size)):
                    size -= len(piece)
        assert read_in_time(fifo) == b"header" + CONTENT[4:]
        feed.check()
    assert [path.name for path in memory.parent.iterdir()] == ["mem"]


@pytest.mark.parametrize("read", [1, 6, 10, len(CONTENT)])
def test_memory_that_no_reader_took_whole_is_missed(
    memory: pathlib.Path, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_feed, "END_S", 0.2)
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256, Deadline.after(60.0)) as feed:
        with fifo.open("rb", buffering=0) as stream:
            stream.read(read)
        assert feed.why == ""  # who stopped knows why
        with pytest.raises(VTorqueError, match="was not read to its end"):
            feed.check()
    with pytest.raises(VTorqueError, match="nobody"):
        feed.check()


def test_fifo_that_nobody_opens_goes_with_the_feed(memory: pathlib.Path) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256, Deadline.after(60.0)) as feed:
        assert fifo.exists()
    assert not fifo.exists()
    with pytest.raises(VTorqueError, match="nobody"):
        feed.check()


def test_reader_that_comes_after_the_end_is_not_left_waiting(memory: pathlib.Path) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256, Deadline.after(60.0)) as feed:
        assert len(fifo.read_bytes()) == len(CONTENT) + 6
        feed.check()
        assert read_in_time(fifo) == b""


def test_reader_that_stands_still_is_given_up_at_the_deadline(memory: pathlib.Path) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256, Deadline.after(2.0)) as feed, fifo.open("rb") as stream:
        assert stream.read(6) == b"header"
        with pytest.raises(VTorqueError, match="was not taken: it was not read in time"):
            feed.check()
        assert len(stream.read()) <= 2 * PIPE  # the end comes behind what had room


def test_reader_that_comes_after_the_deadline_reads_the_end_alone(memory: pathlib.Path) -> None:
    fifo = memory.with_name("fifo")
    with MemoryFeed(fifo, b"header", memory, 0, SHA256, Deadline.after(0.0)) as feed:
        with pytest.raises(VTorqueError, match="nobody"):
            feed.check()
        assert read_in_time(fifo) == b""


def read_in_time(fifo: pathlib.Path) -> bytes:
    """In a thread: a reader for whom nobody writes waits for ever."""
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    thread.start()
    thread.join(10.0)
    assert found, "nobody ends what it reads"
    return found[0]

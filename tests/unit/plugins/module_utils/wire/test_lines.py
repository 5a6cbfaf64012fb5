# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one process writes as lines, another reads as the same lines."""

from __future__ import annotations

import json
import os
import threading

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import lines


def read_end(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as stream:
        return stream.read()


def test_more_than_a_pipe_holds_arrives_whole() -> None:
    reading, writing = os.pipe()
    data = os.urandom(1 << 20)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(read_end(reading)))
    reader.start()
    lines.write_all(writing, data)
    os.close(writing)
    reader.join(60)
    assert heard == [data]


def test_line_is_ascii_and_has_no_line_end_within() -> None:
    reading, writing = os.pipe()
    value = {"what": "two\nlines of \u00e9", "count": [1, None]}
    lines.send_line(writing, value)
    os.close(writing)
    data = read_end(reading)
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")
    assert json.loads(data.decode("ascii")) == value


def test_writer_without_a_reader_is_notified() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        lines.send_line(writing, {})
    os.close(writing)


def test_lines_come_out_as_they_are_completed() -> None:
    reader = lines.LineReader()
    assert reader.feed(b"a") == []
    assert reader.feed(b"b\n\nc") == [b"ab", b""]
    assert reader.rest == b"c"
    assert reader.feed(b"\n") == [b"c"]
    assert reader.feed(b"") == []
    assert reader.rest == b""


def test_line_beyond_the_longest_is_cut_and_takes_no_memory() -> None:
    reader = lines.LineReader(4)
    for _piece in range(3):
        assert reader.feed(b"abcdef") == []
        assert reader.rest == b"abcd"
    assert reader.feed(b"x\nlonger\nok\n") == [b"abcd", b"long", b"ok"]

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which scripts Torque's qsub does not take; the lab's, which acts like it, is asked about the same ones."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.script_text import (
    find_fault,
    find_mark,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.torque.commands.submit import is_ascii_script, is_windows_format


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", ""),
        (b"#!/bin/sh\necho \t\v\f\n\n", ""),
        (b"#" * 50 + "ü\n".encode(), ""),
        (b"#" * 49 + "ü\n".encode(), "line 1, byte 50 is 0xc3"),
        (b"#!/bin/sh\n#\x07\n", "line 2, byte 2 is 0x07"),
        (b"\xff\xfe#\0!\0", "byte order mark"),
        (b"a\nb\nc\r\n", "line 3 ends with a carriage return"),
        (b"a\rb\n\r\nc", "line 2 ends with a carriage return"),
        (b"a\r", ""),
        (b"a\rb", "line 1 ends with a carriage return"),
        (b"#" * 2045 + b"\rx more of the line\n", "line 1 ends with a carriage return"),
        (b"#" * 2046 + b"\rx more of the line\n", ""),
    ],
)
def test_find_fault_names_the_place(data: bytes, place: str) -> None:
    found = find_fault(data, "job.sh")
    assert found.startswith("job.sh") if place else found == ""
    assert place in found


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"\r", b"\n", b"\0", b"a", b"\xc3", b" ", b"#" * 49, b"#" * 2040]), max_size=12))
def test_find_fault_finds_one_exactly_where_qsub_does(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert bool(find_fault(data, "job.sh")) == (not is_ascii_script(data) or is_windows_format(data))


def test_find_mark_looks_at_the_first_bytes_alone() -> None:
    assert "no #PBS line counts" in find_mark(b"\xef\xbb\xbf#!/bin/sh\n")
    assert find_mark(b"#!/bin/sh\n\xef\xbb\xbf") == find_mark(b"") == ""

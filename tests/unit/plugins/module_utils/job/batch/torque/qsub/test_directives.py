# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directives are read by qsub's rules, and only the `-vm` ones are made to say nothing."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub import directives
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("script", "prefix", "found"),
    [
        (b"#!/bin/sh\n#PBS -N a\necho\n#PBS -N b\n", b"#PBS", [(2, ["-N", "a"])]),
        (b"\n# words\n  #PBS -N a\n: no command\n#PBS -z\n", b"#PBS", [(3, ["-N", "a"]), (5, ["-z"])]),
        (b" : a command\n#PBS -z\n", b"#PBS", []),
        (b"#PBS-z\n#pbs -h\n", b"#PBS", [(1, ["-z"])]),
        (b"#XYZ -z\n#PBS -h\n", b"#XYZ", [(1, ["-z"])]),
        (b"QSUB -z\nQSUB -h\n", b"QSUB", [(1, ["-z"]), (2, ["-h"])]),
        (b"#PBS -z\n", b"", []),
        (b"#PBS -l nodes=1,\\\nmem=1gb\n#PBS -z\n", b"#PBS", [(1, ["-l", "nodes=1,mem=1gb"]), (3, ["-z"])]),
        (b"#PBS -l nodes=1 \\\n  -z\necho\n", b"#PBS", [(1, ["-l", "nodes=1", "-z"])]),
        (b"#PBS -z \\\r\n-h\r\n", b"#PBS", [(1, ["-z", "-h"])]),
        (b"#PBS -z \\", b"#PBS", [(1, ["-z", ""])]),
        (b"#PBS -v \"A=x y\" -N 'a\"b' -A c\\ d\n", b"#PBS", [(1, ["-v", "A=x y", "-N", 'a"b', "-A", "c d"])]),
        (b"#PBS -N \"open\n#PBS -z\n", b"#PBS", [(1, ["-N", "open\n"]), (2, ["-z"])]),
        (b"# " + b"x" * 40000 + b"\n#PBS -z\n", b"#PBS", []),
        (b"", b"#PBS", []),
    ],
)  # fmt: skip
def test_directives(script: bytes, prefix: bytes, found: list[tuple[int, list[str]]]) -> None:
    read = directives.read(script, "job.sh", prefix)
    assert [(d.line, [word.text for word in d.arguments_as_written]) for d in read.directives] == found


@pytest.mark.parametrize(
    ("script", "texts", "neutral"),
    [
        (b"#PBS -vm img=a\necho\n", [("img=a", 1)], b"#PBS          \necho\n"),
        (b"#PBS -z -vm img=a -N x\n", [("img=a", 1)], b"#PBS -z           -N x\n"),
        (b"#PBS -vm 'img=a'\\\n,ram=1G -z\necho\n", [("img=a,ram=1G", 1)], b"#PBS            \\\n        -z\necho\n"),
        (b"#PBS -vm \\\n img=a\n", [("img=a", 1)], b"#PBS     \\\n      \n"),
        (b"#PBS -vm a=1\n#PBS -vm b=2\n", [("a=1", 1), ("b=2", 2)], b"#PBS        \n#PBS        \n"),
        (b"#PBS -vm\n", [("", 1)], b"#PBS    \n"),
        (b"#PBS -N -vm\n", [], b"#PBS -N -vm\n"),
        (b"#PBS -v m\n", [], b"#PBS -v m\n"),
        (b"#PBS -vm 'img=a\necho\n", [("img=a\n", 1)], b"#PBS           \necho\n"),
        (b"echo\n#PBS -vm img=a\n", [], b"echo\n#PBS -vm img=a\n"),
        (b"QSUB -vm a=1\necho", [], b"QSUB -vm a=1\necho"),
        (b"\xff\xfe# \xe9\n#PBS -vm img=a\n", [], b"\xff\xfe# \xe9\n#PBS -vm img=a\n"),
        (b"# \xe9\xff\r\n#PBS -vm img=a\r\n", [("img=a", 2)], b"# \xe9\xff\r\n#PBS          \r\n"),
    ],
)
def test_vm_lines_are_found_and_made_neutral(script: bytes, texts: list[tuple[str, int]], neutral: bytes) -> None:
    read = directives.read(script, "job.sh")
    assert list(read.vm_texts) == [(text, f"job.sh, line {line}") for text, line in texts]
    assert read.neutral == neutral


def test_last_option_counts_and_names_its_line() -> None:
    read = directives.read(b"#PBS -S /bin/sh\n#PBS -S /bin/ksh\n", "job.sh")
    assert read.last("S") == ("/bin/ksh", "job.sh, line 2")
    assert read.last("T") is None


LINES = st.lists(
    st.one_of(
        st.sampled_from([b"#PBS -vm a=1", b"#PBS -z -vm 'b=2' -h", b"#PBS -vm c=3,\\", b"d=4", b"# x", b"", b"echo"]),
        st.binary(max_size=12),
        st.text("#PBS-vm ='\"\\z\r", max_size=16).map(str.encode),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(LINES, st.sampled_from([b"\n", b"\r\n"]))
def test_neutral_copy_keeps_everything_in_its_place(lines: list[bytes], end: bytes) -> None:
    script = end.join(lines)
    read = directives.read(script, "job.sh")
    copy = read.neutral
    assert len(copy) == len(script)
    assert [i for i, byte in enumerate(script) if byte in b"\r\n"] == [i for i, b in enumerate(copy) if b in b"\r\n"]
    assert all(byte in (script[i], ord(" ")) for i, byte in enumerate(copy))
    again = directives.read(copy, "job.sh")
    assert again.vm_texts == ()
    rest = [[(o.name, o.value) for o in d.arguments.options if o.name != "vm"] for d in read.directives]
    assert [[(o.name, o.value) for o in d.arguments.options] for d in again.directives] == rest
    if not read.vm_texts:
        assert copy == script

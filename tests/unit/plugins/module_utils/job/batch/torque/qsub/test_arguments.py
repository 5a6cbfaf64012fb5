# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""qsub's arguments are read as getopt reads them, and changed in one place only."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.arguments import (
    VALUED,
    Arguments,
    NodeChunk,
    read_nodes,
    read_resources,
)
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("texts", "options", "operands"),
    [
        (["-l", "nodes=2", "job.sh"], [("l", "nodes=2")], ["job.sh"]),
        (["-lnodes=2", "job.sh"], [("l", "nodes=2")], ["job.sh"]),
        (["-Iz"], [("I", None), ("z", None)], []),
        (["-Il", "nodes=2"], [("I", None), ("l", "nodes=2")], []),
        (["-I", "-x", "./cmd", "args"], [("I", None), ("x", None)], ["./cmd", "args"]),
        (["-F", "a b", "job.sh"], [("F", "a b")], ["job.sh"]),
        (["-F", "-vm", "job.sh"], [("F", "-vm")], ["job.sh"]),
        (["-N", "-vm", "-vm", "vcpus=2"], [("N", "-vm"), ("vm", "vcpus=2")], []),
        (["-vm", "-I"], [("vm", "-I")], []),
        (["-vmx=1"], [("v", "mx=1")], []),
        (["job.sh", "-vm", "vcpus=2"], [("vm", "vcpus=2")], ["job.sh"]),
        (["-"], [], ["-"]),
        (["--", "-vm", "x"], [], ["-vm", "x"]),
        (["--dry-run", "job.sh"], [("--dry-run", None)], ["job.sh"]),
        (["-N", "--dry-run"], [("N", "--dry-run")], []),
        (["-vm"], [("vm", None)], []),
        (["-l"], [("l", None)], []),
        (["", "-z"], [("z", None)], [""]),
    ],
)
def test_options_and_operands(texts: list[str], options: list[tuple[str, str | None]], operands: list[str]) -> None:
    arguments = Arguments.read(texts)
    assert [(option.name, option.value) for option in arguments.options] == options
    assert [texts[index] for index in arguments.operands] == operands
    assert arguments.argv == tuple(texts)


def test_posixly_correct_ends_options_at_the_operand() -> None:
    arguments = Arguments.read(["-z", "job.sh", "-vm", "x"], permute=False)
    assert [option.name for option in arguments.options] == ["z"]


@pytest.mark.parametrize(
    ("texts", "names", "left"),
    [
        (["-vm", "a=1", "-z", "-vm", "b=2", "job.sh"], ["vm"], ["-z", "job.sh"]),
        (["-S", "/bin/sh", "job.sh"], ["S"], ["job.sh"]),
        (["-S/bin/sh", "job.sh"], ["S"], ["job.sh"]),
        (["-zS", "/bin/sh", "job.sh"], ["S"], ["-z", "job.sh"]),
        (["-zIS/bin/sh"], ["S", "z"], ["-I"]),
        (["-N", "-S", "job.sh"], ["S"], ["-N", "-S", "job.sh"]),
        (["-F", "a  'b' \"c\"", "--dry-run", "--json", "j"], ["--dry-run", "--json"], ["-F", "a  'b' \"c\"", "j"]),
        (["--query", "a.b", "-z", "--query=c", "j"], ["--query"], ["-z", "j"]),
        (["-N", "--query", "j"], ["--query"], ["-N", "--query", "j"]),
        (["j", "--query", "a"], ["--query"], ["j", "--query", "a"]),
    ],
)
def test_without(texts: list[str], names: list[str], left: list[str]) -> None:
    assert Arguments.read(texts).without(*names).argv == tuple(left)


@pytest.mark.parametrize(
    ("texts", "changed"),
    [
        (["-lnodes=1:ppn=2,mem=1gb", "j"], ["-lnodes=1:ppn=7,mem=1gb", "j"]),
        (["-l", "walltime=1:00:00,nodes=1", "j"], ["-l", "walltime=1:00:00,nodes=1:ppn=7", "j"]),
        (["-l", "nodes=1", "-z", "-l", "nodes=2", "j"], ["-l", "nodes=1", "-z", "-l", "nodes=1:ppn=7", "j"]),
        (["j", "-l", "nodes=1"], ["j", "-l", "nodes=1:ppn=7"]),
        (["j"], ["-l", "nodes=1:ppn=7", "j"]),
    ],
)
def test_with_resource_changes_the_value_that_counts(texts: list[str], changed: list[str]) -> None:
    assert Arguments.read(texts).with_resource("nodes", "1:ppn=7").argv == tuple(changed)


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("nodes=2:ppn=8,walltime=1:00:00", [("nodes", "2:ppn=8"), ("walltime", "1:00:00")]),
        ("other=a+b", [("other", "a+b")]),
        ("hostlist=n[1,2],mem=1gb", [("hostlist", "n[1,2]"), ("mem", "1gb")]),
        ("other='a,b',mem=1gb", [("other", "a,b"), ("mem", "1gb")]),
        (" nodes = 2", [("nodes", "2")]),
        ("nodes", []),
    ],
)
def test_resources(text: str, resources: list[tuple[str, str]]) -> None:
    found = read_resources(text)
    assert [(r.name, r.value) for r in found] == resources
    assert all(text[r.begin : r.end] == r.value for r in found)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("2:ppn=8", (NodeChunk(2, "", (), 8),)),
        ("1", (NodeChunk(1, "", (), 0),)),
        ("node07:big:ppn=4", (NodeChunk(1, "node07", ("big",), 4),)),
        ("1:ppn=2+2:gpus=1", (NodeChunk(1, "", (), 2), NodeChunk(2, "", ("gpus=1",), 0))),
        ("2:ppn=many", None),
        ("", None),
    ],
)
def test_node_requests(text: str, chunks: tuple[NodeChunk, ...] | None) -> None:
    assert read_nodes(text) == chunks


WORDS = st.lists(st.one_of(st.text("-vmlSIzFx =a,", max_size=5), st.sampled_from(["-vm", "-l", "--", "-"])), max_size=8)


@settings(deadline=None)
@given(WORDS, st.booleans())
def test_every_word_is_kept_and_accounted_for_once(texts: list[str], permute: bool) -> None:
    arguments = Arguments.read(texts, permute=permute)
    assert arguments.argv == tuple(texts)
    taken = {o.word for o in arguments.options} | {o.value_word for o in arguments.options if o.value is not None}
    left = [word for i, word in enumerate(texts) if i not in taken and i not in arguments.operands]
    assert left in ([], ["--"])


@settings(deadline=None)
@given(WORDS)
def test_taking_away_what_is_not_there_changes_nothing(texts: list[str]) -> None:
    arguments = Arguments.read(texts)
    absent = sorted(VALUED - {option.name for option in arguments.options})
    assert arguments.without(*absent) == arguments

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsub's options on OpenPBS: what the user asks for, what is refused with a reason, and the words for qsub."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import front
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

EMPTY = front.read_script(b"true\n", "job.sh")


def refusals(*argv: str, script: str = "") -> str:
    _request, faults = front.request_of(front.read(argv), front.read_script(script.encode(), "job.sh"))
    return "; ".join(map(str, faults))


def words_for(*argv: str, script: str = "", nodes: int = 2, exclusive: bool = True) -> tuple[str, ...]:
    call, text = front.read(argv), front.read_script(script.encode(), "job.sh")
    request, faults = front.request_of(call, text)
    assert faults == []
    return front.submit_words(call, text, request, nodes=nodes, cores=5, mem_mib=2048, exclusive=exclusive)


def test_arguments_are_read_as_qsub_reads_them() -> None:
    call = front.read(
        ["-Vjoe", "-l", "select=2:ncpus=8", "-vm", "vcpus=2", "-J1-4", "-l", "place=excl", "job.sh", "-z"]
    )
    assert call.options == ("-Vjoe", "-l", "select=2:ncpus=8", "-J1-4", "-l", "place=excl")
    assert call.given == (("V", ""), ("j", "oe"), ("l", "select=2:ncpus=8"), ("J", "1-4"), ("l", "place=excl"))
    assert (call.vm, call.operands) == (("vcpus=2",), ("job.sh", "-z"))
    assert call.resources() == {"select": "2:ncpus=8", "place": "excl"}
    assert front.read(["--version"]).options == ("--version",)
    with pytest.raises(UserFault, match="missing"):
        front.read(["-l"])
    with pytest.raises(UserFault, match="missing"):
        front.read(["-vm"])


def test_request_comes_from_the_command_line_over_the_script() -> None:
    script = b"#!/bin/sh\n#PBS -N x -vm vcpus=2,ram=1G\n#VM vms_per_node=2\ntrue\n#VM vcpus=9\n"
    read = front.read_script(script, "job.sh")
    request, faults = front.request_of(front.read(["-vm", "vcpus=4"]), read)
    assert faults == []
    assert request.values == {"vcpus": 4, "ram": 1024, "vms_per_node": 2}
    assert request.origins["vcpus"] == "command line"
    assert request.origins["ram"] == "job.sh, line 2"
    assert b"-vm" not in read.data
    assert len(read.data) == len(script)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-t", "1-4"), "-J FIRST-LAST"), (("-d", "/x"), "cd"), (("-F", "a"), "no arguments"), (("-n",), "place=excl"),
        (("-T", "x"), "job types"), (("-x",), "terminal"), (("-X",), "display"),
        (("-l", "other=x"), "no such resource"), (("-N", "a", "job.sh", "-l", "x"), "before the script"),
        (("-l", "nodes=2:ppn=2"), "select=2:ncpus=8"), (("-l", "walltime=1:0,prologue=x"), "no prologue"),
        (("-W", "x=vtorque:abc"), "no such attribute"), (("-Wsandbox=PRIVATE",), "home"),
        (("-l", "vtorque=vtorque:abc"), "-vm"), (("--", "/bin/sh", "-c", "x"), "no program"), (("-S", "sh"), "allowed"),
    ],
)  # fmt: skip
def test_word_that_openpbs_does_not_have_is_refused_with_what_to_do(words: tuple[str, ...], reason: str) -> None:
    assert reason in refusals(*words)
    if words[0] not in ("--", "-N"):
        text = refusals(script=f"#PBS {' '.join(words)}\ntrue\n")
        assert reason in text
        assert words[0] == "-S" or "job.sh, line 1" in text


def test_every_fault_is_told_at_once() -> None:
    text = refusals("-t", "1-4", "-vm", "vcpus=many", script="#PBS -T x\n#VM oops=1\n")
    assert all(word in text for word in ("-J FIRST", "vcpus", "job types", "oops"))


def test_words_of_openpbs_go_to_qsub_as_they_are() -> None:
    given = (
        "-N",
        "x",
        "-l",
        "select=2:ncpus=8:mem=4gb:vm=True",
        "-l",
        "place=scatter",
        "-J",
        "1-4",
        "-W",
        "depend=afterok:1.p0",
    )
    assert refusals(*given) == ""
    words = words_for(*given)
    assert words[2:] == given
    assert words[0] == "-l"
    name, _equals, wire = words[1].partition("=")
    assert name == "vtorque"
    assert Request.decode(wire) == Request()


def test_job_that_asks_for_nothing_gets_chunks_for_its_machines() -> None:
    assert words_for()[2:] == ("-l", "select=2:ncpus=5:mpiprocs=5:mem=2048mb", "-l", "place=scatter:excl")
    assert words_for(nodes=1, exclusive=False)[2:] == ("-l", "select=1:ncpus=5:mpiprocs=5:mem=2048mb")
    assert words_for(script="#PBS -l select=1:ncpus=9\n#PBS -l place=free\n")[2:] == ()


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (("-S", "/bin/zsh"), ()),
        (("-S/bin/zsh",), ()),
        (("-VS", "/bin/zsh", "-z"), ("-V", "-z")),
        (("-N", "-S"), ("-N", "-S")),
    ],
)
def test_shell_travels_in_the_request(given: tuple[str, ...], left: tuple[str, ...]) -> None:
    words = words_for(*given, exclusive=False, script="#PBS -l select=1\n")
    assert words[2:] == left
    request = Request.decode(words[1].partition("=")[2])
    assert request is not None
    assert request.shell == ("/bin/zsh" if "/bin/zsh" in "".join(given) else "")

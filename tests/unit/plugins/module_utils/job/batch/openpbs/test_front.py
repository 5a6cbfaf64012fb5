# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsub's options on OpenPBS: what the user asks for, what is refused with a reason, and the words for qsub."""

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import front
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request, RequestErrors

POLICY = Policy(batch_system="openpbs", pbs_exclusive_node_alloc=False)
NEED = types.SimpleNamespace(cores=5, mem_mib=2048)


def job(*argv: str, script: str = "true\n", **environment: str) -> front.Job:
    """A call whose script stands on standard input."""
    return front.read_call(argv, environment).read_script(lambda: script.encode())


def refusals(*argv: str, script: str = "true\n") -> str:
    return "; ".join(map(str, job(*argv, script=script).objections(None)))


def submit(*argv: str, script: str = "true\n", policy: Policy = POLICY) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What qsub gets behind the request, and what was raised."""
    asked = job(*argv, script=script)
    assert list(asked.objections(None)) == []
    command_call, notices = asked.submission(Request(), NEED, policy)
    assert command_call.argv[:2] == ("-l", f"vtorque={Request().encode()}")
    return command_call.argv[2:], notices


def test_arguments_are_read_as_qsub_reads_them() -> None:
    arguments = ["-Vjoe", "-l", "select=2:ncpus=8", "-vm", "vcpus=2", "-J1-4", "--dry-run", "-l", "place=excl", "-z"]
    asked = job(*arguments)
    given = asked.arguments.given
    assert given == (("V", ""), ("j", "oe"), ("l", "select=2:ncpus=8"), ("J", "1-4"), ("l", "place=excl"), ("z", ""))
    assert asked.layers == ((), (("vcpus=2", "command line"),))
    assert front.read_call(arguments, {}).argv == (*arguments[:3], arguments[5], *arguments[7:])
    assert dict(front.read_call(arguments, {}).own) == {"--dry-run": None}
    for wrong in (["-l"], ["-vm"], ["--what"]):
        with pytest.raises(UserFault, match=r"missing|no such"):
            front.read_call(wrong, {})


def test_texts_of_a_script_stand_before_those_of_the_command_line() -> None:
    script = "#!/bin/sh\n#PBS -N x -vm 'vcpus=2,ram=1G' -j oe\n#VM vms_per_node=2\ntrue\n"
    script += "#VM vcpus=9\n#PBS -vm vcpus=7\n"
    asked = job("-vm", "vcpus=4", script=script)
    lines, own = asked.layers
    assert lines == (("vcpus=2,ram=1G", "standard input, line 2"), ("vms_per_node=2", "standard input, line 3"))
    assert own == (("vcpus=4", "command line"),)
    assert asked.vm_lines == (2, 3)
    text = asked.submission(Request(), NEED, POLICY)[0].text
    assert text is not None
    assert text.splitlines()[1].split() == [b"#PBS", b"-N", b"x", b"-j", b"oe"]
    assert len(text) == len(script)
    assert text.endswith(b"\n#PBS -vm vcpus=7\n"), "behind the first command nothing is a directive"
    assert asked.as_it_is().text == script.encode()


def test_prefix_of_directives_is_the_users() -> None:
    script = "#X -vm vcpus=2\n#PBS -vm vcpus=3\n"
    assert [text for text, _at in job("-C", "#X", script=script).layers[0]] == ["vcpus=2"]
    assert [text for text, _at in job(script=script, PBS_DPREFIX="#X").layers[0]] == ["vcpus=2"]
    assert job("-C", "", script=script).layers[0] == ()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-t", "1-4"), "-J FIRST-LAST"), (("-d", "/x"), "cd"), (("-F", "a"), "no arguments"), (("-n",), "place=excl"),
        (("-T", "x"), "job types"), (("-x",), "terminal"), (("-X",), "display"), (("-i", "/x"), "standard input"),
        (("-l", "other=x"), "no such resource"), (("-l", "nodes=2:ppn=2"), "select=2:ncpus=8"),
        (("-l", "walltime=1:0,prologue=x"), "no prologue"), (("-W", "x=vtorque:abc"), "no such attribute"),
        (("-Wsandbox=PRIVATE",), "home"), (("-l", "vtorque=vtorque:abc"), "-vm"), (("-R", "n"), "home"),
    ],
)  # fmt: skip
def test_word_that_openpbs_does_not_have_is_refused_with_what_to_do(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in refusals(*arguments)
    assert "command line" in refusals(*arguments)
    text = refusals(script=f"#PBS -N y\n#PBS {' '.join(arguments)}\ntrue\n")
    assert reason in text
    assert "standard input, line 2" in text


def test_program_and_what_stands_behind_a_script_are_refused(tmp_path: pathlib.Path) -> None:
    assert "no program after --" in refusals("-N", "x", "--", "/bin/sh", "-c", "x")
    (tmp_path / "job.sh").write_text("true\n")
    assert "before the script" in refusals(str(tmp_path / "job.sh"), "-l", "x=y")
    with pytest.raises(RequestErrors, match="the script"):
        refusals(str(tmp_path / "gone"))


def test_every_fault_is_told_at_once() -> None:
    text = refusals("-t", "1-4", "-l", "nodes=1,other=x", script="#PBS -T x\n")
    assert all(word in text for word in ("-J FIRST", "select", "no such resource", "job types"))


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
        "block=true",
    )
    assert submit(*given) == (given, ())
    assert job(*given).hosts == 2
    assert job("-l", "select=2:ncpus=8").hosts is None, "two chunks may share a node"
    assert job().hosts == 1


def test_job_that_asks_for_nothing_gets_a_chunk_for_its_machine() -> None:
    chunk = "select=1:ncpus=5:mpiprocs=5:mem=2048mb"
    assert submit() == (("-l", chunk), ())
    alone = dataclasses.replace(POLICY, pbs_exclusive_node_alloc=True, vm_node_property="vm")
    assert submit(policy=alone)[0] == ("-l", f"{chunk}:vm=True", "-l", "place=excl")
    given = ("-l", "select=2:ncpus=8:mem=4gb:vm=False")
    assert submit(*given, policy=alone)[0] == ("-l", "place=scatter:excl", *given)


def test_chunk_that_is_too_small_gets_more_and_that_is_said() -> None:
    arguments, notices = submit("-l", "select=2:ncpus=2:mem=1gb+1:ncpus=8:mem=4gb,walltime=1:00", "-N", "x")
    select = "select=2:ncpus=5:mem=2048mb+1:ncpus=8:mem=4gb"
    assert arguments == ("-l", select, "-l", "walltime=1:00", "-N", "x")
    assert notices == ("chunk 2:ncpus=2:mem=1gb is too small for its guest, and becomes 2:ncpus=5:mem=2048mb",)
    arguments, notices = submit(script="#PBS -l select=1:ncpus=1\n")
    assert arguments == ("-l", "select=1:ncpus=5:mem=2048mb")
    assert len(notices) == 1
    assert submit("-l", "ncpus=2,mem=1gb")[0] == ("-l", "ncpus=2,mem=1gb"), "no select may stand beside these"
    assert submit("-l", "select=what")[0] == ("-l", "select=what"), "qsub will say so"


def test_chunk_that_no_node_has_is_refused_before_it_waits_for_ever() -> None:
    known = [types.SimpleNamespace(cores=8, mem_mib=4096), types.SimpleNamespace(cores=16, mem_mib=0)]

    def found(text: str, nodes: t.Sequence[t.Any] = known) -> int:
        return len(list(job("-l", f"select={text}").object_to_sizes(nodes)))

    assert [found(text) for text in ("2:ncpus=8", "ncpus=16:mem=1tb", "1:ncpus=17", "4:mem=1tb+2:ncpus=64")] == [
        0,
        0,
        1,
        1,
    ]
    assert found("1:ncpus=17", []) == 0


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (("-S", "/bin/zsh"), ()),
        (("-S/bin/zsh",), ()),
        (("-VS", "/bin/zsh", "-z"), ("-V", "-z")),
        (("-N", "-S"), ("-N", "-S")),
    ],
)
def test_shell_travels_in_the_request_and_not_to_qsub(given: tuple[str, ...], left: tuple[str, ...]) -> None:
    arguments, _notices = submit(*given, "-l", "select=1:ncpus=5:mem=2gb")
    assert arguments == (*left, "-l", "select=1:ncpus=5:mem=2gb")
    shell = job(*given).shell
    assert shell == (("/bin/zsh", "command line") if "/bin/zsh" in "".join(given) else None)


def test_interactive_job_has_no_script() -> None:
    asked = front.read_call(["-I"], {}).read_script(lambda: pytest.fail("nothing is read"))
    assert asked.interactive
    command_call, _notices = asked.submission(Request(), NEED, POLICY)
    assert (command_call.text, command_call.at, command_call.argv[-1]) == (None, -1, "-I")

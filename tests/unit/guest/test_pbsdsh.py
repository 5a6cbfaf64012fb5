# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's pbsdsh, under the shells of images, over an ssh that notes where to, and runs everything here."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from .launched_program import SHELLS, LaunchedProgram, Result, check_includes_alone

PROGRAM = "batch/torque/guest/pbsdsh.sh"
HERE = os.uname().nodename
LINES = (HERE, HERE, "vcn2-0", "vcn10-0", "vcn2-0")
WHERE = 'echo "$PBS_VNODENUM $PBS_NODENUM $PBS_TASKNUM"'


@pytest.fixture(params=SHELLS)
def guest(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> LaunchedProgram:
    """A job of five virtual nodes in three guests, this one the first."""
    (tmp_path / "nodes").write_text("".join(f"{line}\n" for line in LINES))
    here = LaunchedProgram.under(
        request.param, tmp_path, "bin/pbsdsh", PBS_ENVIRONMENT="PBS_BATCH", PBS_NODEFILE=str(tmp_path / "nodes")
    )
    here.add_program("pbsdsh", templates.render(PROGRAM, site_dir=None))
    return here


def numbers(done: Result) -> list[str]:
    """What `WHERE` said everywhere: virtual node, node, task."""
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


def test_program_runs_on_every_virtual_node_by_one_connection_a_guest(guest: LaunchedProgram) -> None:
    assert numbers(guest.run("sh", "-c", WHERE)) == ["0 0 2", "1 0 3", "2 1 4", "3 2 5", "4 1 6"]
    assert guest.called() == ["vcn10-0", "vcn2-0"]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (("-u",), ["0 0 2", "2 1 3", "3 2 4"]),
        (("-c", "3"), ["0 0 2", "1 0 3", "2 1 4"]),
        (("-u", "-c2"), ["0 0 2", "2 1 3"]),
        (("-n", "3"), ["3 2 5"]),
        (("-n0",), ["0 0 2"]),
        (("-h", "vcn2-0"), ["2 1 4"]),
        (("-h", "vcn2-0/1"), ["4 1 6"]),
        (("-o", "-s"), ["0 0 2", "1 0 3", "2 1 4", "3 2 5", "4 1 6"]),
    ],
)
def test_options_choose_the_nodes_as_torques_do(
    guest: LaunchedProgram, options: tuple[str, ...], tasks: list[str]
) -> None:
    assert numbers(guest.run(*options, "sh", "-c", WHERE)) == tasks


def test_host_is_found_by_its_short_name(guest: LaunchedProgram, tmp_path: pathlib.Path) -> None:
    (tmp_path / "nodes").write_text("vcn1-0.site\nvcn10-0.site\n")
    assert numbers(guest.run("-h", "vcn10-0", "sh", "-c", WHERE)) == ["1 1 3"]
    assert guest.called() == ["vcn10-0.site"]


def test_one_after_the_other(guest: LaunchedProgram, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace"
    script = f"echo in >>{trace}; : ; echo out >>{trace}"
    assert guest.run("-s", "sh", "-c", script).returncode == 0
    assert trace.read_text().split() == ["in", "out"] * 5


def test_greatest_status_is_the_status_and_others_than_0_are_told(guest: LaunchedProgram) -> None:
    done = guest.run("sh", "-c", 'echo fine; [ "$PBS_VNODENUM" -lt 2 ] || exit $((PBS_VNODENUM * 10))')
    assert done.returncode == 40
    assert sorted(done.stderr.splitlines()) == [f"pbsdsh: task {n} exit status {n}0" for n in (2, 3, 4)]
    assert done.stdout == "fine\n" * 5


def test_guest_that_cannot_be_reached_is_told_and_fails(guest: LaunchedProgram) -> None:
    done = guest.run("-h", "vcn2-0", "true", FAR_HOME="/nowhere")
    assert done.returncode == 1
    assert "/nowhere" in done.stderr


def test_program_that_is_not_there(guest: LaunchedProgram) -> None:
    done = guest.run("-n", "2", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_verbose_tells_of_every_task(guest: LaunchedProgram) -> None:
    done = guest.run("-v", "-c", "2", "true")
    report = [
        arguments.format(n)
        for arguments in ("pbsdsh: spawned task {}", "pbsdsh: task {} exit status 0")
        for n in (0, 1)
    ]
    assert sorted(done.stderr.splitlines()) == sorted(report)


@pytest.mark.parametrize("node", ["0", "2"])
def test_words_and_variables_arrive_as_they_are(guest: LaunchedProgram, node: str) -> None:
    arguments = ["it's", "", "a  b", "*", "$HOME `x` \\n", "two\nlines\n", "-n", "ü"]
    odd = 'it\'s "q" $HOME `x` ü\tand\nmore, a=b; \\'
    done = guest.run("-n", node, "sh", "-c", 'printf "%s|" "$@" "$ODD"', "sh", *arguments, ODD=odd)
    assert (done.stdout, done.stderr) == ("|".join([*arguments, odd]) + "|", "")


def test_pbsdsh_passes_all_variables_but_those_of_a_login(guest: LaunchedProgram) -> None:
    """HOME and the like are not taken along; everything else is."""
    script = 'echo "$HOME ${TMPDIR-none} ${SSH_CONNECTION-none} $MINE"'
    done = guest.run(
        "-n", "2", "sh", "-c", script, TMPDIR="/here", SSH_CONNECTION="x", MINE="yes", HOME="/elsewhere"
    )  # fmt: skip
    assert done.stdout == f"{guest.environment['FAR_HOME']} none none yes\n"


def test_pbsdsh_starts_in_the_jobs_directory_without_input(guest: LaunchedProgram, tmp_path: pathlib.Path) -> None:
    assert guest.run("-n", "2", "pwd").stdout.strip() == guest.environment["HOME"]
    assert guest.run("-n", "2", "pwd", PBS_O_INITDIR=str(tmp_path)).stdout.strip() == str(tmp_path)
    assert guest.run("wc", "-c", stdin="text").stdout.split() == ["0"] * 5


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("node", ["0", "2"])
def test_pbsdsh_that_ends_ends_its_programs(guest: LaunchedProgram, node: str, sent: signal.Signals) -> None:
    """However it ends: the pipe closes when the program and what it started are gone."""
    command = [*guest.command, "-n", node, "sh", "-c", "echo up; sleep 1000; echo never"]
    with subprocess.Popen(command, env=guest.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(sent)
        with contextlib.ExitStack() as stack:
            stack.callback(process.kill)
            assert process.communicate(timeout=300)[0] == ""
    assert process.returncode == (1 if sent == signal.SIGTERM else -9)


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (("-n", "5", "true"), {}, "pbsdsh: only 5 nodes available"),
        (("-c", "6", "true"), {}, "pbsdsh: only 5 nodes available"),
        (("-u", "-n", "3", "true"), {}, "pbsdsh: only 3 nodes available"),
        (("-h", "vcn1-0", "true"), {}, "pbsdsh: vcn1-0 not found"),
        (("-h", "vcn", "true"), {}, "pbsdsh: vcn not found"),
        (("true",), {"PBS_ENVIRONMENT": ""}, "pbsdsh: not executing under PBS"),
        (("true",), {"PBS_NODEFILE": "/nowhere"}, "pbsdsh: the job's node file /nowhere cannot be read"),
        ((), {}, "Usage: pbsdsh"),
        (("-c", "0", "true"), {}, "Usage: pbsdsh"),
        (("-c", "x", "true"), {}, "Usage: pbsdsh"),
        (("-c", "1", "-n", "1", "true"), {}, "Usage: pbsdsh"),
    ],
)
def test_pbsdsh_with_impossible_options_runs_nothing(
    guest: LaunchedProgram, arguments: tuple[str, ...], variables: dict[str, str], message: str
) -> None:
    done = guest.run(*arguments, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0].startswith(message)
    assert guest.called() == []


def test_help(guest: LaunchedProgram) -> None:
    done = guest.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: pbsdsh")


def test_pbsdsh_can_be_included_in_a_template() -> None:
    """A shell's length expansion would open a comment of Jinja's."""
    check_includes_alone(PROGRAM)

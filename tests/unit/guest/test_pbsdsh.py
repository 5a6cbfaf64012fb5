# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's pbsdsh, under the shells of images, over an ssh that notes where to, and runs everything here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

PROGRAM = templates.COLLECTION_DIR / "batch/torque/guest/pbsdsh.sh"
HERE = os.uname().nodename
LINES = (HERE, HERE, "vcn2-0", "vcn10-0", "vcn2-0")
WHERE = 'echo "$PBS_VNODENUM $PBS_NODENUM $PBS_TASKNUM"'
FAKE_SSH = """#!/bin/sh
# as sshd does: the words become one line of the user's login shell, in an environment of its own
while [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done
echo "$1" >>"$CALLS"
shift
exec env -i HOME="$FAR_HOME" PATH="$PATH" USER=alice /bin/sh -c "$*"
"""
Result = subprocess.CompletedProcess[str]


@dataclasses.dataclass(frozen=True)
class Guest:
    """Where pbsdsh is tried.

    Attributes:
        command: that starts it.
        environment: of the job.
        calls: file of the hosts that ssh was called for.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    calls: pathlib.Path

    def run(self, *arguments: str, **variables: str) -> Result:
        """Its end."""
        environment = {**self.environment, **variables}
        return subprocess.run(
            [*self.command, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    def called(self) -> list[str]:
        """Hosts that ssh was called for, in no order."""
        return sorted(self.calls.read_text().split()) if self.calls.exists() else []


@pytest.fixture(params=["dash", "busybox"])
def guest(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Guest:
    """A job of five virtual nodes in three guests, this one the first."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(FAKE_SSH)
    (programs / "ssh").chmod(0o755)
    path = f"{programs}:/usr/bin:/bin"
    if request.param == "busybox":
        path = str(programs)
        for applet in subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
            if not (programs / applet).exists():
                (programs / applet).symlink_to("/bin/busybox")
    (tmp_path / "nodes").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "home").mkdir()
    environment = {
        "PATH": path, "HOME": str(tmp_path / "home"), "FAR_HOME": str(tmp_path / "home"),
        "CALLS": str(tmp_path / "calls"), "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": str(tmp_path / "nodes"),
    }  # fmt: skip
    command = {"dash": ("/bin/dash",), "busybox": ("/bin/busybox", "sh")}[request.param]
    return Guest((*command, str(PROGRAM)), environment, tmp_path / "calls")


def numbers(done: Result) -> list[str]:
    """What `WHERE` said everywhere: virtual node, node, task."""
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


def test_program_runs_on_every_virtual_node_by_one_connection_a_guest(guest: Guest) -> None:
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
def test_options_choose_the_nodes_as_torques_do(guest: Guest, options: tuple[str, ...], tasks: list[str]) -> None:
    assert numbers(guest.run(*options, "sh", "-c", WHERE)) == tasks


def test_host_is_found_by_its_short_name(guest: Guest, tmp_path: pathlib.Path) -> None:
    (tmp_path / "nodes").write_text("vcn1-0.site\nvcn10-0.site\n")
    assert numbers(guest.run("-h", "vcn10-0", "sh", "-c", WHERE)) == ["1 1 3"]
    assert guest.called() == ["vcn10-0.site"]


def test_one_after_the_other(guest: Guest, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace"
    script = f"echo in >>{trace}; : ; echo out >>{trace}"
    assert guest.run("-s", "sh", "-c", script).returncode == 0
    assert trace.read_text().split() == ["in", "out"] * 5


def test_greatest_status_is_the_status_and_others_than_0_are_told(guest: Guest) -> None:
    done = guest.run("sh", "-c", 'echo fine; [ "$PBS_VNODENUM" -lt 2 ] || exit $((PBS_VNODENUM * 10))')
    assert done.returncode == 40
    assert sorted(done.stderr.splitlines()) == [f"pbsdsh: task {n} exit status {n}0" for n in (2, 3, 4)]
    assert done.stdout == "fine\n" * 5


def test_guest_that_cannot_be_reached_is_told_and_fails(guest: Guest) -> None:
    done = guest.run("-h", "vcn2-0", "true", FAR_HOME="/nowhere")
    assert done.returncode == 1
    assert "/nowhere" in done.stderr


def test_program_that_is_not_there(guest: Guest) -> None:
    done = guest.run("-n", "2", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_verbose_tells_of_every_task(guest: Guest) -> None:
    done = guest.run("-v", "-c", "2", "true")
    told = [words.format(n) for words in ("pbsdsh: spawned task {}", "pbsdsh: task {} exit status 0") for n in (0, 1)]
    assert sorted(done.stderr.splitlines()) == sorted(told)


@pytest.mark.parametrize("node", ["0", "2"])
def test_words_and_variables_arrive_as_they_are(guest: Guest, node: str) -> None:
    words = ["it's", "", "a  b", "*", "$HOME `x` \\n", "two\nlines\n", "-n", "ü"]
    odd = 'it\'s "q" $HOME `x` ü\tand\nmore, a=b; \\'
    done = guest.run("-n", node, "sh", "-c", 'printf "%s|" "$@" "$ODD"', "sh", *words, ODD=odd)
    assert (done.stdout, done.stderr) == ("|".join([*words, odd]) + "|", "")


def test_pbsdsh_passes_all_variables_but_those_of_a_login(guest: Guest) -> None:
    """HOME and the like are not taken along; everything else is."""
    script = 'echo "$HOME ${TMPDIR-none} ${SSH_CONNECTION-none} $MINE"'
    done = guest.run(
        "-n", "2", "sh", "-c", script, TMPDIR="/here", SSH_CONNECTION="x", MINE="yes", HOME="/elsewhere"
    )  # fmt: skip
    assert done.stdout == f"{guest.environment['FAR_HOME']} none none yes\n"


def test_pbsdsh_starts_in_the_jobs_directory_without_input(guest: Guest, tmp_path: pathlib.Path) -> None:
    assert guest.run("-n", "2", "pwd").stdout.strip() == guest.environment["HOME"]
    assert guest.run("-n", "2", "pwd", PBS_O_INITDIR=str(tmp_path)).stdout.strip() == str(tmp_path)
    assert guest.run("wc", "-c").stdout.split() == ["0"] * 5


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("node", ["0", "2"])
def test_pbsdsh_that_ends_ends_its_programs(guest: Guest, node: str, sent: signal.Signals) -> None:
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
    ("arguments", "variables", "words"),
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
    guest: Guest, arguments: tuple[str, ...], variables: dict[str, str], words: str
) -> None:
    done = guest.run(*arguments, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0].startswith(words)
    assert guest.called() == []


def test_help(guest: Guest) -> None:
    done = guest.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: pbsdsh")


def test_pbsdsh_can_be_included_in_a_template() -> None:
    """A shell's length expansion would open a comment of Jinja's."""
    assert templates.render("batch/torque/guest/pbsdsh.sh", site_dir=None) == PROGRAM.read_text()

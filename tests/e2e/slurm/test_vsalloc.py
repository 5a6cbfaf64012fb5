# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsalloc: a session or a command in a guest of a job of a real Slurm."""

from __future__ import annotations

import re

import pytest

from ..terminal import Terminal
from .conftest import SlurmSite


def test_session_is_in_the_guest_and_ends_with_its_status(site: SlurmSite) -> None:
    """A terminal there, of this size; Ctrl-C is for what runs in it."""
    # salloc wants a terminal of its session's own, as a login has one
    terminal = Terminal(site, "setsid", "--ctty", "--wait", "vsalloc", "-vm", "vcpus=1", size=(31, 97))
    terminal.expect("Granted job allocation")
    terminal.type('echo "name=$(hostname) tty=$(tty | cut -c1-8) size=$(stty size) job=$SLURM_JOB_ID"')
    terminal.expect("tty=/dev/pts size=31 97 job=")
    assert re.search(r"name=vcn[12]-[0-9]+ ", terminal.seen)
    # the shell would not hear it between two commands
    terminal.type("sh -c 'echo begun-$((1 + 1)); exec sleep 1000'")
    terminal.expect("begun-2")
    terminal.interrupt()
    terminal.expect("^C")
    terminal.type("echo status=$((100 + $?))")
    terminal.expect("status=230")
    terminal.type("srun hostname; exit 9")
    assert terminal.close() == 9
    number = re.search("Granted job allocation ([0-9]+)", terminal.seen)
    assert number
    site.wait_for("the end of the job", lambda: site.facts(number[1]).get("JobState") in ("COMPLETED", "FAILED"))


@pytest.mark.full
def test_command_runs_in_the_guest_without_a_terminal(site: SlurmSite) -> None:
    """Its words, its directory, both streams and its status are as they are."""
    script = 'printf "%s|" "$(hostname)" "$(pwd)" "$@"; echo bad >&2; exit 37'
    done = site.on("fe", "vsalloc", "-vm", "vcpus=1", "sh", "-c", script, "sh", "a  b", "", "$HOME", user="alice")
    assert re.fullmatch(r"vcn[12]-[0-9]+\|/[a-z/]*\|a  b\|\|\$HOME\|", done.stdout), done.stderr
    assert "bad\n" in done.stderr
    assert done.returncode == 37


@pytest.mark.full
def test_session_without_a_terminal_is_refused_before_it_is_queued(site: SlurmSite) -> None:
    before = set(site.jobs())
    done = site.on("fe", "vsalloc", "-vm", "vcpus=1", user="alice", stdin="hostname\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a shell: needs a terminal" in done.stderr
    assert set(site.jobs()) == before


@pytest.mark.full
def test_refusal_of_the_node_is_on_the_users_terminal(site: SlurmSite) -> None:
    done = site.on("fe", "vsalloc", "-n1", "--oversubscribe", "--mem=2G", "echo", "ran", user="alice")
    assert done.returncode == 1
    assert "vtorque: this job did not run: " in done.stderr
    assert "the job has 1 of the 2 that its guests need" in done.stderr
    assert "ran" not in done.stdout.splitlines()

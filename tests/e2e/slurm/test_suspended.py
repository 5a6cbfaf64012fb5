# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`scontrol suspend` and `resume` reach the guests of a job, on all its nodes, and nothing is lost meanwhile."""

from __future__ import annotations

import time

import pytest

from ..terminal import Terminal
from .conftest import SlurmSite

NODES = ("cn1", "cn2")
ALIVE_S = 80
"""Longer than the ssh of a job would wait for a guest that is silent."""
LATE_S = 4
"""That a guest which went on with its own clock would be late, at least."""
SCRIPT = """#!/bin/bash
echo begun
until [ -e ~/go ]; do sleep 0.2; done
srun -N2 sh -c 'for i in 1 2 3 4 5 6 7 8 9; do date +%s >~/clock.$(hostname).$i; sleep 0.5; done'
exit 5
"""
"""The file server, which is the node, gives its files times by its own clock."""
REVIVE = "/usr/bin/env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive libvirt"


def states(site: SlurmSite) -> list[str]:
    """Return the states of all guests."""
    look = "virsh -c qemu:///system list --all | awk '/vcn/{print $3}'"
    return [state for node in NODES for state in site.root(node, look).split()]


def begin(site: SlurmSite, *options: str) -> str:
    """Return the number of a job of two nodes whose script has begun."""
    site.root("fe", "rm -f /home/alice/go /home/alice/clock.*")
    number = site.submit_vm(SCRIPT, "-N2", "-n4", *options)
    output = f"/home/alice/slurm-{number}.out"
    site.wait_for("the script to begin", lambda: "begun" in site.read(output), seen=lambda: site.facts(number))
    return number


def suspend(site: SlurmSite, number: str) -> None:
    site.root("fe", f"scontrol suspend {number}")
    site.wait_for("both guests to stand still", lambda: states(site) == ["paused"] * 2, seen=lambda: states(site))


def resume(site: SlurmSite, number: str) -> None:
    site.root("fe", f"scontrol resume {number}; touch /home/alice/go")
    site.wait_for("both guests to go on", lambda: states(site) == ["running"] * 2, seen=lambda: states(site))


def let_pass(site: SlurmSite, seconds: float) -> None:
    """The time itself is what the test is about."""
    until = time.monotonic() + seconds
    site.wait_for("time to pass", lambda: time.monotonic() > until, timeout_s=2 * seconds + 60)


def clocks(site: SlurmSite) -> dict[str, int]:
    """Return by how much the clock of each guest was late when it last wrote it, in seconds."""
    show = 'cd /home/alice; for f in clock.*.9; do echo "$f $(( $(stat -c %Y $f) - $(cat $f) ))"; done'
    return {line.split()[0]: int(line.split()[1]) for line in site.root("fe", show).splitlines()}


def test_guests_of_a_suspended_job_stand_still_and_go_on_at_the_right_time(site: SlurmSite) -> None:
    number = begin(site)
    suspend(site, number)
    let_pass(site, LATE_S)
    assert site.facts(number)["JobState"] == "SUSPENDED"
    resume(site, number)
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "5:0"), ended.out
    late = clocks(site)
    assert len(late) == 2
    assert all(seconds < LATE_S - 1 for seconds in late.values()), late


@pytest.mark.full
def test_job_suspended_while_its_guests_boot_stands_still_when_they_are_ready(site: SlurmSite) -> None:
    """No sweep sees to it, of which a lab has none; the shell, which rings for it later, does not run yet."""
    site.root("fe", "rm -f /home/alice/go /home/alice/clock.*; kill -STOP $(cat /run/dnsmasq.pid)")
    try:
        number = site.submit_vm(SCRIPT, "-N2", "-n4")
        site.wait_for("the guests to boot", lambda: states(site) == ["running"] * 2, seen=lambda: states(site))
        site.root("fe", f"scontrol suspend {number}")
    finally:
        site.root("fe", "kill -CONT $(cat /run/dnsmasq.pid)")
    site.wait_for("both guests to stand still", lambda: states(site) == ["paused"] * 2, seen=lambda: states(site))
    assert "begun" not in site.read(f"/home/alice/slurm-{number}.out")
    resume(site, number)
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "5:0"), ended.out


@pytest.mark.full
def test_suspension_longer_than_a_silent_connection_ends_no_job(site: SlurmSite) -> None:
    number = begin(site, "-t5")
    suspend(site, number)
    let_pass(site, ALIVE_S)
    resume(site, number)
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "5:0"), ended.out


@pytest.mark.full
def test_job_that_is_suspended_in_the_first_seconds_goes_on_after_its_resume(site: SlurmSite) -> None:
    """Seen to fail with a sister that takes running jobs alone: the job was held, for an administrator to release."""
    number = site.submit_vm("#!/bin/sh\necho ran\nexit 3\n", "-N2", "-n4")
    site.wait_for_state(number, "RUNNING")
    site.root("fe", f"scontrol suspend {number}")
    site.wait_for("guests that stand still", lambda: states(site) == ["paused"] * 2, seen=lambda: states(site))
    resume(site, number)
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "3:0"), ended.out


@pytest.mark.full
def test_job_cancelled_while_suspended_leaves_no_paused_guest(site: SlurmSite) -> None:
    number = begin(site)
    suspend(site, number)
    assert site.on("fe", "scancel", number, user="alice").returncode == 0
    assert site.ended(number).state == "CANCELLED"
    site.wait_for("the guests to be gone", lambda: states(site) == [], seen=lambda: states(site))


@pytest.mark.full
def test_libvirt_restarted_while_a_job_is_suspended_loses_no_guest(site: SlurmSite) -> None:
    number = begin(site)
    suspend(site, number)
    for node in NODES:
        site.root(node, "kill -9 $(cat /run/libvirtd.pid)")
        site.root(node, REVIVE)
    assert states(site) == ["paused"] * 2
    resume(site, number)
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "5:0"), ended.out


@pytest.mark.full
def test_node_that_does_not_answer_is_told_when_it_does(site: SlurmSite) -> None:
    number = begin(site)
    sshd = "pgrep -o -f 'sshd.*listener'"
    site.root("cn2", f"kill -STOP $({sshd})")
    try:
        site.root("fe", f"scontrol suspend {number}")
        site.wait_for("the first guest to stand still", lambda: states(site) == ["paused", "running"])
    finally:
        site.root("cn2", f"kill -CONT $({sshd})")
    site.wait_for("the second one", lambda: states(site) == ["paused"] * 2, seen=lambda: states(site))
    resume(site, number)
    assert site.ended(number).code == "5:0"


@pytest.mark.full
def test_stop_by_the_user_pauses_no_guest(site: SlurmSite) -> None:
    """Their own TSTP reaches the script alone; the server says that the job runs."""
    number = begin(site)
    for name in ("TSTP", "CONT"):
        assert site.on("fe", "scancel", "-b", "-s", name, number, user="alice").returncode == 0
    site.root("fe", "touch /home/alice/go")
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "5:0"), ended.out
    log = site.root("cn1", f"cat /var/lib/vtorque/records/{number}.lab.1/vtorque.log")
    assert "paused, as" not in log


@pytest.mark.full
def test_session_is_suspended_and_goes_on(site: SlurmSite) -> None:
    terminal = Terminal(site, "setsid", "--ctty", "--wait", "vsalloc", "-w", "cn1", "-vm", "vcpus=1")
    terminal.expect("Granted job allocation")
    terminal.type("echo here-$((1 + 1))")
    terminal.expect("here-2")
    (job,) = [one for one, state in site.jobs().items() if state == "RUNNING"]
    site.root("fe", f"scontrol suspend {job}")
    site.wait_for("the guest to stand still", lambda: states(site) == ["paused"], seen=lambda: states(site))
    let_pass(site, ALIVE_S)
    site.root("fe", f"scontrol resume {job}")
    site.wait_for("the guest to go on", lambda: states(site) == ["running"], seen=lambda: states(site))
    terminal.type("echo again-$((1 + 1)); exit 7")
    terminal.expect("again-2")
    assert terminal.close() == 7

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's own daemons in trouble while guests boot: nothing is left, no node is drained, other jobs run on."""

from __future__ import annotations

import time

import pytest

from .conftest import SlurmSite
from .test_cancelled import begin, guests

pytestmark = pytest.mark.full

DAEMON = "/run/lab/mom.pid"
CONTROLLER = "/run/lab/server.pid"
REVIVE = "/usr/bin/env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive batch"


def check_as_before(site: SlurmSite) -> None:
    """Both nodes take bare jobs, which end as they always do."""
    site.wait_for("nodes that take jobs", lambda: site.root("fe", "sinfo -hN -p batch -o %T") == "idle\nidle\n")
    assert [site.reason(node) for node in ("cn1", "cn2")] == ["", ""]
    assert site.bare("#!/bin/sh\nexit 3\n").code == "3:0"


def test_job_queued_again_while_guests_boot_loses_that_start_and_runs_later(site: SlurmSite) -> None:
    """Its Epilog is told of the next start already."""
    number = begin(site, "booting")
    site.root("fe", f"scontrol requeue {number}")
    site.wait_for("the guests to be gone", lambda: not guests(site, number), seen=lambda: guests(site, number))
    facts = site.wait_for_state(number, "PENDING")
    assert facts["Restarts"] == "1"
    site.root("fe", f"scontrol update jobid={number} StartTime=now")
    ended = site.ended(number)
    assert (ended.state, ended.out) == ("COMPLETED", "ran\n")
    check_as_before(site)


def test_registration_of_the_node_while_guests_boot_ends_nothing(site: SlurmSite) -> None:
    number = begin(site, "made")
    site.root("fe", "scontrol reconfigure")
    ended = site.ended(number)
    assert (ended.state, ended.out) == ("COMPLETED", "ran\n")
    assert site.facts(number)["Restarts"] == "0"
    check_as_before(site)


def test_slurmd_killed_while_guests_boot_leaves_nothing_when_the_job_is_cancelled(site: SlurmSite) -> None:
    number = begin(site, "made")
    site.root("cn1", f"kill -9 $(cat {DAEMON})")
    assert site.on("fe", "scancel", number, user="alice").returncode == 0
    site.wait_for("the guests to be gone", lambda: not guests(site, number), seen=lambda: guests(site, number))
    site.root("cn1", REVIVE)
    assert site.ended(number).state == "CANCELLED"
    check_as_before(site)


def test_slurmd_restarted_while_guests_boot_runs_the_job(site: SlurmSite) -> None:
    number = begin(site, "made")
    site.root("cn1", f"kill $(cat {DAEMON}); while [ -e {DAEMON} ]; do sleep 0.1; done")
    site.root("cn1", REVIVE)
    ended = site.ended(number)
    assert (ended.state, ended.out) == ("COMPLETED", "ran\n")
    check_as_before(site)


def test_controller_that_is_silent_while_guests_boot_ends_nothing(site: SlurmSite) -> None:
    """Another node would ask it whether the start is true, and refuse."""
    number = site.submit_vm("#!/bin/sh\necho ran\n", "-w", "cn1")
    made = f"ls -d /var/lib/vtorque/guests/{number}.lab.1/*"
    site.wait_for("a guest", lambda: site.on("cn1", "sh", "-c", made).returncode == 0)
    site.root("fe", f"kill -STOP $(cat {CONTROLLER})")
    try:
        ready = f"/run/vtorque/jobs/{number}.lab.1/ready.json"
        site.wait_for("the guests", lambda: site.on("cn1", "test", "-e", ready).returncode == 0)
    finally:
        site.root("fe", f"kill -CONT $(cat {CONTROLLER})")
    ended = site.ended(number)
    assert (ended.state, ended.out) == ("COMPLETED", "ran\n")
    check_as_before(site)


def test_controller_that_is_upgraded_while_a_job_of_two_nodes_begins_ends_nothing(site: SlurmSite) -> None:
    """A restart, an upgrade or a fail-over: its process ends, and another reads its state half a minute later.

    Seen to fail with a sister that gave it 10 s: the job was FAILED for good.
    """
    number = site.submit_vm("#!/bin/sh\necho ran\nexit 3\n", "-N2", "-n4")
    site.wait_for_state(number, "RUNNING")
    # it cannot remove the file with its number, whose directory is root's
    site.root("fe", f"pid=$(cat {CONTROLLER}); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done")
    away_until = time.monotonic() + 30
    site.wait_for("half a minute", lambda: time.monotonic() > away_until)
    site.root("fe", REVIVE)
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "3:0"), ended.out
    assert (ended.out or "").endswith("ran\n")
    check_as_before(site)


def test_controller_that_is_silent_for_a_minute_while_a_job_runs_ends_nothing(site: SlurmSite) -> None:
    """Nor does a sweep take away what nobody can be asked about."""
    site.root("fe", "rm -f /home/alice/go")
    number = site.submit_vm("#!/bin/sh\necho begun\nuntil [ -e ~/go ]; do sleep 0.2; done\nexit 6\n", "-w", "cn1")
    site.wait_for("the script", lambda: "begun" in site.read(f"/home/alice/slurm-{number}.out"))
    site.root("fe", f"kill -STOP $(cat {CONTROLLER})")
    try:
        silent_until = time.monotonic() + 60
        site.on("cn1", "/opt/vtorque/bin/vtorque-sweep", "--json")
        site.root("fe", "touch /home/alice/go")
        site.wait_for("a minute", lambda: time.monotonic() > silent_until)
        assert guests(site, number)
    finally:
        site.root("fe", f"kill -CONT $(cat {CONTROLLER})")
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("FAILED", "6:0")
    check_as_before(site)

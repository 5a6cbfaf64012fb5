# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qsig -s suspend` and `resume` reach the guests of a job on all of its nodes (on Slurm: tests/e2e/slurm)."""

from __future__ import annotations

import re
import time

import pytest

from .conftest import Site
from .trouble import NODES, PAIR, WAITS, finish, wait_in_guest

ALIVE_S = 80
"""Longer than an ssh waits for a guest that is silent."""


def states(site: Site) -> list[str]:
    """Return the states of all guests."""
    look = "virsh -c qemu:///system list --all | awk '/vcn/{print $3}'"
    return [state for node in NODES for state in site.root(node, look).split()]


def begin_suspended(site: Site, *options: str) -> str:
    """Return a job whose two guests stand still, as the server has suspended it."""
    job_id = site.submit(*PAIR, *options, stdin=WAITS)
    wait_in_guest(site, job_id)
    site.root("fe", f"qsig -s suspend {job_id}")
    site.wait_for("both guests to stand still", lambda: states(site) == ["paused"] * 2, seen=lambda: states(site))
    return job_id


@pytest.mark.full
def test_guests_of_a_suspended_job_stand_still_and_go_on(site: Site) -> None:
    job_id = begin_suspended(site)
    assert site.facts(job_id)["job_state"] == "S"
    site.root("fe", f"qsig -s resume {job_id}")
    site.wait_for("both guests to go on", lambda: states(site) == ["running"] * 2, seen=lambda: states(site))
    finish(site, job_id)


@pytest.mark.full
def test_stop_by_the_user_pauses_no_guest(site: Site) -> None:
    """Their own TSTP reaches the script alone, and so does a stop of the shell; the server says that the job runs."""
    job_id = site.submit(*PAIR, stdin=WAITS)
    wait_in_guest(site, job_id)
    for name in ("TSTP", "CONT"):
        assert site.on("fe", "qsig", "-s", name, job_id, user="alice").returncode == 0
    assert finish(site, job_id).exit_status == 0
    log = site.root(NODES[0], f"cat /var/lib/vtorque/records/{job_id}.1/vtorque.log")
    assert "paused, as" not in log


@pytest.mark.full
def test_job_deleted_while_suspended_leaves_no_paused_guest(site: Site) -> None:
    job_id = begin_suspended(site)
    site.root("fe", f"qdel {job_id}")
    site.wait_for("the guests to be gone", lambda: states(site) == [], seen=lambda: states(site))
    site.wait_state(job_id, "C")
    assert states(site) == []


@pytest.mark.full
def test_connection_of_the_shells_own_lives_through_a_long_suspension(site: Site) -> None:
    """Where the prologue begins none, as before a `vm_prologue` of the user's.  The time is no walltime, either."""
    site.write("/home/alice/pro.sh", "#!/bin/sh\n")
    began = time.monotonic()
    job_id = begin_suspended(site, "-vm", "vm_prologue=pro.sh")
    until = time.monotonic() + ALIVE_S
    site.wait_for("time to pass", lambda: time.monotonic() > until)
    site.root("fe", f"qsig -s resume {job_id}")
    site.wait_for("both guests to go on", lambda: states(site) == ["running"] * 2, seen=lambda: states(site))
    assert finish(site, job_id).exit_status == 0
    passed = time.monotonic() - began
    used = re.findall(r"resources_used\.walltime = (\d+):(\d+):(\d+)", site.root("fe", f"qstat -f {job_id}"))
    ((hours, minutes, seconds),) = used
    assert int(hours) * 3600 + int(minutes) * 60 + int(seconds) < passed - ALIVE_S + 5

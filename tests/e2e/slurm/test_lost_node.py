# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose slurmd dies under guests: Slurm takes it for lost, and what is left there goes when it is back."""

from __future__ import annotations

import pytest

from .conftest import SlurmSite
from .test_cancelled import guests
from .test_troubles import DAEMON, REVIVE, check_as_before

pytestmark = pytest.mark.full
SCRIPT = "#!/bin/sh\necho begun $SLURM_RESTART_COUNT\nuntil [ -e ~/go ]; do sleep 0.2; done\necho over\n"


def run_until_lost(site: SlurmSite, *options: str) -> str:
    """Return the number of a job of both nodes that runs in guests, and whose second node is lost for Slurm."""
    site.root("fe", "rm -f /home/alice/go")
    number = site.submit_vm(SCRIPT, "-N2", "-n4", *options)
    site.wait_for("the script to begin", lambda: "begun" in site.read(f"/home/alice/slurm-{number}.out"))
    site.root("cn2", f"kill -9 $(cat {DAEMON})")
    site.wait_for("the node to be lost", lambda: "down" in site.root("fe", "sinfo -hNn cn2 -p batch -o %T"))
    return number


def test_job_of_a_lost_node_runs_again_and_nothing_of_its_first_start_stays(site: SlurmSite) -> None:
    number = run_until_lost(site)
    site.wait_for_state(number, "PENDING")
    site.wait_for("the first node's guest to be gone", lambda: not guests(site, number, "cn1"))
    site.root("cn2", REVIVE)
    site.wait_for("the other one's", lambda: not guests(site, number), seen=lambda: guests(site, number))
    assert site.facts(number)["Restarts"] == "1"
    site.root("fe", f"scontrol update jobid={number} StartTime=now; touch /home/alice/go")
    ended = site.ended(number)
    assert (ended.state, (ended.out or "").splitlines()[-2:]) == ("COMPLETED", ["begun 1", "over"])
    check_as_before(site)


def test_job_that_slurm_may_not_queue_again_ends_with_its_node(site: SlurmSite) -> None:
    number = run_until_lost(site, "--no-requeue")
    assert site.ended(number).state == "NODE_FAIL"
    site.root("cn2", REVIVE)
    site.wait_for("the guests to be gone", lambda: not guests(site, number), seen=lambda: guests(site, number))
    check_as_before(site)

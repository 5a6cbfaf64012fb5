# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that its owner cancels, or an administrator queues again, while its guests boot."""

from __future__ import annotations

import pytest

from ..conftest import cases
from .conftest import SlurmSite

NODES = ("cn1", "cn2")
MOMENTS = {
    "allocated": "true",
    "asked": "ls -d /run/vtorque/jobs/{number}.lab.1",
    "made": "ls -d /var/lib/vtorque/guests/{number}.lab.1/*",
    "booting": "pgrep -f '[g]uest=vcn'",
}
"""What is seen on the first node of a job when a start has come so far."""


def begin(site: SlurmSite, moment: str) -> str:
    """A job of two nodes whose start has come so far; guests that boot stop there and will never be ready."""
    number = site.submit_vm("#!/bin/sh\necho ran\n", "-N2", "-n4", "--mem=2G")
    site.wait_for_state(number, "RUNNING")
    seen = MOMENTS[moment].format(number=number)
    site.wait_for(f"the moment {moment}", lambda: site.on("cn1", "sh", "-c", seen).returncode == 0)
    if moment == "booting":
        for node in NODES:
            site.root(node, "pkill -STOP -f '[g]uest=vcn' || true")
    return number


def guests(site: SlurmSite, number: str, *nodes: str) -> list[str]:
    """What there is of guests of a job on these nodes, or on all."""
    look = f"ls -d /var/lib/vtorque/guests/{number}.lab.*/* 2>/dev/null || true"
    return [line for node in nodes or NODES for line in site.root(node, look).split()]


@pytest.mark.parametrize("moment", cases(MOMENTS, "made"))
def test_cancel_while_guests_boot_takes_them_from_all_nodes_soon(site: SlurmSite, moment: str) -> None:
    number = begin(site, moment)
    assert site.on("fe", "scancel", number, user="alice").returncode == 0
    site.wait_for("the guests to be gone", lambda: not guests(site, number), seen=lambda: guests(site, number))
    ended = site.ended(number)
    assert ended.state == "CANCELLED"
    assert "ran" not in (ended.out or "")
    if moment == "booting":  # neither their boot, which has no end, nor the end of its time was waited for
        log = site.root("cn1", f"cat /var/lib/vtorque/records/{number}.lab.1/vtorque.log")
        assert f"given up: job {number}.lab was cancelled, or queued again: while its guests booted" in log
    assert [site.reason(node) for node in NODES] == ["", ""]


@pytest.mark.full
def test_other_node_of_a_job_gets_the_next_one_when_its_guests_are_gone(site: SlurmSite) -> None:
    """They would still have its memory and devices; qemu that is stopped ends when libvirt kills it, seconds later."""
    number = site.submit_vm("#!/bin/sh\necho begun\nsleep 600\n", "-N2", "-n4", "--mem=2G")
    output = f"/home/alice/slurm-{number}.out"
    site.wait_for("the script to begin", lambda: "begun" in site.read(output), seen=lambda: site.facts(number))
    following = site.sbatch("-w", "cn2", "--exclusive", script="#!/bin/sh\npgrep -fc '[g]uest=vcn'\ntrue\n")
    site.root("cn2", "pkill -STOP -f '[g]uest=vcn'")
    assert site.on("fe", "scancel", number, user="alice").returncode == 0
    assert site.ended(following).out == "0\n"

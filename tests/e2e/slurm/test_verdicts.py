# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a job whose node has a fault, and what its owner and the administrator read."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from .conftest import ENOUGH, OVER, SlurmSite, comment

REVIVE = "/usr/bin/env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive libvirt"
SCRIPT = "#!/bin/sh\necho ran\n"


@contextlib.contextmanager
def without_libvirt(site: SlurmSite, node: str) -> t.Iterator[None]:
    """A node that cannot make guests; at the end it can, and takes jobs."""
    site.root(node, "kill -9 $(cat /run/libvirtd.pid)")
    try:
        yield
    finally:
        site.root(node, REVIVE)
        if site.reason(node):
            site.root("fe", f"scontrol update nodename={node} state=resume")
        site.wait_for(f"{node} to take jobs", lambda: site.root("fe", f"sinfo -hNn {node} -p batch -o %T") == "idle\n")


@pytest.mark.full
def test_job_that_is_tried_again_tells_its_owner_meanwhile(site: SlurmSite) -> None:
    with without_libvirt(site, "cn1"):
        number = site.submit_vm(SCRIPT, "-w", "cn1")
        output = f"/home/alice/slurm-{number}.out"
        site.wait_for("the owner's words", lambda: "tried again" in site.read(output), seen=lambda: site.facts(number))
        facts, text, comment = site.facts(number), site.read(output), site.root("fe", f"scontrol show job {number}")
        owner = site.root("fe", f"stat -c '%U %a' {output}")
        site.root("fe", f"scancel {number}")
        assert site.reason("cn1").startswith("vtorque: libvirt: ")
    assert facts["JobState"] in ("PENDING", "COMPLETING")
    assert text.startswith("vtorque: this job did not run: ")
    assert "(try 1 of 3)" in text
    assert "AdminComment=vtorque: this job did not run: " in comment
    assert owner.split() == ["alice", "600"]


@pytest.mark.full
def test_job_that_slurm_may_not_queue_again_gets_the_refusal(site: SlurmSite) -> None:
    with without_libvirt(site, "cn1"):
        ended = site.ended(site.submit_vm(SCRIPT, "-w", "cn1", "--no-requeue"))
        assert site.reason("cn1").startswith("vtorque: libvirt: ")
    assert (ended.state, ended.code) == ("FAILED", "1:0")
    assert (ended.out or "").startswith("vtorque: this job did not run: ")
    assert "cannot be queued again" in (ended.out or "")
    assert "ran" not in (ended.out or "").splitlines()


@pytest.mark.full
def test_administrators_reason_is_not_replaced(site: SlurmSite) -> None:
    with without_libvirt(site, "cn1"):
        number = site.submit_vm(SCRIPT, "-w", "cn1")
        site.wait_for_state(number, "RUNNING")
        site.root("fe", "scontrol update nodename=cn1 state=drain reason='fan is odd'")
        site.wait_for("the start to end", lambda: site.facts(number)["JobState"] != "RUNNING")
        site.root("fe", f"scancel {number}")
        assert site.ended(number).state == "CANCELLED"
        assert site.reason("cn1").startswith("fan is odd")


@pytest.mark.full
def test_terminal_of_a_refused_interactive_job_is_told(site: SlurmSite) -> None:
    done = site.on("fe", "salloc", *ENOUGH, f"--comment={comment({'img': 'gone'})}", "true", user="alice")
    assert "vtorque: this job did not run: " in done.stderr
    assert "img=gone" in done.stderr
    site.wait_for("the end of the job", lambda: all(state in OVER for state in site.jobs().values()))


@pytest.mark.full
def test_member_of_an_array_is_queued_again_singly(site: SlurmSite) -> None:
    with without_libvirt(site, "cn1"):
        first = site.submit_vm(SCRIPT, "-w", "cn1", "--array=1-2")
        tried = f"scontrol show job {first}_1"
        site.wait_for("the owner's words", lambda: "AdminComment=vtorque: " in site.root("fe", tried))
        site.wait_for_state(f"{first}_1", "PENDING")
        assert site.facts(f"{first}_1")["Restarts"] == "1"
        other = site.root("fe", f"scontrol show job {first}_2")
        site.root("fe", f"scancel {first}")
    assert "Restarts=0" in other
    assert "AdminComment" not in other

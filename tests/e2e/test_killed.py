# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kill -9 of each program of ours, and of the MOM, while guests come or go; jobs that are deleted meanwhile."""

from __future__ import annotations

import pytest

from .conftest import Site
from .test_phases import PHASES, at_gates, open_gates
from .trouble import (
    HOOK,
    NODES,
    PAIR,
    PLAYBOOK,
    SUPERIOR,
    WAITS,
    check_nobody_blamed,
    delete_booting,
    end_killed,
    guest_on,
    kill,
    never_ready,
    revive,
    sweep,
    sweep_all,
    wait_in_guest,
)

TASK = "pgrep -n -f '[c]li.run_playbook'"
ASKED = "pgrep -o -f '[c]li.vtorque_node'"
MAKER = "pgrep -n -f '[c]li.vtorque_node'"
WORKER = "read pid rest </run/vtorque/locks/$(ls -t /run/vtorque/locks | grep -m 1 '^[0-9]') && echo $pid"
"""Lines of shell that find programs on a node: Ansible's process for the task, and of `vtorque-node` the one that was
asked, the worker that stays, and its child that makes the guests."""


def booting(site: Site, job_id: str) -> str:
    """Wait until a guest of the job boots; the node."""
    node = site.runs(job_id)
    site.wait_for(f"a guest on {node}", lambda: guest_on(site, node))
    return node


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize(
    "victims", [(PLAYBOOK, ASKED), (WORKER, HOOK), (TASK, MAKER)],
    ids=["playbook and vtorque-node", "worker and hook", "task and maker"],
)  # fmt: skip
def test_program_killed_while_a_guest_boots(site: Site, victims: tuple[str, str]) -> None:
    """The job is held, or without a verdict ends without having run; no node is blamed and nothing stays.

    Slurm itself takes a node out of use whose Prolog was killed, and holds the job.
    """
    with never_ready(site) as request:
        jobs = [site.submit(*site.batch.at(node), "-vm", request, stdin="echo RAN\n") for node in NODES]
        for job_id, victim in zip(jobs, victims, strict=True):
            kill(site, booting(site, job_id), victim)
        for job_id, victim in zip(jobs, victims, strict=True):
            end_killed(site, job_id, victim)
    check_nobody_blamed(site)
    # what Ansible keeps while it plays is nobody's when it was killed
    assert [sweep(site, node).returncode for node in NODES] == [0, 0]
    assert site.left_on_nodes() == []


@pytest.mark.both
@pytest.mark.full
def test_worker_killed_under_a_job(site: Site) -> None:
    """Nobody watches the guest any more; the job ends well all the same, and the epilogue takes the guest."""
    job_id = site.submit(stdin=WAITS)
    node = wait_in_guest(site, job_id)
    kill(site, node, WORKER)
    assert site.on("fe", *site.batch.signal, "URG", job_id, user="alice").returncode == 0
    ended = site.end(job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")


@pytest.mark.both
@pytest.mark.full
def test_job_deleted_while_its_guest_boots(site: Site) -> None:
    """A cancel that waits ends with the prologue, here with its guest, and then there is nothing of the job."""
    with never_ready(site, node_fault_retries=3) as request:
        job_id = site.submit("-vm", request, stdin="echo RAN\n")
        node = booting(site, job_id)
        delete_booting(site, job_id, node)
    assert "RAN" not in site.end(job_id).out


@pytest.mark.full
@pytest.mark.parametrize("node", NODES, ids=["mother superior", "sister"])
def test_mom_killed_while_guests_boot(site: Site, node: str) -> None:
    """The hook goes on without her and undoes what it began; the job waits for its owner, and no node is blamed."""
    with never_ready(site, timeout=45) as request:
        job_id = site.submit(*PAIR, "-vm", request, stdin="echo RAN\n")
        assert site.runs(job_id) == SUPERIOR
        site.wait_for("a guest on each node", lambda: all(guest_on(site, node) for node in NODES))
        assert site.on("fe", "qhold", job_id, user="alice").returncode == 0
        site.root(node, "kill -9 $(cat /run/lab/mom.pid)")
        site.wait_for("the server to miss her", lambda: "down" in site.nodes()[node].states)
        site.root(node, revive("batch"))
        facts = site.wait_state(job_id, "HC")
        sweep_all(site)
    assert facts["job_state"] == "H"
    assert site.on("fe", "qdel", job_id, user="alice").returncode == 0
    assert all(not one.note for one in site.nodes().values())


@pytest.mark.full
def test_mom_killed_in_the_epilogue(site: Site) -> None:
    """The hook goes on without her, or the next one does its work: nothing is left when the job is over."""
    with at_gates(site, {SUPERIOR: PHASES["the site's epilogue in the guest"]}, pair=True) as waiting:
        (one,) = waiting
        site.root(SUPERIOR, "kill -9 $(cat /run/lab/mom.pid)")
        site.root(SUPERIOR, revive("batch -p"))
        open_gates(site, waiting)
        facts = site.wait_state(one.job_id, "CHQ")
        sweep_all(site)
        assert facts["job_state"] == "C"

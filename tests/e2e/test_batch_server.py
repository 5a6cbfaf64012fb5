# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A batch server that hangs or is gone: bare-metal jobs notice nothing, VM jobs are told, and nothing is left."""

from __future__ import annotations

import pytest

from .conftest import Site
from .trouble import NODES, PAIR, WAITS, check_refused, gates, guest_on, left_on, open_gate, revive, wait_in_guest

HANGS = ("kill -STOP $(cat /run/lab/server.pid)", "kill -CONT $(cat /run/lab/server.pid)")
GONE = ("kill $(cat /run/lab/server.pid); rm /run/lab-torque/cn1.sock", revive("batch"))


def ended_on(site: Site, node: str) -> list[str]:
    """The jobs whose epilogue has come to its end since the gate was built."""
    return site.root(node, "cat /run/lab/over 2>/dev/null || true").split()


@pytest.mark.full
@pytest.mark.parametrize(
    ("breaks", "mends"), [pytest.param(*HANGS, marks=pytest.mark.full, id="hangs"), pytest.param(*GONE, id="gone")]
)
def test_bare_job_passes_all_hooks_without_the_server(site: Site, breaks: str, mends: str) -> None:
    """Its prologue, the job and its epilogue run while nobody answers."""
    with gates(site, "cn1"):
        done = site.qsub("-l", "nodes=cn1", stdin="echo bare\n")
        job_id = done.stdout.strip()
        assert done.returncode == 0, done.stderr
        site.runs(job_id)
        site.root("fe", breaks)
        try:
            open_gate(site, "cn1")
            site.wait_for("the epilogue to end", lambda: ended_on(site, "cn1") == [job_id])
        finally:
            site.root("fe", mends)
        ended = site.end(job_id)
    assert (ended.exit_status, ended.out, ended.err) == (0, "bare\n", "")


@pytest.mark.full
@pytest.mark.parametrize(("breaks", "mends"), [pytest.param(*HANGS, id="hangs"), pytest.param(*GONE, id="gone")])
def test_guests_go_when_their_job_ends_without_the_server(site: Site, breaks: str, mends: str) -> None:
    """On both nodes, while nobody can say of it that it is over; then the server is told of its end."""
    job_id = site.submit(*PAIR, stdin=WAITS)
    superior = wait_in_guest(site, job_id)
    site.root("fe", breaks)
    try:
        # nobody can have the server send it
        site.root(superior, "pkill -URG -u alice -f '[c]li.vtorque_shell'")
        site.wait_for("the guests to go", lambda: not any(guest_on(site, node) for node in NODES))
        site.wait_for("nothing to be left", lambda: not left_on(site, *NODES), seen=lambda: left_on(site, *NODES))
    finally:
        site.root("fe", mends)
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out) == (0, "up\non\n")


@pytest.mark.full
def test_vm_job_is_told_that_the_server_did_not_answer(site: Site) -> None:
    """It hangs for one node, and is gone for the other; neither job runs on bare metal, neither node is blamed."""
    with gates(site, "cn1", "cn2"):
        jobs = {node: site.submit("-l", f"nodes={node}:ppn=2", stdin="echo RAN\n") for node in ("cn1", "cn2")}
        for job_id in jobs.values():
            site.runs(job_id)
        site.root("fe", f"cd /run/lab-torque && mv cn2.sock away && {HANGS[0]}")
        try:
            for node in jobs:
                open_gate(site, node)
            site.wait_for(
                "both epilogues", lambda: [ended_on(site, node) for node in jobs] == [[j] for j in jobs.values()]
            )
        finally:
            site.root("fe", f"cd /run/lab-torque && mv away cn2.sock && {HANGS[1]}")
        for job_id in jobs.values():
            check_refused(site.end(job_id), "batch server")

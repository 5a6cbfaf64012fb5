# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qalter` by the owner at every time at which Torque lets him: what he changes harms his own job at most.

What the batch system of the lab lets be changed, and when, is what was recorded of Torque or read in it.
Seen to fail: with a reader that takes the first of two requests.
"""

from __future__ import annotations

import json

import pytest

from ..conftest import Ended, Site
from ..trouble import (
    HOOK,
    PAIR,
    WAITS,
    WELL,
    check_refused,
    encoded,
    finish,
    forge,
    gates,
    guest_on,
    open_gate,
    request,
    wait_in_guest,
)
from .conftest import Attack, check_untouched, guest_of

GOOD = request(img="tiny")
REFUSED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("-W", "x=vtorque:!!!"): ("request",),
    ("-W", f"x={GOOD};{GOOD}"): ("2 requests",),
    ("-W", "x=GRES:none"): ("request",),
    ("-W", f"x={encoded({'v': 99})}"): ("version",),
    ("-W", f"x={request(img='../../etc/passwd')}"): ("img=../../etc/passwd",),
    ("-W", f"x={request(img='tiny', vcpus='7')}"): ("ppn=1",),
    ("-l", "other=mine"): ("nothing was run",),
    ("-v", "BEOWULF_JOB_MAP=evil.example:10.0.0.1"): ("node file",),
}
"""What the owner makes of his held job, and what he then reads in its error file."""


def alter(site: Site, job_id: str, *arguments: str) -> int:
    """qalter by the owner; its status."""
    return site.on("fe", "qalter", *arguments, job_id, user="alice").returncode


def check_ran_in_guest(ended: Ended) -> None:
    """It ran, in a guest of its node."""
    assert (ended.exit_status, ended.out.splitlines()[0]) == (0, "RAN")
    assert ended.out.splitlines()[1].startswith(f"v{ended.node}-")


def check_small(site: Site, ended: Ended) -> None:
    """Its guest had the memory that the changed request asks for."""
    assert json.loads(site.stored(ended.node, ended.job_id))["guests"][0]["ram_mib"] == 256


@pytest.mark.full
def test_changed_while_it_is_held(site: Site, attack: Attack) -> None:
    """Root reads the job as it is at its start: another request is decided like the first, none of them runs bare."""
    jobs = {arguments: forge(site, GOOD, "-h") for arguments in REFUSED}
    for arguments, job_id in jobs.items():
        attack(f"qalter {' '.join(arguments)} of a held job")
        assert alter(site, job_id, *arguments) == 0
    assert site.on("fe", "qrls", *jobs.values(), user="alice").returncode == 0
    for arguments, job_id in jobs.items():
        check_refused(site.end(job_id), *REFUSED[arguments])
    assert set(site.nodes().values()) == {WELL}


@pytest.mark.full
def test_changed_while_it_waits_for_nodes(site: Site, attack: Attack) -> None:
    """Nobody holds it: it is read when nodes are free, as it is then, and root never saw what it was before."""
    with guest_of(site, *PAIR) as (busy, _node):
        jobs = {arguments: forge(site, GOOD) for arguments in REFUSED}
        other = forge(site, GOOD, "-l", "nodes=1:ppn=2")
        for arguments, job_id in jobs.items():
            attack(f"qalter {' '.join(arguments)} of a job that waits for nodes")
            assert alter(site, job_id, *arguments) == 0
        attack("qalter of a job that waits for nodes to other memory, by a request as vsub would make it")
        assert alter(site, other, "-W", f"x={request(img='tiny', ram='256M')}") == 0
        assert {site.facts(job_id)["job_state"] for job_id in (*jobs.values(), other)} == {"Q"}
        check_untouched(finish(site, busy))
    for arguments, job_id in jobs.items():
        check_refused(site.end(job_id), *REFUSED[arguments])
    ended = site.end(other)
    check_ran_in_guest(ended)
    check_small(site, ended)
    assert set(site.nodes().values()) == {WELL}


@pytest.mark.full
def test_shell_and_variables_changed_while_it_is_held(site: Site, attack: Attack) -> None:
    """Another shell is a job on the node, as anybody may have; its guest is made, and taken away, all the same."""
    shell, variables, both = (forge(site, GOOD, "-h", "-l", "nodes=1:ppn=2") for _job in range(3))
    attack("qalter -S of a held job")
    assert alter(site, shell, "-S", "/bin/sh") == 0
    attack("qalter -v of a held job")
    assert alter(site, variables, "-v", "PBS_JOBID=0.fe,PBS_NODEFILE=/etc/shadow,LD_PRELOAD=/home/alice/x.so") == 0
    attack("qalter of a held job to another image, by a request as vsub would make it")
    assert alter(site, both, "-W", f"x={request(img='tiny', ram='256M')}") == 0
    assert site.on("fe", "qrls", shell, variables, both, user="alice").returncode == 0
    on_node, in_guest, in_other = (site.end(job_id) for job_id in (shell, variables, both))
    assert (on_node.exit_status, on_node.out) == (0, f"RAN\n{on_node.node}\n")
    for ended in (in_guest, in_other):
        check_ran_in_guest(ended)
    check_small(site, in_other)
    assert set(site.nodes().values()) == {WELL}


@pytest.mark.full
def test_changed_in_the_prologue(site: Site, attack: Attack) -> None:
    """From before the first hook until the script runs, over and over; the job is what it was when it was started."""
    with gates(site, "cn1"):
        job_id = site.submit("-l", "nodes=cn1:ppn=2", stdin=f"hostname\n{WAITS}")
        site.wait_state(job_id, "R")
        statuses: dict[str, set[int]] = {"x": set(), "S": set(), "v": set()}

        def again() -> None:
            attack("qalter -W x=, -S and -v of a job in its prologue")
            statuses["x"].add(alter(site, job_id, "-W", "x=vtorque:!!!"))
            statuses["S"].add(alter(site, job_id, "-S", "/bin/sh"))
            statuses["v"].add(alter(site, job_id, "-v", "LD_PRELOAD=/home/alice/x.so"))

        again()
        open_gate(site, "cn1")
        site.wait_for("the hook", lambda: site.on("cn1", "sh", "-c", HOOK).returncode == 0)
        again()

        def guest_meanwhile() -> str:
            again()
            return guest_on(site, "cn1")

        site.wait_for("the guest", guest_meanwhile)
        again()
        wait_in_guest(site, job_id)
        ended = finish(site, job_id)
    assert 0 not in statuses["x"]
    assert statuses["S"] == statuses["v"] == {0}
    assert (ended.exit_status, ended.err) == (0, "")
    assert ended.out.splitlines()[0].startswith("vcn1-")
    assert set(site.nodes().values()) == {WELL}


@pytest.mark.full
def test_changed_while_it_runs_and_between_two_starts(site: Site, attack: Attack) -> None:
    """A start that is over is taken away by its own files; the next one is what the job says then."""
    with guest_of(site, "-l", "nodes=cn1:ppn=2,mem=1gb", "-vm", "ram=192M") as (job_id, node):
        attack("qalter -W x= of a running job")
        assert alter(site, job_id, "-W", f"x={request(img='tiny')}") != 0
        attack("qalter -S of a running job")
        assert alter(site, job_id, "-S", "/bin/sh") == 0
        attack("qalter -v of a running job")
        assert alter(site, job_id, "-v", "LD_PRELOAD=/home/alice/x.so,PBS_JOBID=1.fe") == 0
        assert alter(site, job_id, "-S", "/opt/vtorque/bin/vtorque-shell") == 0
        attack("qalter -W x= between two starts")
        assert site.on("fe", "qhold", "-h", "u", job_id, user="alice").returncode == 0
        site.root("fe", f"qrerun {job_id}")
        assert site.wait_state(job_id, "HC")["job_state"] == "H"
        assert alter(site, job_id, "-W", f"x={request(img='tiny', ram='256M')}") == 0
        assert site.on("fe", "qrls", job_id, user="alice").returncode == 0
        site.wait_state(job_id, "R")
        wait_in_guest(site, job_id)
        assert guest_on(site, node).count("\n") == 0
        ended = finish(site, job_id)
    assert (ended.exit_status, ended.out) == (0, "up\non\n")
    assert all("LD_PRELOAD" in line for line in ended.err.splitlines()), ended.err
    memory = [json.loads(site.stored(node, job_id, start))["guests"][0]["ram_mib"] for start in (1, 2)]
    assert memory == [192, 256]

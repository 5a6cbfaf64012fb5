# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of Slurm are saved while they run, and a later start of theirs begins from there, on other nodes."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from ..test_checkpoint import SETTINGS, STORE, check_lines
from ..trouble import NODES, changed, home_server, sweep
from .conftest import Ended, SlurmSite
from .test_suspended import states

VM = {"checkpoint": "on"}
SCRIPT = """#!/bin/bash
echo up
i=0
until [ -e ~/go ]; do i=$((i + 1)); echo line $i; echo line $i >>~/notes; sleep 0.5; done
echo over
"""
"""A file that comes by NFS is not taken back: what is done twice stands there twice."""
BETWEEN = """#!/bin/bash
echo up
ssh $(tail -n 1 $VTORQUE_HOSTS) 'i=0; until [ -e ~/go ]; do i=$((i + 1)); echo line $i; sleep 0.2; done'
echo over $?
"""
"""All lines but the first and the last come over a connection between two guests."""


@contextlib.contextmanager
def storing(site: SlurmSite) -> t.Iterator[None]:
    site.root("fe", f"mkdir -m 700 {STORE}; rm -f /home/alice/go /home/alice/notes")
    try:
        with home_server(site), changed(site, ("fe", *NODES), **SETTINGS):
            yield
    finally:
        site.root("fe", f"rm -rf {STORE}")


def begin(site: SlurmSite, script: str, *options: str, vm: t.Mapping[str, str] | None = None) -> str:
    """Return the number of a job that has written its first line."""
    number = site.submit_vm(script, *options, vm=VM if vm is None else vm)
    site.wait_for("the first line", lambda: "up" in output(site, number), seen=lambda: site.facts(number))
    return number


def output(site: SlurmSite, number: str) -> str:
    """Return what a job has written."""
    return site.read(f"/home/alice/slurm-{number}.out")


def save(site: SlurmSite, number: str) -> None:
    """Have the guests of a job saved, as its owner."""
    asked = site.on("fe", "vmgr", "job", "checkpoint", number, user="alice")
    assert asked.returncode == 0, asked.stderr
    place = f"{STORE}/{number}.lab"
    site.wait_for("the checkpoint", lambda: "1" in site.root("fe", f"ls {place} 2>/dev/null; :").split())


def drain(site: SlurmSite, node: str) -> None:
    site.root("fe", f"scontrol update nodename={node} state=drain reason=test")


def resume(site: SlurmSite, node: str) -> None:
    site.root("fe", f"scontrol update nodename={node} state=resume")


def end_well(site: SlurmSite, number: str, last: str = "over") -> Ended:
    """Let a job end, which must have each line once."""
    site.root("fe", "touch /home/alice/go")
    ended = site.ended(number)
    assert (ended.state, ended.code) == ("COMPLETED", "0:0"), ended.out
    assert ended.out is not None
    check_lines(ended.out)
    assert ended.out.splitlines()[-1] == last
    return ended


@pytest.mark.full
def test_job_that_its_owner_suspends_leaves_its_node_and_goes_on_elsewhere_when_it_is_released(site: SlurmSite) -> None:
    with storing(site):
        number = begin(site, SCRIPT, "-w", "cn1")
        drain(site, "cn2")
        asked = site.on("fe", "vmgr", "job", "suspend", number, user="alice")
        assert asked.returncode == 0, asked.stderr
        assert f"scontrol release {number}" in asked.stdout
        site.wait_for_state(number, "PENDING", "REQUEUE_HOLD")
        site.wait_for("the guest to be gone", lambda: states(site) == [], seen=lambda: states(site))
        (row,) = json.loads(site.root("fe", "vmgr suspended list --json"))
        assert (row["job_id"], row["user"], row["node"], row["guests"]) == (f"{number}.lab", "alice", "", 1)
        notes = site.root("fe", "cat /home/alice/notes")
        resume(site, "cn2")
        drain(site, "cn1")
        site.root("fe", f"scontrol update jobid={number} reqnodelist= StartTime=now")
        released = site.on("fe", "scontrol", "release", number, user="alice")
        assert released.returncode == 0, released.stderr
        goes_on = "the job to go on"
        site.wait_for(goes_on, lambda: len(site.root("fe", "cat /home/alice/notes")) > len(notes))
        assert site.root("fe", "vmgr suspended list --json").strip() == "[]"
        ended = end_well(site, number)
        resume(site, "cn1")
        assert ended.nodes == "cn2"
        assert ended.out is not None
        assert site.root("fe", "cat /home/alice/notes").splitlines() == ended.out.splitlines()[1:-1]


@pytest.mark.full
def test_job_that_cannot_be_saved_is_neither_suspended_nor_ended_by_the_wish(site: SlurmSite) -> None:
    with storing(site):
        number = begin(site, SCRIPT, vm={})
        for verb in ("suspend", "checkpoint"):
            asked = site.on("fe", "vmgr", "job", verb, number, user="alice")
            assert asked.returncode != 0
            assert "was submitted without checkpoint=on" in asked.stderr
        end_well(site, number)


@pytest.mark.full
def test_job_of_a_node_that_loses_its_power_begins_again_on_the_other_from_its_checkpoint(site: SlurmSite) -> None:
    """Slurm queues it again by itself."""
    with storing(site):
        number = begin(site, SCRIPT, "-w", "cn1")
        save(site, number)
        assert site.run("lose", "cn1").returncode == 0
        try:
            site.wait_for_state(number, "PENDING")
            site.root("fe", f"scontrol update jobid={number} reqnodelist= StartTime=now")
            printed = "the job to go on"
            site.wait_for(printed, lambda: states_on(site, "cn2") == ["running"] and "line" in output(site, number))
        finally:
            back = site.run("back", "cn1")
        assert back.returncode == 0, back.stderr
        assert sweep(site, "cn1", "--boot").returncode == 0
        assert end_well(site, number).nodes == "cn2"

        def in_use() -> bool:
            if site.reason("cn1"):
                resume(site, "cn1")
            return not site.reason("cn1")

        site.wait_for("the node to take jobs", in_use)


def states_on(site: SlurmSite, node: str) -> list[str]:
    """Return the states of the guests of a node."""
    return site.root(node, "virsh -c qemu:///system list --all | awk '/vcn/{print $3}'").split()


@pytest.mark.full
def test_job_of_two_nodes_that_is_queued_again_begins_from_its_checkpoint(site: SlurmSite) -> None:
    with storing(site):
        number = begin(site, BETWEEN, "-N2", "-n4")
        save(site, number)
        site.root("fe", f"scontrol requeuehold {number}")
        site.wait_for("the guests to be gone", lambda: states(site) == [], seen=lambda: states(site))
        site.root("fe", f"scontrol update jobid={number} StartTime=now; scontrol release {number}")
        site.wait_for("both guests to be back", lambda: states(site) == ["running"] * 2, seen=lambda: states(site))
        end_well(site, number, "over 0")

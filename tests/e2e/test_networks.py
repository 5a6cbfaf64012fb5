# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with cards on further networks: reached there by name, and by nobody else; all of it goes with the job."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import Site
from .test_confined import SHARED
from .test_killed import MAKER, WORKER, booting
from .test_saved import saving, suspend
from .trouble import (
    NODES,
    PAIR,
    WAITS,
    changed,
    check_nobody_blamed,
    drop,
    end_killed,
    finish,
    kill,
    left_on,
    never_ready,
    sweep,
    sweep_all,
    wait_in_guest,
)

TALK = """
set -eu
echo "networks $VTORQUE_NETWORKS"
for name in $(sort -u "$PBS_NODEFILE"); do
    for network in CHOSEN; do
        ssh "$name-$network" 'echo "$(hostname) heard $(echo $SSH_CONNECTION | sed s/::ffff://g)"' </dev/null
    done
done
"""
"""A guest logs in at each guest of its job, over each network."""


@pytest.mark.full
def test_guests_reach_each_other_on_the_second_network_by_name(site: Site) -> None:
    job_id = site.submit("-vm", "network=fast", "-l", "nodes=2:ppn=1", stdin=TALK.replace("CHOSEN", "fast"))
    ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    first, *heard = [re.sub(r" [0-9]+ ([0-9.]+) 22$", r" \1", line) for line in ended.out.splitlines()]
    own = first.removeprefix("networks fast=")
    assert own in ("10.78.1.1", "10.78.2.1"), ended.out
    assert heard == [f"vcn1-1 heard {own} 10.78.1.1", f"vcn2-1 heard {own} 10.78.2.1"]
    printed = json.loads(site.on("fe", "vmgr", "job", "show", "--json", job_id, user="alice").stdout)
    assert {guest["networks"] for guest in printed["guests"]} == {"fast=10.78.1.1", "fast=10.78.2.1"}
    assert left_on(site, "cn1", "cn2") == []


def private_devices(site: Site, node: str) -> list[str]:
    """The devices of jobs' own networks that a node has."""
    return site.root(node, "ls /sys/class/net | grep '^vt[px]' || true").split()


def test_job_has_a_network_of_its_own_over_its_nodes_for_as_long_as_it_lives(site: Site) -> None:
    """By the addresses of ranks, within the packets of the nodes, of which none has an address there."""
    job_id = site.submit("-vm", "network=mine", "-l", "nodes=2:ppn=1", stdin=TALK.replace("CHOSEN", "mine") + WAITS)
    wait_in_guest(site, job_id)
    for node in NODES:
        bridge, tunnel = private_devices(site, node)
        assert bridge[3:] == tunnel[3:]
        assert site.root(node, f"ls /sys/class/net/{bridge}/brif").split() == ["vtq1n1", tunnel]
        assert site.root(node, f"ip -brief address show dev {bridge}").split()[2:] == []
    ended = finish(site, job_id)
    assert ended.exit_status == 0, ended.err
    first, *heard = [re.sub(r" [0-9]+ ([0-9.]+) 22$", r" \1", line) for line in ended.out.splitlines()]
    assert first == "networks mine=172.31.0.1"
    found = sorted(line.partition(" heard ")[2] for line in heard if " heard " in line)
    assert found == ["172.31.0.1 172.31.0.1", "172.31.0.1 172.31.0.2"]
    assert left_on(site, *NODES) == []


@pytest.mark.full
def test_network_of_a_job_goes_after_programs_were_killed(site: Site) -> None:
    """That of a start whose maker and worker end by kill -9, on either node: by the sweep at the latest."""
    with never_ready(site) as request:
        for node, victim in zip(NODES, (MAKER, WORKER), strict=True):
            job_id = site.submit(*site.batch.at(node), "-vm", f"{request},network=mine", stdin="echo RAN\n")
            booting(site, job_id)
            assert private_devices(site, node)
            kill(site, node, victim)
            end_killed(site, job_id, victim)
    check_nobody_blamed(site)
    sweep_all(site)
    assert [private_devices(site, node) for node in NODES] == [[], []]


@pytest.mark.full
def test_two_jobs_have_networks_of_the_same_name_and_nothing_in_common(site: Site) -> None:
    """Each on both nodes, with the same addresses: each reaches its own guests, and the bridges are others."""
    with changed(site, ("fe", *NODES), **SHARED):
        script = TALK.replace("CHOSEN", "mine") + WAITS
        jobs = [site.submit("-vm", "network=mine", "-l", "nodes=2:ppn=1", stdin=script) for _each in range(2)]
        for job_id in jobs:
            wait_in_guest(site, job_id)
        for node in NODES:
            devices = private_devices(site, node)
            assert len(devices) == len({name[3:] for name in devices}) * 2 == 4
        for job_id in jobs:
            ended = finish(site, job_id)
            assert ended.exit_status == 0, ended.err
            names = [line.split()[0] for line in ended.out.splitlines() if " heard " in line]
            printed = json.loads(site.on("fe", "vmgr", "job", "show", "--json", job_id, user="alice").stdout)
            assert sorted(names) == sorted(guest["name"] for guest in printed["guests"])
    assert left_on(site, *NODES) == []


@pytest.mark.full
def test_job_that_was_saved_to_the_disk_has_its_network_again(site: Site) -> None:
    """Its cards are connected as before, and its guests reach each other."""
    script = "echo up\nuntil [ -e ~/go ]; do sleep 0.5; done\n" + TALK.replace("CHOSEN", "mine")
    with saving(site):
        site.root("fe", "rm -f /home/alice/go")
        job_id = site.submit("-vm", "network=mine", *PAIR, stdin=script)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        assert [len(private_devices(site, node)) for node in NODES] == [2, 2]
        site.root("fe", f"touch /home/alice/go; qsig -s resume {job_id}")
        ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    assert ended.out.count(" heard 172.31.0.1 ") == 2, ended.out
    assert left_on(site, *NODES) == []


@pytest.mark.full
def test_network_of_a_job_goes_after_its_node_has_lost_its_power(site: Site) -> None:
    """The other node's by the sweep; nothing of it outlives the kernel of the lost one."""
    job_id = site.submit("-vm", "network=mine", *PAIR, stdin="echo up; sleep 600\n")
    superior = wait_in_guest(site, job_id)
    (sister,) = [node for node in NODES if node != superior]
    site.root("fe", f"qhold -h u {job_id}")
    assert site.run("lose", superior).returncode == 0
    site.wait_for("the server to miss it", lambda: "down" in site.nodes()[superior].states)
    assert len(private_devices(site, sister)) == 2
    assert site.run("back", superior).returncode == 0
    assert sweep(site, superior, "--boot").returncode == 0
    drop(site, job_id)
    sweep_all(site)
    assert [private_devices(site, node) for node in NODES] == [[], []]

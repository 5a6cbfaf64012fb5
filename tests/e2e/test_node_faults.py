# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that a node proves of itself: it goes offline with our note, and its job runs elsewhere or is held.

Seen to fail: with a verdict that blames nobody.
"""

from __future__ import annotations

import dataclasses

import pytest

from .conftest import BOOTED, Site, cases
from .terminal import Terminal
from .trouble import (
    CONFIG,
    HIDE_KVM,
    SHOW_KVM,
    WELL,
    changed,
    check_held,
    check_message,
    check_offline,
    check_queued_again,
    check_well,
    drop,
    gates,
    image,
    open_gate,
    revive,
    sweep,
    unmount,
)

START_WAYS = cases(BOOTED, "fast")


@pytest.mark.both
def test_job_runs_on_another_node_and_the_note_is_taken_back(site: Site) -> None:
    """The user gets his job's output and nothing else; our note goes when its cause is mended, not before."""
    with changed(site, ("cn1",), bridge="br99"):
        job_id = site.submit(stdin="hostname\n")
        ended = site.end(job_id)
        assert (ended.node, ended.exit_status, ended.err) == ("cn2", 0, "")
        assert ended.out.startswith("vcn2-")
        assert site.facts(job_id)["start_count"] == "2"
        nodes = site.nodes()
        check_offline(nodes["cn1"], "bridge", job_id, "br99")
        assert nodes["cn2"] == WELL
        sweep(site, "cn1")
        assert site.nodes() == nodes
    done = sweep(site, "cn1")
    assert (done.returncode, done.stderr) == (0, "")
    check_well(site, "cn1")


CHECK = "/usr/local/sbin/check-node"


@pytest.mark.both
def test_node_whose_health_program_reports_is_out_of_use_until_it_is_well_again(site: Site) -> None:
    """Nobody's job has to fail for it; a program that hangs or fails in between changes nothing."""

    def report(text: str, status: int = 0) -> None:
        script = f"#!/bin/sh\necho '{text}'\nexit {status}\n"
        assert site.on("cn1", "sh", "-c", f"cat >{CHECK}; chmod 755 {CHECK}", stdin=script).returncode == 0

    others = site.nodes()["cn2"]
    try:
        with changed(site, ("cn1",), health_sources=[f"program nhc {CHECK}"]):
            report("all is well")
            assert sweep(site, "cn1").returncode == 0
            report("ERROR: nhc: 12 $(reboot) memory errors", 1)
            done = sweep(site, "cn1")
            note = "vtorque: degrading: nhc: ERROR: nhc: 12 (reboot) memory errors"
            assert (done.returncode, done.stderr) == (1, "")
            assert f"health   cn1: set offline: {note}" in done.stdout
            node = site.nodes()["cn1"]
            assert ("offline" in node.states, node.note) == (True, note)
            assert site.on("cn1", "vmgr", "node", "health").returncode == 1
            report("", 3)
            sweep(site, "cn1")
            assert site.nodes() == {"cn1": node, "cn2": others}
            report("all is well")
            assert [sweep(site, "cn1").returncode for _look in range(3)] == [1, 1, 0]
            check_well(site, "cn1")
    finally:
        site.root("cn1", f"rm -f {CHECK} /var/lib/vtorque/health.json")
    assert site.left() == []


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that is wrong with a node.

    Attributes:
        cause: as the note names it.
        words: what the user and the administrator are told.
        breaks: the line of shell that makes it so.
        mends: takes it back.
        request: the keys of a request that meets it.
    """

    cause: str
    text: str
    breaks: str
    mends: str
    request: str = "img=tiny"


STATE = "/var/lib/vtorque"
BRIDGE_AWAY = "ip link set br0 down && ip link set br0 name br0.away"
# an interface that goes down loses its routes
BRIDGE_BACK = (
    "[ ! -e /sys/class/net/br0.away ] || { ip link set br0.away name br0 && ip link set br0 up && "
    "ip route replace default via 10.77.0.1; }"
)
FAULTS = {
    "no libvirt": Fault("libvirt", "libvirt", "kill -9 $(cat /run/libvirtd.pid)", revive("libvirt")),
    "no virtualisation": Fault(
        "virtualisation", "virtualisation",
        f"sed -i 's/^hypervisor_default:.*/hypervisor_default: kvm/' {CONFIG}; {HIDE_KVM}",
        f"sed -i 's/^hypervisor_default:.*/hypervisor_default: qemu/' {CONFIG}; {SHOW_KVM}",
        "hypervisor=kvm",
    ),
    "no room": Fault(
        "disk", STATE,
        f"mount -t tmpfs -o size=100m,mode=711 trouble {STATE} && head -c 60m /dev/zero >{STATE}/used",
        unmount(STATE),
    ),
    "full disk": Fault(
        "disk", STATE,
        f"mount -t tmpfs -o size=1m,mode=711 trouble {STATE}; head -c 2m /dev/zero >{STATE}/full || true",
        unmount(STATE),
    ),
    "no bridge": Fault("bridge", "bridge br0", BRIDGE_AWAY, BRIDGE_BACK),
    "no qemu-img": Fault(
        "programs", "qemu-img", "mount --bind /dev/null /usr/bin/qemu-img", "umount /usr/bin/qemu-img"
    ),
}  # fmt: skip
OTHER_BRIDGE = Fault("bridge", "bridge br99", f"echo 'bridge: br99' >>{CONFIG}", f"sed -i '/^bridge: br99$/d' {CONFIG}")
"""Of a node whose batch system is lost without the bridge."""


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("name", FAULTS)
def test_node_with_a_fault_takes_no_more_jobs(site: Site, name: str) -> None:
    """The job that only this node may run waits for it; its error file says what happened."""
    fault = FAULTS[name]
    if site.batch.over_bridge and fault.breaks == BRIDGE_AWAY:
        fault = OTHER_BRIDGE
    site.root("cn1", fault.breaks)
    try:
        job_id = site.submit(*site.batch.on_first, "-vm", fault.request, stdin="echo RAN\n")
        facts = check_queued_again(site, job_id)
        check_offline(site.nodes()["cn1"], fault.cause, job_id, fault.text)
        check_message(site.reported(facts), fault.text, "cn1 is set offline")
        drop(site, job_id)
    finally:
        site.root("cn1", fault.mends)
    assert sweep(site, "cn1").returncode == 0
    check_well(site, "cn1")


@pytest.mark.full
def test_bridge_that_goes_while_a_guest_boots(site: Site) -> None:
    """This start meets it, or its guest says what it misses and the next one does; the job runs on the other node."""
    has_guest = "until ls /sys/class/net/br0/brif | grep -q vtq; do sleep 0.1; done"
    with image("impatient", fault="impatient"):
        job_id = site.submit("-vm", "img=impatient", stdin="hostname\n")
        try:
            site.root("cn1", f"timeout 300 sh -c '{has_guest}' && {BRIDGE_AWAY}")
            ended = site.end(job_id)
            assert (ended.node, ended.exit_status, ended.err) == ("cn2", 0, "")
            assert ended.out.startswith("vcn2-")
            assert site.facts(job_id)["start_count"] in ("2", "3")
            nodes = site.nodes()
            check_offline(nodes["cn1"], "bridge", job_id, "br0")
            assert nodes["cn2"] == WELL
        finally:
            site.root("cn1", BRIDGE_BACK)
    assert sweep(site, "cn1").returncode == 0
    check_well(site, "cn1")


@pytest.mark.both
@pytest.mark.full
def test_last_usable_node_stays_and_the_job_is_held_until_its_owner_releases_it(site: Site) -> None:
    """A fault that all nodes have takes the site down to one node and no further; its release tries again."""
    with changed(site, bridge="br99"):
        job_id = site.submit(stdin="hostname\n")
        facts = check_held(site, job_id, "br99", "last")
        assert facts["start_count"] == "2"
        nodes = site.nodes()
        check_offline(nodes["cn1"], "bridge", job_id, "br99")
        assert nodes["cn2"] == WELL
    assert sweep(site, "cn1").returncode == 0
    assert site.on("fe", *site.batch.release, job_id, user="alice").returncode == 0
    ended = site.end(job_id)
    assert (ended.exit_status, ended.err) == (0, "")
    assert ended.out.startswith("vcn")


NOTE = "rack 4 moves on Friday (Jo, 4711)"


@pytest.mark.full
def test_note_of_an_administrator_is_never_replaced(site: Site) -> None:
    """A node that bears his note is not ours to set offline; as it would take the job again, the job is held."""
    site.root("fe", f"pbsnodes -N '{NOTE}' cn1")
    try:
        with changed(site, ("cn1",), bridge="br99"):
            job_id = site.submit("-l", "nodes=cn1:ppn=2", stdin="echo RAN\n")
            facts = check_held(site, job_id, "br99", "administrator")
            assert facts["start_count"] == "1"
            sweep(site, "cn1")
            assert site.nodes()["cn1"] == dataclasses.replace(WELL, note=NOTE)
        sweep(site, "cn1")
        assert site.nodes()["cn1"].note == NOTE
    finally:
        site.root("fe", "pbsnodes -N '' cn1")
    drop(site, job_id)


@pytest.mark.full
def test_node_that_an_administrator_set_offline_meanwhile(site: Site) -> None:
    """His note stands, and the job waits for the node or goes elsewhere."""
    with changed(site, ("cn1",), bridge="br99"), gates(site, "cn1"):
        job_id = site.submit("-l", "nodes=cn1:ppn=2", stdin="echo RAN\n")
        site.runs(job_id)
        site.root("fe", f"pbsnodes -o -N '{NOTE}' cn1")
        try:
            open_gate(site, "cn1")
            facts = site.wait_state(job_id, "QHC")
            assert (facts["job_state"], facts["start_count"]) == ("Q", "1")
            after = site.nodes()["cn1"]
            assert (after.note, "offline" in after.states) == (NOTE, True)
            drop(site, job_id)
        finally:
            site.root("fe", "pbsnodes -c -N '' cn1")


@pytest.mark.both
@pytest.mark.full
def test_interactive_job_on_a_broken_node_ends_with_the_reason(site: Site) -> None:
    """Nobody waits at a terminal for a node to be mended: it is told, and not queued again."""
    with changed(site, ("cn1",), bridge="br99"):
        terminal = Terminal(site, *site.batch.session, *site.batch.on_first)
        terminal.expect("br99")
        terminal.close()
        facts = site.wait_state(terminal.job_id, "CHQ")
        assert (facts["job_state"], facts["start_count"]) == ("C", "1")
        assert "vtorque: this job did not run" in terminal.seen
        assert "Traceback" not in terminal.seen
        check_offline(site.nodes()["cn1"], "bridge", terminal.job_id)
    assert sweep(site, "cn1").returncode == 0

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on jobs of several nodes: who is blamed, who is not, and where the job goes; on three compute nodes.

The scheduler takes the nodes in their order: cn1 and cn2 where two are asked for and all take jobs.  On Torque the last
one of them leads, on Slurm the first.
Seen to fail: with an ssh that fails taken for a proof of the node that was not reached.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import typing as t

import pytest

from .batch_facts import TORQUE
from .conftest import BY_ROLES, CHECKOUT, LAB, Site, site_of
from .trouble import (
    WELL,
    changed,
    check_held,
    check_message,
    check_offline,
    check_queued_again,
    drop,
    image,
    revive,
    sweep,
)

NODES = ("cn1", "cn2", "cn3")
GATE = "/home/alice/gate"
GIVEN_UP = "takes the guests away: whoever asked for them went away, and nobody told them of their job"
NOTE = "rack 4 moves on Friday (Jo, 4711)"
LAST = "the test is over"
LISTEN = f"""
import socket, os

START_WAYS = ("fast",)  # a lab of other nodes
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
print("listening", flush=True)
while not (line := log.recv(65536).decode()).endswith("{LAST}"):
    print(line)
os.unlink("/dev/log")
"""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> t.Iterator[Site]:
    """A lab of three compute nodes beside that of all tests."""
    name = getattr(request, "param", TORQUE.name)
    here = site_of(name, "-wide")
    with contextlib.ExitStack() as stack:
        stack.callback(here.run, "down")
        here.up("--batch", name, "--nodes", ",".join(("fe", *NODES)), by_roles=BY_ROLES and name == TORQUE.name)
        yield here


def blamed(site: Site) -> list[str]:
    """The nodes that are not as well as at the beginning."""
    return [name for name, node in site.nodes().items() if node != WELL]


@pytest.mark.both
@pytest.mark.full
def test_sister_that_proves_a_fault_goes_offline_alone_and_the_job_runs_elsewhere(site: Site) -> None:
    """She said it herself; the mother superior, whose guest was well, goes on with another node."""
    leader, sister = site.batch.led("cn1", "cn2")
    with changed(site, (sister,), bridge="br99"):
        job_id = site.submit(*site.batch.two, stdin=f"sort -u ${site.batch.hosts}\n")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.err) == (0, "")
        assert [name[:4] for name in ended.out.splitlines()] == [f"v{leader}", "vcn3"]
        assert site.facts(job_id)["start_count"] == "2"
        assert blamed(site) == [sister]
        check_offline(site.nodes()[sister], "bridge", job_id, "br99")
    assert json.loads(site.stored(leader, job_id))["verdict"]["node"] == sister
    assert sweep(site, sister).returncode == 0


@pytest.mark.both
@pytest.mark.full
def test_of_two_sisters_with_faults_of_their_own_one_goes_offline_a_start(site: Site) -> None:
    """The other is told of beside it.  The job waits for three nodes again."""
    _leader, *sisters = site.batch.led(*NODES)
    with changed(site, sisters, bridge="br99"):
        job_id = site.submit(*site.batch.three, stdin="echo RAN\n")
        facts = check_queued_again(site, job_id)
        (first,) = blamed(site)
        (other,) = set(sisters) - {first}
        check_offline(site.nodes()[first], "bridge", job_id, "br99")
        check_message(site.reported(facts), f"{first} is set offline: vtorque: bridge: ", f"also failed: {other}: ")
        drop(site, job_id)
    assert sweep(site, first).returncode == 0


class Away(t.NamedTuple):
    """Why one node does not reach another.

    Attributes:
        on_leader: where that is so: on the mother superior, else on her sisters.
        breaks: the line of shell that makes it so.
        mends: takes it back.
        words: what the user is told.
    """

    on_leader: bool
    breaks: str
    mends: str
    text: str


KNOWN, OTHERS = "/etc/ssh/ssh_known_hosts", "/run/lab/known_hosts"
DAEMON = "$(cat /run/sshd.pid)"
AWAY = {
    "no host key": Away(True, f"mount --bind /dev/null {KNOWN}", f"umount {KNOWN}", "Host key verification failed"),
    "another host key": Away(
        True,
        # everybody has this node's own
        f"sed -E \"s|^([^ #]+) .*|\\1 $(cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub)|\" {KNOWN} >{OTHERS} && "
        f"mount --bind {OTHERS} {KNOWN}",
        f"umount {KNOWN}; rm {OTHERS}",
        "Host key verification failed",
    ),
    "no sshd": Away(
        False,
        f"kill {DAEMON}",
        "/usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log",
        "Connection refused",
    ),
    "sshd that is silent": Away(False, f"kill -STOP {DAEMON}", f"kill -CONT {DAEMON}", "timed out"),
}


@contextlib.contextmanager
def out_of_reach(site: Site, nodes: t.Iterable[str], why: Away) -> t.Iterator[None]:
    """Nodes do not reach each other."""
    with contextlib.ExitStack() as stack:
        for node in nodes:
            site.root(node, why.breaks)
            stack.callback(site.root, node, why.mends)
        yield


@pytest.mark.both
@pytest.mark.full
def test_sick_mother_superior_blames_herself_alone(site: Site) -> None:
    """Her libvirt is dead, and she reaches no sister: she goes offline, and the job runs on the others."""
    leader, sister = site.batch.led("cn1", "cn2")
    with out_of_reach(site, [leader], AWAY["no host key"]):
        site.root(leader, "kill -9 $(cat /run/libvirtd.pid)")
        try:
            job_id = site.submit(*site.batch.two, stdin=f"sort -u ${site.batch.hosts}\n")
            ended = site.end(job_id)
            assert (ended.exit_status, [name[:4] for name in ended.out.splitlines()]) == (0, [f"v{sister}", "vcn3"])
            assert blamed(site) == [leader]
            check_offline(site.nodes()[leader], "libvirt", job_id)
        finally:
            site.root(leader, revive("libvirt"))
    assert sweep(site, leader).returncode == 0


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("name", AWAY)
def test_sisters_that_cannot_be_reached_are_not_blamed(site: Site, name: str) -> None:
    """A node proves nothing about another one: the job is tried again within its bound, and held."""
    why, (leader, *sisters) = AWAY[name], site.batch.led(*NODES)
    nodes = [leader] if why.on_leader else sisters
    with out_of_reach(site, nodes, why), changed(site, NODES, node_fault_retries=2):
        job_id = site.submit(*site.batch.three, stdin="echo RAN\n")
        notes = lambda: [node.note for node in site.nodes().values() if node.note]  # noqa: E731
        site.wait_for("the last try", lambda: notes() or site.facts(job_id)["job_state"] in "HC")
        assert notes() == []
        facts = check_held(site, job_id, "was not reached", "also failed: cn", why.text, "2 of 2")
        assert (facts["start_count"], blamed(site)) == ("2", [])
        drop(site, job_id)


@contextlib.contextmanager
def system_log(site: Site, node: str) -> t.Iterator[list[str]]:
    """Somebody takes what is written to the system log of a node; the lines are there when it ends."""
    arguments = [*LAB, "on", node, "--", "/usr/bin/python3", "-c", LISTEN]
    lines: list[str] = []
    with subprocess.Popen(arguments, cwd=CHECKOUT, env=site.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield lines
        finally:
            site.root(node, f"logger '{LAST}'")
            lines += process.stdout.read().splitlines()


@pytest.mark.both
@pytest.mark.full
def test_brake_keeps_a_fault_of_the_site_from_taking_node_after_node(site: Site) -> None:
    """As many nodes as the site allows go offline; then the job is held, and it is said loudly."""
    first, second = site.batch.led("cn1", "cn2")
    last = site.batch.led(*sorted((second, "cn3")))[0]
    with (
        system_log(site, last) as logged,
        changed(site, ("cn1", "cn2"), bridge="br99"),
        changed(site, NODES, offline_brake="1"),
    ):
        job_id = site.submit(*site.batch.two, stdin="echo RAN\n")
        brake = f"{second} is not set offline: 1 of 3 nodes carry a note of vTorque already (offline_brake 1)"
        facts = check_held(site, job_id, "br99", brake)
        # who led the first start proved its own fault before its sister's counted
        assert (facts["start_count"], blamed(site)) == ("2", [first])
        check_offline(site.nodes()[first], "bridge", job_id, "br99")
        assert "br99" in facts["comment"]
        hooks_log = site.root(last, "cat /var/lib/vtorque/log/hooks.log")
        assert "ALARM" in hooks_log
        assert brake in hooks_log
    (line,) = [line for line in logged if brake in line]
    assert line.startswith("<26>")  # daemon, critical
    assert f"job {site.full_id(job_id)}, start 2: hold: " in line
    drop(site, job_id)
    assert sweep(site, first).returncode == 0


@pytest.mark.both
@pytest.mark.full
def test_guest_of_a_sister_that_does_not_boot_blames_nobody(site: Site) -> None:
    """Tried as often as the site says, and held with the node, the guest and the end of its console."""
    _leader, sister = site.batch.led("cn1", "cn2")
    with image("sick") as place, changed(site, NODES, node_fault_retries=2):
        record, spoilt = f"/opt/vm-images/{place.name}/record.json", "/run/lab/record.json"
        site.root(sister, f'sed \'s/"cmdline": "/&lab.fault=panic /\' {record} >{spoilt}')
        site.root(sister, f"chmod 444 {spoilt}; grep -q panic {spoilt} && mount --bind {spoilt} {record}")
        try:
            job_id = site.submit(*site.batch.two, "-vm", "img=sick", stdin="echo RAN\n")
            message = f"{sister}: the kernel of guest v{sister}-"
            facts = check_held(site, job_id, message, "Kernel panic", "2 of 2")
        finally:
            site.root(sister, f"umount {record}; rm {spoilt}")
        assert (facts["start_count"], blamed(site)) == ("2", [])
        assert message in facts["comment"]
        drop(site, job_id)


@pytest.mark.full
def test_note_of_an_administrator_on_a_sister_is_never_replaced(site: Site) -> None:
    """The job would come back to her: it is held, at once, and its owner is told whose word stands in the way."""
    site.root("fe", f"pbsnodes -N '{NOTE}' cn1")
    try:
        with changed(site, ("cn1",), bridge="br99"):
            job_id = site.submit(*site.batch.two, stdin="echo RAN\n")
            message = f"cn1 is not set offline: it carries a note of an administrator ({NOTE})"
            assert check_held(site, job_id, "br99", message)["start_count"] == "1"
            sweep(site, "cn1")
        sweep(site, "cn1")
        assert site.nodes() == {**dict.fromkeys(NODES, WELL), "cn1": dataclasses.replace(WELL, note=NOTE)}
    finally:
        site.root("fe", "pbsnodes -N '' cn1")
    drop(site, job_id)


@pytest.mark.full
def test_guests_of_a_node_go_as_soon_as_another_has_failed(site: Site) -> None:
    """Those of the second node are ready when the third is asked, and fails; they do not wait for the end of the job,
    which here stands at a gate of the user's own.
    """
    site.write("/home/alice/waits", f"#!/bin/sh\necho waiting >{GATE}\n")
    assert site.on("cn1", "mkfifo", GATE, user="alice").returncode == 0
    in_turn = "nodes=" + "+".join(f"{node}:ppn=2" for node in NODES)

    def log() -> str:
        return site.stored("cn2", job_id, name="vtorque.log")

    with changed(site, ("cn1",), parallel=False), changed(site, ("cn3",), bridge="br99"):
        job_id = site.submit("-l", in_turn, "-l", "epilogue=waits", stdin="echo RAN\n")
        site.wait_for("the job's end to begin", lambda: site.root("cn1", "pgrep -f '[w]aits' || true"))
        site.wait_for("cn2 to clean itself", lambda: "took away: domain vcn2-1" in log(), seen=log)
        assert GIVEN_UP in log()
        assert not site.root("cn2", "cd /var/lib/vtorque; ls -A guests; ls -A slots; virsh list --name").strip()
        assert site.on("cn1", "cat", GATE).stdout == "waiting\n"
        assert site.wait_state(job_id, "QHC")["job_state"] == "Q"
        check_offline(site.nodes()["cn3"], "bridge", job_id, "br99")
    drop(site, job_id)
    assert sweep(site, "cn3").returncode == 0

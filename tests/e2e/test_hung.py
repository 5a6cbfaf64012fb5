# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that hang instead of failing, and go on after a while: libvirt, ssh, DHCP, the pool's file server."""

from __future__ import annotations

import pytest

from . import trouble
from .conftest import Site

LIBVIRT = "$(cat /run/libvirtd.pid)"


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("node", trouble.NODES, ids=["mother superior", "sister"])
def test_libvirt_hangs_when_its_job_ends(site: Site, node: str) -> None:
    """The job's status is its script's; what cannot be taken away is taken by the sweep when libvirt answers again."""
    job_id = site.submit(*site.batch.pair, stdin=trouble.WAITS)
    assert trouble.wait_in_guest(site, job_id) == trouble.SUPERIOR
    site.root(node, f"kill -STOP {LIBVIRT}")
    try:
        ended = trouble.finish(site, job_id)
        other = next(one for one in trouble.NODES if one != node)
        assert trouble.guest_on(site, other) == ""
    finally:
        site.root(node, f"kill -CONT {LIBVIRT}")
    assert (ended.exit_status, ended.out) == (0, "up\non\n")
    site.wait_for(
        "the sweep to have found it over twice", lambda: trouble.sweep(site, node).returncode == 0 and not site.left()
    )


@pytest.mark.both
@pytest.mark.full
def test_libvirt_hangs_for_a_while_in_the_prologue(site: Site) -> None:
    """Shorter than the deadline: the job waits for it and notices nothing else."""
    site.root(trouble.SUPERIOR, f"kill -STOP {LIBVIRT}")
    try:
        job_id = site.submit(*site.batch.at(trouble.SUPERIOR), stdin="echo on\n")
        waits = f"ls -d /run/vtorque/jobs/{site.full_id(job_id)}.1"
        site.wait_for("the prologue", lambda: site.on(trouble.SUPERIOR, "/bin/sh", "-c", waits).returncode == 0)
    finally:
        site.root(trouble.SUPERIOR, f"kill -CONT {LIBVIRT}")
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out, ended.err, ended.node) == (0, "on\n", "", trouble.SUPERIOR)


@pytest.mark.both
@pytest.mark.full
def test_slow_ssh_to_a_sister(site: Site) -> None:
    """Her sshd takes the connection and says nothing for a while: the job is only later."""
    daemon = "$(cat /run/sshd.pid)"
    site.root(trouble.SISTER, f"kill -STOP {daemon}")
    try:
        job_id = site.submit(*site.batch.pair, stdin=f"sort -u ${site.batch.hosts} | wc -l\n")
        asks = "pgrep -f '[s]sh .*cn2'"
        site.wait_for(
            "the call of the sister", lambda: site.on(trouble.SUPERIOR, "/bin/sh", "-c", asks).returncode == 0
        )
    finally:
        site.root(trouble.SISTER, f"kill -CONT {daemon}")
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out.strip(), ended.err) == (0, "2", "")
    assert site.facts(job_id)["start_count"] == "1"


@pytest.mark.both
@pytest.mark.full
def test_slow_dhcp_server(site: Site) -> None:
    """It answers when the guest has asked in vain: the job is only later."""
    site.root("fe", "kill -STOP $(cat /run/dnsmasq.pid)")
    try:
        job_id = site.submit(stdin="echo on\n")
        node = site.runs(job_id)
        heard = "cat /sys/class/net/vtq*/statistics/rx_packets"

        def packets() -> int:
            return sum(map(int, site.on(node, "/bin/sh", "-c", heard).stdout.split()))

        site.wait_for("some questions of the guest", lambda: packets() >= 4, seen=packets)
    finally:
        site.root("fe", "kill -CONT $(cat /run/dnsmasq.pid)")
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out, ended.err) == (0, "on\n", "")
    assert site.facts(job_id)["start_count"] == "1"


@pytest.mark.both
@pytest.mark.full
def test_file_server_of_the_pool_hangs_for_a_while(site: Site) -> None:
    """Shorter than the deadline: the job waits for it and notices nothing else."""
    with trouble.pool_served(site, trouble.SUPERIOR) as server:
        site.root(trouble.SUPERIOR, f"kill -STOP {server}")
        job_id = site.submit(*site.batch.at(trouble.SUPERIOR), stdin="echo on\n")
        waits = "grep -l fuse /proc/[0-9]*/stack /proc/[0-9]*/wchan || grep -l request_wait_answer /proc/[0-9]*/wchan"
        site.wait_for(
            "somebody who waits for the pool", lambda: site.on(trouble.SUPERIOR, "/bin/sh", "-c", waits).stdout
        )
        site.root(trouble.SUPERIOR, f"kill -CONT {server}")
        ended = site.end(job_id)
    assert (ended.exit_status, ended.out, ended.err, ended.node) == (0, "on\n", "", trouble.SUPERIOR)
    assert site.facts(job_id)["start_count"] == "1"


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("node", trouble.NODES, ids=["mother superior", "sister"])
def test_file_server_of_the_pool_hangs(site: Site, node: str) -> None:
    """Nobody's fault but the site's: told by name, nothing runs, nothing is left although it hangs on."""
    with trouble.pool_served(site, node) as server:
        site.root(node, f"kill -STOP {server}")
        with trouble.changed(site, prologue_timeout=60, timeout=50, node_fault_retries=1):
            job_id = site.submit(*site.batch.pair, stdin="echo RAN\n")
            facts = trouble.check_held(site, job_id, "/opt/vm-images", "no answer", "1 of 1")
            assert facts["start_count"] == "1"
            trouble.check_nobody_blamed(site)
            trouble.drop(site, job_id)
            site.wait_for("nothing to be left", lambda: not site.left(), seen=site.left)
        site.root(node, f"kill -CONT {server}")
        ended = site.end(site.submit(*site.batch.pair, stdin=f"sort -u ${site.batch.hosts} | wc -l\n"))
    assert (ended.exit_status, ended.out.strip(), ended.err) == (0, "2", "")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults around the nodes: nothing goes offline, the job is tried again a few times and then held with the reason."""

from __future__ import annotations

import pytest

from . import trouble
from .conftest import Site

ORPHAN = "/var/lib/vtorque/guests"


@pytest.mark.both
@pytest.mark.full
def test_silent_dhcp_server(site: Site) -> None:
    """The guest lives and gets no address: tried as often as the site says, on whatever node."""
    with trouble.image("impatient", fault="impatient"), trouble.changed(site, node_fault_retries=2):
        site.root("fe", "kill -STOP $(cat /run/dnsmasq.pid)")
        try:
            job_id = site.submit("-vm", "img=impatient", stdin="echo RAN\n")
            facts = trouble.check_held(site, job_id, "DHCP", "2 of 2")
            assert facts["start_count"] == "2"
        finally:
            site.root("fe", "kill -CONT $(cat /run/dnsmasq.pid)")
        trouble.check_nobody_blamed(site)
        trouble.drop(site, job_id)


@pytest.mark.both
@pytest.mark.full
def test_guest_that_lives_and_is_never_ready(site: Site) -> None:
    """What was waited for, how long, and what was seen on its console."""
    with trouble.image("idle", fault="idle"), trouble.changed(site, timeout=40, node_fault_retries=1):
        job_id = site.submit("-vm", "img=idle", stdin="echo RAN\n")
        trouble.check_held(site, job_id, "was not ready within 40 s", "still starting", "1 of 1")
        trouble.check_nobody_blamed(site)
        node = next(node for node in trouble.NODES if site.stored(node, job_id))
        assert "still starting" in site.root(
            node, f"cat /var/lib/vtorque/records/{site.batch.full_id(job_id)}.1/*.console.log"
        )
        trouble.drop(site, job_id)


@pytest.mark.both
@pytest.mark.full
def test_pool_that_others_can_write(site: Site) -> None:
    """A node's pool cannot be trusted: whoever can write there chooses what everybody's guests run."""
    with (
        trouble.mounted(site, "cn1", "/opt/vm-images", options="mode=777"),
        trouble.changed(site, node_fault_retries=1),
    ):
        job_id = site.submit(*site.batch.on_first, stdin="echo RAN\n")
        trouble.check_held(site, job_id, "/opt/vm-images")
        trouble.check_nobody_blamed(site)
        trouble.drop(site, job_id)


@pytest.mark.both
def test_configuration_that_is_broken(site: Site) -> None:
    """The key that is wrong, and where it stands; what can be read of the rest bounds the tries."""
    with trouble.changed(site, ("cn1",), brigde="br0", node_fault_retries=2):
        job_id = site.submit(*site.batch.on_first, stdin="echo RAN\n")
        facts = trouble.check_held(
            site, job_id, "brigde=br0: no such parameter; did you mean bridge?", "(line 1)", "2 of 2"
        )
        assert facts["start_count"] == "2"
        trouble.check_nobody_blamed(site)
    done = site.on("fe", *site.batch.release, job_id, user="alice")
    assert done.returncode == 0, done.stderr
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out) == (0, "RAN\n")


@pytest.mark.both
@pytest.mark.full
def test_configuration_that_is_no_yaml_keeps_no_leftovers(site: Site) -> None:
    """Jobs are tried as often as the defaults say; the sweep takes away all the same what is nobody's."""
    text = site.root("cn1", f"cat {trouble.CONFIG}")
    key = site.full_id(site.batch.unknown)
    orphan = f"{ORPHAN}/{key}.1"
    site.root("cn1", f"mkdir -p {orphan}/vcn1-9")
    trouble.write_config(site, "cn1", f"batch_system: {site.batch.name}\nbridge: [br0\n")
    try:
        assert f"{key}.1: found over" in trouble.sweep(site, "cn1").stdout
        job_id = site.submit(*site.batch.on_first, stdin="echo RAN\n")
        trouble.check_held(site, job_id, "not YAML: line 3, column 1", "3 of 3")

        def gone() -> bool:  # by this sweep, or by one that the job's own epilogue has started
            trouble.sweep(site, "cn1")
            return site.root("cn1", f"ls -d {orphan} || echo gone") == "gone\n"

        site.wait_for("the second look", gone)
        done = trouble.sweep(site, "cn1")
        assert (done.returncode, done.stdout.count("\n")) == (1, 1)
        assert "not YAML" in done.stdout
    finally:
        trouble.write_config(site, "cn1", text)
    trouble.check_nobody_blamed(site)
    trouble.drop(site, job_id)


@pytest.mark.both
@pytest.mark.full
def test_home_without_room_hinders_no_job(site: Site) -> None:
    """Nothing of ours is written under a home: a user over his quota gets his job's output where there is room."""
    site.root("fe", "mkdir -p -m 1777 /home/public")
    # the tiny guest needs the directory
    options, then = "size=4k,nr_inodes=2,uid=1001,gid=1001,mode=755", "install -d -m 700 -o 1001 /home/alice/.ssh"
    with trouble.mounted(site, "cn1", "/home/alice", options=options, then=then):
        assert site.on("cn1", "touch", "/home/alice/x", user="alice").returncode != 0
        output = [word for stream in "oe" for word in (f"-{stream}", f"/home/public/quota.{stream}")]
        ended = site.job(*site.batch.on_first, *output, stdin="id -un; echo complaint >&2\n")
    assert (ended.exit_status, ended.out, ended.err) == (0, "alice\n", "complaint\n")
    site.root("fe", "rm -r /home/public")


@pytest.mark.full
def test_exit_in_the_users_own_files(site: Site) -> None:
    """A shell that ends in its profile ends the job, as on bare metal; one that lets nobody in is told as such."""
    try:
        with trouble.changed(site, home_via="virtiofs"):
            site.write("/home/alice/.profile", "exit 3\n")
            profile = site.job(stdin="echo RAN\n")
            site.write("/home/alice/.bashrc", "exit 3\n")
            rc_file = site.job(stdin="echo RAN\n")
    finally:
        site.root("fe", "rm -f /home/alice/.profile /home/alice/.bashrc")
    assert (profile.exit_status, profile.out, profile.err) == (3, "", "")
    trouble.check_refused(rc_file, "ended the session before the job began", ".bashrc")
    trouble.check_nobody_blamed(site)

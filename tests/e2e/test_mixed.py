# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mixed requests: cn1 is the VM node, and cn2 stays bare.  Every test also ends with nothing left (conftest.py)."""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import WAYS, Site, cases
from .test_endings import lost
from .trouble import (
    NODES,
    WAITS,
    changed,
    check_held,
    check_logins,
    drop,
    finish,
    left_on,
    logins,
    revive,
    wait_in_guest,
)

START_WAYS = cases(WAYS, "fast")

VM_NODE, BARE = "cn1", "cn2"
ASKS = ("-vm", "vcpus=1,ram=192M,nodes=1")
LOOK = f"""
sed 's/^/slot /' "$HOSTS"
ssh {BARE} 'echo "there $(hostname) $(id -un)"; exit 7' </dev/null
echo "status $?"
ssh {BARE} "ssh $(hostname) 'echo back \\$(hostname) \\$(id -un); exit 5'; echo inner \\$?" </dev/null
ssh {BARE} ssh {BARE} hostname </dev/null | sed 's/^/itself /'
$EACH hostname | sort | sed 's/^/each /'
"""
STAYS = f"""
ssh {BARE} 'echo $$ >.mixed-pid; exec sleep 600' </dev/null &
until [ -s ~/.mixed-pid ]; do sleep 1; done
"""
SAVE = "cp /etc/vtorque/job_key ~/.mixed-key; chmod 600 ~/.mixed-key\n"


def mixed(site: Site) -> tuple[str, ...]:
    """The options of a job that has a guest on one node and the other one bare."""
    return (*site.batch.pair, *ASKS)


def guest_of(site: Site) -> str:
    """The guest that runs on the VM node."""
    return site.root(VM_NODE, "virsh list --name").strip()


@pytest.fixture
def hostile(site: Site) -> t.Iterator[None]:
    """What alice has in her home knows the job's hosts by keys that are not theirs."""
    key = "ssh-ed25519 " + site.root("fe", "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    lines = "".join(f"{name} {key}\n" for name in ("vcn1-1", "vcn1-2", VM_NODE, BARE))
    site.write("/home/alice/.ssh/known_hosts", lines)
    yield
    site.root("fe", "rm -f /home/alice/.ssh/known_hosts /home/alice/.mixed-*")


@pytest.mark.both
def test_the_script_runs_in_a_guest_and_reaches_the_bare_host_and_back(site: Site, hostile: None) -> None:
    """One node file for both kinds, counts that agree with it, and ssh both ways with status and no question."""
    counts, counted = site.batch.counts
    look = f"{counts}\n{LOOK.replace('HOSTS', site.batch.hosts).replace('$EACH', site.batch.on_each)}"
    job_id = site.submit(*mixed(site), stdin=look + SAVE + WAITS)
    assert wait_in_guest(site, job_id) == VM_NODE
    guest = guest_of(site)
    # begun on the bare host itself
    back = site.on(BARE, "ssh", guest, "hostname; exit 3", user="alice")
    assert (back.returncode, back.stdout.strip()) == (3, guest), back.stderr
    printed = json.loads(site.on(VM_NODE, "vmgr", "job", "show", "--json", job_id).stdout)
    ended = finish(site, job_id)
    assert ended.exit_status == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[:4] == [counted, f"slot {guest}", f"slot {BARE}", f"slot {BARE}"]
    assert lines[4:8] == [f"there {BARE} alice", "status 7", f"back {guest} alice", "inner 5"], ended.err
    assert lines[8:11] == [f"itself {BARE}", f"each {BARE}", f"each {guest}"], ended.err
    assert (printed["nodes"], printed["bare"]) == ([VM_NODE, BARE], [BARE])
    # with the key that the job had, from where it was accepted
    again = site.on(BARE, "ssh", "-i", "/home/alice/.mixed-key", "-o", "UserKnownHostsFile=none", BARE, "true",
                    user="alice")  # fmt: skip
    assert again.returncode == 255
    assert "Permission denied" in again.stderr


@pytest.mark.full
def test_many_logins_at_once_lose_none(site: Site) -> None:
    """From two guests to a third one, and to the host that stays bare; by themselves their sshds drop most of them."""
    request = ("-l", f"nodes={VM_NODE}:ppn=4+{BARE}:ppn=4", "-vm", "vcpus=1,ram=192M,vms_per_node=3,nodes=1")
    ended = site.job(*request, stdin=f'{logins("$1", BARE)}uniq "$PBS_NODEFILE" >&2\n')
    _first, *sources, bare = ended.err.splitlines()
    assert bare == BARE, ended.err
    check_logins(ended.out, *sources)
    assert ended.exit_status == 0


@pytest.mark.both
@pytest.mark.full
def test_nobody_else_gets_in_and_nobody_elses_ssh_is_touched(site: Site, hostile: None) -> None:
    """The key opens the bare host from the job's hosts alone, and another user can neither read nor use it."""
    job_id = site.submit(*mixed(site), stdin=SAVE + WAITS)
    wait_in_guest(site, job_id)
    guest, key = guest_of(site), f"/run/vtorque/bare/{site.full_id(job_id)}.1/job_key"
    assert site.on(BARE, "cat", key, user="alice").returncode == 0
    assert site.on(BARE, "cat", key, user="bob").returncode != 0
    for arguments in ((guest, "true"), ("-l", "alice", guest, "true"), ("-i", key, "-l", "alice", BARE, "true")):
        assert site.on(BARE, "ssh", *arguments, user="bob").returncode == 255
    settings = site.on(BARE, "ssh", "-G", BARE, user="bob")
    assert settings.returncode == 0
    assert "vtorque" not in settings.stdout
    strange = site.on("fe", "ssh", "-i", "/home/alice/.mixed-key", "-o", "UserKnownHostsFile=none", BARE, "true",
                      user="alice")  # fmt: skip
    assert strange.returncode == 255
    assert "Permission denied" in strange.stderr
    assert finish(site, job_id).exit_status == 0


@pytest.mark.full
def test_a_bare_host_needs_no_libvirt_and_two_jobs_do_not_disturb_each_other(site: Site, hostile: None) -> None:
    """The second job's way stays when the first one's ends."""
    shared = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False}
    site.root(BARE, "kill -9 $(cat /run/libvirtd.pid)")
    try:
        with changed(site, ("fe", *NODES), **shared):
            both = [site.submit(*mixed(site), stdin=WAITS) for _job in range(2)]
            for job_id in both:
                wait_in_guest(site, job_id)
            guests = set(site.root(VM_NODE, "virsh list --name").split())
            for guest in guests:
                assert site.on(BARE, "ssh", guest, "hostname", user="alice").stdout.strip() == guest
            assert finish(site, both[0]).exit_status == 0
            (still,) = site.root(VM_NODE, "virsh list --name").split()
            assert site.on(BARE, "ssh", still, f"ssh {BARE} hostname", user="alice").stdout.strip() == BARE
            assert {site.on(BARE, "ssh", gone, "true", user="alice").returncode for gone in guests - {still}} == {255}
            assert finish(site, both[1]).exit_status == 0
    finally:
        site.root(BARE, revive("libvirt"))


@pytest.mark.both
@pytest.mark.full
def test_a_job_that_is_cancelled_leaves_nothing_on_its_bare_host(site: Site, hostile: None) -> None:
    """Nor what it began there."""
    job_id = site.submit(*mixed(site), stdin=STAYS + WAITS)
    wait_in_guest(site, job_id)
    pid = site.read("/home/alice/.mixed-pid").strip()
    assert site.on(BARE, "test", "-d", f"/proc/{pid}").returncode == 0
    drop(site, job_id)
    site.wait_state(job_id, "C")
    site.wait_for("the end of what the job began", lambda: site.on(BARE, "test", "-d", f"/proc/{pid}").returncode != 0)


def accepted(site: Site, key: str = "key") -> bool:
    """Does a key that a start has saved open the bare host, from there itself?"""
    options = (
        *("-F", "none", "-o", "UserKnownHostsFile=none", "-o", "StrictHostKeyChecking=no"),  # nothing of a later start
        *("-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", f"/home/alice/.mixed-{key}"),
    )
    done = site.on(BARE, "ssh", *options, BARE, "true", user="alice")
    assert done.returncode == 0 or "Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.both
@pytest.mark.full
def test_a_job_that_is_queued_again_has_another_key_on_its_bare_host(site: Site, hostile: None) -> None:
    """The first start's opens nothing any more while the second one runs, and neither does after the job."""
    job_id = site.submit(*mixed(site), stdin=f"[ ! -e ~/.mixed-key ] || mv ~/.mixed-key ~/.mixed-first\n{SAVE}{WAITS}")
    wait_in_guest(site, job_id)
    assert accepted(site)
    site.queue_again(job_id)
    site.wait_for("the second start", lambda: site.on("fe", "test", "-e", "/home/alice/.mixed-first").returncode == 0)
    wait_in_guest(site, job_id)
    assert [accepted(site, key) for key in ("first", "key")] == [False, True]
    ended = finish(site, job_id)
    assert site.left_on_nodes() == []
    assert [accepted(site, key) for key in ("first", "key")] == [False, False]
    assert (ended.exit_status, ended.out) == (0, "up\non\n")


@pytest.mark.both
@pytest.mark.full
def test_a_bare_host_that_is_lost_opens_to_nobody_when_it_is_back(site: Site, hostile: None) -> None:
    """The job goes on in its guest; the host that lost its power has forgotten the key."""
    job_id = site.submit(*site.batch.goes_on, *mixed(site), stdin=SAVE + WAITS)
    wait_in_guest(site, job_id)
    assert accepted(site)
    with lost(site, BARE):
        ended = finish(site, job_id)
        assert left_on(site, VM_NODE) == []
    assert site.left_on_nodes() == []
    assert not accepted(site)
    assert (ended.exit_status, ended.out) == (0, "up\non\n")


@pytest.mark.both
@pytest.mark.full
def test_a_bare_host_whose_sshd_takes_no_keys_of_jobs_is_no_fault_of_the_job(site: Site) -> None:
    """Held with the reason, and no node goes offline."""
    drop_in = "/etc/ssh/sshd_config.d/00-vtorque.conf"
    site.root(BARE, f"mv {drop_in} {drop_in}.away")
    try:
        with changed(site, node_fault_retries=1):
            job_id = site.submit(*mixed(site), stdin="echo RAN\n")
            check_held(site, job_id, f"sshd of {BARE} takes no keys of jobs")
            drop(site, job_id)
        assert all(node.usable and not node.note for node in site.nodes().values())
    finally:
        site.root(BARE, f"mv {drop_in}.away {drop_in}")


@pytest.mark.full
def test_more_vm_nodes_than_hosts_are_refused_at_submission(site: Site) -> None:
    done = site.vsub("-l", "nodes=2", "-vm", "vcpus=1,ram=192M,nodes=3", stdin="true\n")
    assert done.returncode == 2
    assert "nodes=3 " in done.stderr
    assert "more VM nodes than the job has hosts (2 hosts)" in done.stderr
    dry = site.vsub("--dry-run", "-l", "nodes=2", "-vm", "vcpus=1,ram=192M,nodes=1", stdin="true\n")
    assert "(VM nodes: the first 1 of 2 hosts; the others stay bare)" in dry.stdout

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`suspend_guests: save`: a suspended job is on its nodes' disks, others run there meanwhile, and then it goes on.

Homes come by NFS: a guest that mounts one by virtiofs cannot be saved.
"""

from __future__ import annotations

import contextlib
import json
import time
import typing as t

import pytest

from .conftest import Site
from .test_endings import lost
from .trouble import (
    NODES,
    PAIR,
    WAITS,
    changed,
    drop,
    finish,
    home_server,
    restart_libvirt,
    restart_mom,
    revive,
    sweep_all,
    wait_in_guest,
)

HOME = {"home_via": "nfs", "vm_nfs_home": "10.77.0.1:/home"}
MEMORY = "/var/lib/vtorque/guests/*/*/suspended/memory"
RING = """
echo up
i=0
until [ -e ~/go ]; do i=$((i + 1)); echo line $i; sleep 0.5; done
echo now $(date +%s)
"""
"""Writes lines that have numbers until it may end, and then the time."""


@contextlib.contextmanager
def saving(site: Site, **more: t.Any) -> t.Iterator[None]:
    with home_server(site), changed(site, suspend_guests="save", **HOME, **more):
        yield


def domains(site: Site) -> list[str]:
    """Return the names of all guests that are in memory."""
    return [name for node in NODES for name in site.root(node, "virsh list --all --name").split()]


def saved(site: Site) -> list[str]:
    """Return the files of all guests that are on the disk, as owner, mode and the mode of their directory."""
    command = f"for f in {MEMORY}; do [ -e $f ] && stat -c '%U %a' $f && stat -c %a $(dirname $f); done; :"
    return [site.root(node, command) for node in NODES]


def suspend(site: Site, job_id: str) -> None:
    """Suspend a job of both nodes, until all of it is on their disks."""
    site.root("fe", f"qsig -s suspend {job_id}")
    site.wait_for("both guests to be saved", lambda: domains(site) == [], seen=lambda: domains(site))
    assert saved(site) == ["root 600\n700\n"] * 2


def log_of(site: Site, node: str, job_id: str) -> str:
    return site.root(node, f"cat /var/lib/vtorque/records/{job_id}.1/vtorque.log")


@pytest.mark.full
def test_another_job_runs_on_the_nodes_of_a_saved_one_which_then_goes_on(site: Site) -> None:
    with saving(site):
        site.root("fe", "rm -f /home/alice/go")
        job_id = site.submit(*PAIR, stdin=RING)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        other = site.job(*PAIR, stdin="hostname\n")
        assert (other.exit_status, other.out) == (0, "vcn1-2\n"), other.err
        site.root("fe", f"touch /home/alice/go; qsig -s resume {job_id}")
        ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    lines = [line for line in ended.out.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    (late,) = [time.time() - int(line.split()[1]) for line in ended.out.splitlines() if line.startswith("now ")]
    assert late < 60


@pytest.mark.full
@pytest.mark.parametrize("how", ["qdel", "qrerun", "MOM", "power"])
def test_saved_job_that_ends_leaves_no_memory(site: Site, how: str) -> None:
    """What is left at all is looked for by `leaves_nothing` (conftest.py); here, that the memory was there before."""
    with saving(site):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        if how == "qdel":
            drop(site, job_id)
            site.wait_state(job_id, "C")
        elif how == "qrerun":
            site.root("fe", f"qhold -h u {job_id}; qrerun {job_id}")
            site.wait_state(job_id, "HC")
        elif how == "MOM":
            site.root("fe", f"qhold -h u {job_id}")
            restart_mom(site, NODES[0])  # she runs no epilogue for what she has lost
            site.wait_state(job_id, "H")
            sweep_all(site)
        else:
            site.root("fe", f"qhold -h u {job_id}")
            with lost(site, NODES[0]):
                pass
            site.wait_state(job_id, "H")
            sweep_all(site)
        site.wait_for("the memory to be gone", lambda: saved(site) == ["", ""], seen=lambda: saved(site))
        if how != "qdel":
            drop(site, job_id)
        assert domains(site) == []


@pytest.mark.full
def test_libvirt_restarted_while_a_job_is_saved_loses_no_guest(site: Site) -> None:
    with saving(site):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        for node in NODES:
            restart_libvirt(site, node)
        site.root("fe", f"qsig -s resume {job_id}")
        site.wait_for("both guests to be back", lambda: len(domains(site)) == 2, seen=lambda: domains(site))
        assert finish(site, job_id).exit_status == 0


@pytest.mark.full
@pytest.mark.parametrize("number", ["KILL", "TERM"])
def test_libvirt_that_ends_while_it_saves_costs_no_guest(site: Site, number: str) -> None:
    """The guest is on the disk or in memory, and goes on from there; one that is told to end writes on for a while."""
    with saving(site):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        site.root("fe", f"qsig -s suspend {job_id}")
        begun = f"for f in {MEMORY}; do [ -e $f ] && echo begun; done; :"
        site.wait_for("the saving to begin", lambda: "begun" in site.root(NODES[0], begun))
        ended = "for i in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done"
        site.root(NODES[0], f"pid=$(cat /run/libvirtd.pid); kill -{number} $pid; {ended}")
        site.root(NODES[0], revive("libvirt"))
        # qemu refuses to save a guest again whose memory it has written already
        ways = ("guest vcn1-1 is saved", "guest vcn1-1 is paused and not saved")
        site.wait_for("the outcome", lambda: any(way in log_of(site, NODES[0], job_id) for way in ways))
        site.root("fe", f"qsig -s resume {job_id}")
        site.wait_for("both guests to be back", lambda: len(domains(site)) == 2, seen=lambda: domains(site))
        assert finish(site, job_id).exit_status == 0


@pytest.mark.full
def test_saved_job_whose_worker_was_killed_is_not_resumed_in_part(site: Site) -> None:
    with saving(site):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        worker = f"head -1 /run/vtorque/locks/{job_id}.1 | cut -d' ' -f1"
        site.root(NODES[1], f"kill -9 $({worker})")
        site.root("fe", f"qsig -s resume {job_id}")
        site.wait_for("the reason", lambda: "nobody watches" in site.facts(job_id).get("comment", ""))
        assert site.facts(job_id)["job_state"] == "S"
        assert domains(site) == []
        drop(site, job_id)
        site.wait_state(job_id, "C")
        site.wait_for("the memory to be gone", lambda: saved(site) == ["", ""], seen=lambda: saved(site))


@pytest.mark.full
def test_job_whose_nodes_another_has_is_suspended_again_with_the_reason(site: Site) -> None:
    with saving(site):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        other = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, other)
        site.root("fe", f"qsig -s resume {job_id}")
        site.wait_for("the reason", lambda: other in site.facts(job_id).get("comment", ""))
        assert site.facts(job_id)["job_state"] == "S"
        assert site.facts(job_id)["comment"].startswith("vtorque: still suspended: job ")
        assert finish(site, other).exit_status == 0
        site.root("fe", f"qsig -s resume {job_id}")
        site.wait_for("both guests to be back", lambda: len(domains(site)) == 2, seen=lambda: domains(site))
        assert finish(site, job_id).exit_status == 0


@pytest.mark.full
def test_guest_that_cannot_be_saved_is_paused_and_the_log_says_why(site: Site) -> None:
    """Its home comes by virtiofs, as in all other tests."""
    with changed(site, suspend_guests="save"):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        site.root("fe", f"qsig -s suspend {job_id}")
        why = "is paused and not saved: it mounts a directory of its node by virtiofs"
        for node in NODES:
            site.wait_for("the reason", lambda node=node: why in log_of(site, node, job_id))
        assert domains(site) == ["vcn1-1", "vcn2-1"]
        site.root("fe", f"qsig -s resume {job_id}")
        assert finish(site, job_id).exit_status == 0


@pytest.mark.full
def test_site_that_stops_the_session_alone_pauses_no_guest(site: Site) -> None:
    with changed(site, suspend_guests="session"):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        site.root("fe", f"qsig -s suspend {job_id}")
        site.root(NODES[0], "/opt/vtorque/bin/vtorque-sweep")
        command = "virsh list --all | awk '/vcn/{print $3}'"
        assert [site.root(node, command) for node in NODES] == ["running\n"] * 2
        site.root("fe", f"qsig -s resume {job_id}")
        assert finish(site, job_id).exit_status == 0


@pytest.mark.full
def test_user_reads_neither_saved_memory_nor_its_directory(site: Site) -> None:
    with saving(site):
        job_id = site.submit(*PAIR, stdin=WAITS)
        wait_in_guest(site, job_id)
        suspend(site, job_id)
        place = site.root(NODES[0], f"echo {MEMORY}").strip()
        for arguments in (("cat", place), ("ls", place.rpartition("/")[0]), ("ln", place, "/tmp/mine")):
            done = site.on(NODES[0], *arguments, user="alice")
            assert done.returncode != 0
            assert "Permission denied" in done.stderr or "No such file" in done.stderr or "not permitted" in done.stderr
        assert site.on("fe", "vmgr", "suspended", "list", user="alice").returncode != 0
        rows = json.loads(site.root("fe", "vmgr suspended list --json"))
        assert [(row["job_id"], row["user"], row["node"], row["guests"]) for row in rows] == [
            (job_id, "alice", node, 1) for node in NODES
        ]
        assert all(row["bytes"] > 1 << 20 for row in rows)
        refused = site.on("fe", "vmgr", "suspended", "delete", job_id)
        assert refused.returncode != 0
        assert "is in state S" in refused.stderr
        drop(site, job_id)
        site.wait_state(job_id, "C")

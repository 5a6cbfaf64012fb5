# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that loses its power under a job, and comes back."""

from __future__ import annotations

import pytest

from .conftest import Site
from .test_phases import PHASES, at_gates, open_gates
from .trouble import (
    NODES,
    SUPERIOR,
    drop,
    sweep,
    sweep_all,
    wait_in_guest,
)


@pytest.mark.both
def test_what_an_earlier_boot_left_is_gone_before_the_first_job(site: Site) -> None:
    """`vtorque-sweep --boot`, which a node runs before its MOM, asks nobody: what is of another boot lives no more."""
    job_id = site.submit(*site.batch.on_first, stdin="echo up; sleep 600\n")
    wait_in_guest(site, job_id)
    # the server gives a lost job to its node again; this one is to wait
    if site.batch.stays_lost:
        assert site.on("fe", *site.batch.stays_lost, job_id, user="alice").returncode == 0
    assert site.run("lose", "cn1").returncode == 0
    site.wait_for("the server to miss the node", lambda: "down" in site.nodes()["cn1"].states)
    assert site.run("back", "cn1").returncode == 0
    site.wait_state(job_id, "H" if site.batch.stays_lost else "Q")
    assert any("guest directory" in thing for thing in site.left())
    site.root("fe", "kill -STOP $(cat /run/lab/server.pid)")
    try:
        done = sweep(site, "cn1", "--boot")
    finally:
        site.root("fe", "kill -CONT $(cat /run/lab/server.pid)")
    assert (done.returncode, done.stderr) == (0, "")
    drop(site, job_id)
    site.wait_for("nothing to be left, once the record is sent", lambda: not site.left(), timeout_s=60, seen=site.left)
    ended = site.job(*site.batch.on_first, stdin="echo again\n")
    assert (ended.exit_status, ended.out) == (0, "again\n")


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("node", NODES, ids=["mother superior", "sister"])
def test_node_lost_in_the_epilogue(site: Site, node: str) -> None:
    """The other one is clean without her, and she when she has booted."""
    with at_gates(site, {SUPERIOR: PHASES["the site's epilogue in the guest"]}, pair=True) as waiting:
        (one,) = waiting
        assert site.run("lose", node).returncode == 0
        site.wait_for("the server to miss it", lambda: "down" in site.nodes()[node].states)
        open_gates(site, waiting)
        back = site.run("back", node)
        assert back.returncode == 0, back.stderr
        assert sweep(site, node, "--boot").returncode == 0
        facts = site.wait_state(one.job_id, "CHQ")
        sweep_all(site)
    assert facts["job_state"] == "C"


@pytest.mark.full
def test_base_that_a_dead_host_has_locked(site: Site) -> None:
    """A file server keeps the locks of a host that died: here those of a reader that does not end.

    A guest's qemu locks the base of its disk as any reader does, so that none is in another's way.  The kernel of
    the lab has no client of NFS: a program that takes the same locks, on another node, stands for the dead host.
    """
    base = site.root("fe", "ls -d /opt/vm-images/tiny@*/disk.qcow2 | sort -V | tail -n 1").strip()
    inode = site.root("fe", f"stat -c %i {base}").strip()
    wait = "<>/run/reader >/dev/null 2>&1"
    pid = site.root("fe", f"mkfifo /run/reader && {{ setsid qemu-io -r {base} {wait} & echo $!; }}").strip()
    # its own: guests of whoever else uses the pool lock it as well
    locks = f"cat /proc/{pid}/fdinfo/* | grep -c '^lock:.*:{inode} '; :"
    try:
        site.wait_for("the reader's locks", lambda: int(site.root("fe", locks)) > 0)
        ended = site.job(*site.batch.two, "-vm", "fs_type=sharedfs", stdin="echo up\n")
        held = int(site.root("fe", locks))
    finally:
        site.root("fe", f"kill {pid}; rm /run/reader")
    assert (ended.exit_status, ended.out) == (0, "up\n"), ended.err
    assert held > 0

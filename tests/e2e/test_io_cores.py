# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores for virtual I/O: where the threads of a guest are, read from /proc by another hand than the product's.

A node of the lab has two processors, and emulated guests have no vhost.  Its network card is none of the machine's, so
its interrupts are the unit tests' (`test_interrupts.py`).
"""

from __future__ import annotations

import json

import pytest

from .conftest import Site
from .test_pinned import TWO_CORES, VMGR, threads
from .trouble import NODES, WAITS, changed, finish, wait_in_guest

WORKER = "pgrep -f '[c]li.hook prologue' || true"
LOAD = """#!/bin/sh
i=0
while [ ! -e calm ]; do
    dd if=/dev/zero of=/var/tmp/load bs=1M count=24 conv=fsync 2>/dev/null &
    dd if=/dev/zero of=$HOME/load bs=1M count=24 conv=fsync 2>/dev/null
    wait
done
echo calm
touch rested
while [ ! -e go ]; do sleep 1; done
"""
"""Both of its own disk, which has an I/O thread, and of its home, which a virtiofsd serves."""


@pytest.mark.full
def test_io_threads_of_a_job_are_on_its_cores_for_virtual_io_and_its_vcpu_is_not(site: Site) -> None:
    """The worker is killed then: its death moves nothing, and the end of the job leaves nothing."""
    with changed(site, ("fe", *NODES), **TWO_CORES):
        wish = "vcpus=1,vcpu_pinning=true,iocm=true,iocm_max_cores=1"
        job_id = site.submit("-l", "nodes=cn1:ppn=2", "-vm", wish, stdin=WAITS)
        wait_in_guest(site, job_id)
        assert threads(site, "cn1") == ({"CPU 0/TCG": "1"}, {"0"})
        names = site.root("cn1", "cat /proc/$(pgrep -f '^[^ ]*qemu-system')/task/*/comm").splitlines()
        assert "IO iothread1" in names
        assert "other threads on 0 (virtual I/O: at least 1 of them)" in site.root("cn1", f"{VMGR} node topology")
        written = json.loads(site.root("cn1", "cat /var/lib/vtorque/records/*/io-cores.json"))
        assert (written["cores"], written["least"], written["count"]) == ("0", 1, 0)
        log = site.root("cn1", f"{VMGR} job log {job_id}")
        worker = log.partition("worker ")[2].partition(" watches")[0]
        site.root("cn1", f"kill -9 {worker}")
        assert threads(site, "cn1") == ({"CPU 0/TCG": "1"}, {"0"})
        assert finish(site, job_id).exit_status == 0
    assert "virtual I/O, under load on 0)" in log
    record = json.loads(site.root("cn1", f"{VMGR} job show {job_id} --json"))
    assert [(guest["other_cores"], guest["io_least"]) for guest in record["guests"]] == [("0", 1)]
    printed = site.root("cn1", f"{VMGR} job show {job_id}")
    assert "virtual I/O of vcn1-1: cores 0, 1 in any case" in printed

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of slurm.conf that a site has not, or has otherwise: the doctor names them, and jobs meet nothing worse."""

from __future__ import annotations

import contextlib
import time
import typing as t

import pytest

from .conftest import SlurmSite
from .test_cancelled import begin, guests
from .test_troubles import check_as_before

pytestmark = pytest.mark.full
CONF = "/etc/slurm/slurm.conf"
HOSTS = ("fe", "cn1", "cn2")


@contextlib.contextmanager
def settings(site: SlurmSite, pattern: str, line: str) -> t.Iterator[None]:
    """slurm.conf of all hosts has this line in place of another."""
    for host in HOSTS:
        site.root(host, f"cp -p {CONF} /etc/slurm/former && sed -i 's|^{pattern}.*|{line}|' {CONF}")
    try:
        site.root("fe", "scontrol reconfigure")
        yield
    finally:
        for host in HOSTS:
            site.root(host, f"mv /etc/slurm/former {CONF}")
        site.root("fe", "scontrol reconfigure")


def test_job_is_right_without_a_prolog_on_its_other_nodes_and_the_doctor_says_what_lacks(site: SlurmSite) -> None:
    with settings(site, "PrologFlags=", "# it has none"):
        doctor = site.on("fe", "vmgr", "doctor")
        ended = site.vm("#!/bin/sh\nsrun -N2 hostname | sort\nexit 3\n", "-N2", "-n4")
    assert doctor.returncode != 0
    assert "PrologFlags=Alloc,Contain" in doctor.stdout
    assert (ended.state, ended.code) == ("FAILED", "3:0"), ended.out
    assert [name[:4] for name in (ended.out or "").split()] == ["vcn1", "vcn2"]
    check_as_before(site)


def test_start_that_slurm_takes_for_lost_is_removed_and_runs_later(site: SlurmSite) -> None:
    """BatchStartTimeout is shorter than the boot, and the node registers meanwhile."""
    with settings(site, "BatchStartTimeout=", "BatchStartTimeout=1"):
        doctor = site.on("fe", "vmgr", "doctor")
        number = begin(site, "booting")
        lost_at = time.monotonic() + 12
        site.wait_for("the time after which it is lost", lambda: time.monotonic() > lost_at)
        site.root("fe", "scontrol reconfigure")
        site.wait_for_state(number, "PENDING")
    assert "BatchStartTimeout=" in doctor.stdout
    site.wait_for("the guests to be gone", lambda: not guests(site, number), seen=lambda: guests(site, number))
    site.root("fe", f"scontrol update jobid={number} StartTime=now")
    ended = site.ended(number)
    assert (ended.state, ended.out) == ("COMPLETED", "ran\n")
    check_as_before(site)


def test_job_that_slurm_has_forgotten_is_known_by_its_record_and_leaves_nothing(site: SlurmSite) -> None:
    with settings(site, "KillWait=", "KillWait=15\\nMinJobAge=2"):
        ended = site.vm("#!/bin/sh\necho ran; exit 4\n")
        site.wait_for("Slurm to forget it", lambda: not site.facts(ended.number))
        printed = site.on("fe", "vmgr", "job", "show", f"{ended.number}.lab", user="alice")
        here = site.on("cn1", "vmgr", "job", "show", f"{ended.number}.lab", user="alice")
        swept = site.root("cn1", "/opt/vtorque/bin/vtorque-sweep --json")
    assert (ended.state, ended.code) == ("FAILED", "4:0")
    for one in (printed, here) if ended.nodes == "cn1" else (printed,):
        assert one.returncode == 0, one.stderr
        assert "exit status 4" in one.stdout
    assert '"left": []' in swept or '"left":[]' in swept

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr doctor on a whole site, on one node, and where something is wrong."""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import Result, Site
from .trouble import NODES, changed, revive, sweep

MOM_CONFIG = "/var/spool/torque/mom_priv/config"
SSHD = "/usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log"


@pytest.fixture(autouse=True)
def swept(site: Site) -> None:
    """The lab has no timer that would have done it."""
    for node in NODES:
        assert sweep(site, node).returncode == 0


def doctor(site: Site, node: str, *words: str) -> Result[str]:
    return site.on(node, "vmgr", "doctor", *words)


def findings(done: Result[str]) -> dict[str, t.Any]:
    """What was found on this one node, by check."""
    told = json.loads(done.stdout)
    (report,) = told if isinstance(told, list) else [told]
    return {finding["check"]: finding for finding in report["findings"]}


def bad(done: Result[str]) -> set[str]:
    return {check for check, finding in findings(done).items() if finding["state"] == "bad"}


def test_site_that_is_well(site: Site) -> None:
    """From the front end every node, on a node that node; a health check gets one line."""
    done = doctor(site, "fe")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["node", "cn1", "cn2"]
    assert lines[-1] == "All 2 nodes are well."
    brief = doctor(site, "cn1", "--local", "--brief")
    assert (brief.returncode, brief.stderr) == (0, "")
    (line,) = brief.stdout.splitlines()
    assert line.startswith("cn1: ok")
    assert doctor(site, "cn2").stdout.splitlines()[-1] == "cn2 is well."


def test_node_whose_libvirt_is_dead(site: Site) -> None:
    site.root("cn2", "kill -9 $(cat /run/libvirtd.pid)")
    try:
        done = doctor(site, "fe", "--all")
        assert done.returncode == 1
        assert "cn2  libvirt: libvirt at qemu:///system" in done.stdout
        assert "journalctl -u libvirtd" in done.stdout
        assert done.stdout.splitlines()[-1] == "1 of 2 nodes need you."
        here = doctor(site, "cn2", "--local", "--json")
        assert here.returncode == 1
        assert bad(here) == {"libvirt"}
        assert doctor(site, "cn1", "--local").returncode == 0
    finally:
        site.root("cn2", revive("libvirt"))
    assert doctor(site, "cn2", "--local").returncode == 0


def test_node_that_does_not_answer(site: Site) -> None:
    """It is one line of the table, and holds nobody up."""
    site.root("cn2", "kill $(cat /run/sshd.pid)")
    try:
        done = doctor(site, "fe", "--nodes", "cn2", "--json")
        assert done.returncode == 1
        assert set(findings(done)) == {"ssh"}
        assert "Connection refused" in findings(done)["ssh"]["words"]
        # the other one cannot reach it either
        assert bad(doctor(site, "cn1", "--local", "--json")) == {"ssh"}
    finally:
        site.root("cn2", SSHD)
    assert doctor(site, "fe", "--nodes", "cn2").returncode == 0


def test_what_an_administrator_has_to_mend(site: Site) -> None:
    """Alarm, hook, bridge and configuration, each with what to do."""
    hook = "/var/spool/torque/mom_priv/epilogue"
    site.root("cn1", f"echo '$prologalarm 60' >{MOM_CONFIG}; chmod 400 {hook}")
    try:
        with changed(site, ("cn1",), bridge="br99"):
            done = doctor(site, "cn1", "--local", "--json")
            assert done.returncode == 1
            assert bad(done) == {"alarm", "hooks", "bridge"}
            words = {check: finding["words"] for check, finding in findings(done).items()}
            assert "write $prologalarm 300 into" in words["alarm"]
            assert "epilogue cannot be run (mode 0400)" in words["hooks"]
            assert "bridge br99: is missing on this node" in words["bridge"]
        with changed(site, ("cn1",), vcpus_default="many"):
            assert bad(doctor(site, "cn1", "--local", "--json")) >= {"policy"}
    finally:
        site.root("cn1", f"rm -f {MOM_CONFIG}; chmod 500 {hook}")
    assert doctor(site, "cn1", "--local").returncode == 0


def test_silent_batch_server_takes_no_node_out_of_use(site: Site) -> None:
    """A node health check that failed for it would empty the site."""
    site.root("fe", "kill -STOP $(cat /run/lab/server.pid)")
    try:
        done = doctor(site, "cn1", "--local", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert findings(done)["note"]["state"] == "warn"
        assert "does not tell" in findings(done)["note"]["words"]
    finally:
        site.root("fe", "kill -CONT $(cat /run/lab/server.pid)")


def test_user_is_told_that_it_is_roots(site: Site) -> None:
    done = site.on("fe", "vmgr", "doctor", user="alice")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vmgr: doctor: looks at what only root can see (call it as root)\n"

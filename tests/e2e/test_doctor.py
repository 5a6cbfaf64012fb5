# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr doctor on a whole site, on one node, and where something is wrong."""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import Result, Site
from .terminal import Terminal
from .trouble import HIDE_KVM, MOM_CONFIG, NODES, SHOW_KVM, changed, revive, sweep

CHECKED = (
    "configuration",
    "collection",
    "libvirt",
    "pool",
    "cache",
    "programs",
    "sharing",
    "hooks",
    "names",
    "ssh",
    "bare",
    "left",
)
STATE, POOL = "/var/lib/vtorque", "/opt/vm-images"
FULL = f"mount -t tmpfs -o size=1m,mode=711 trouble {STATE}; head -c 2m /dev/zero >{STATE}/full || true"
SSHD = "/usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log"


@pytest.fixture(autouse=True)
def swept(site: Site) -> None:
    """The lab has no timer that would have done it."""
    for node in NODES:
        assert sweep(site, node).returncode == 0


def doctor(site: Site, node: str, *arguments: str) -> Result[str]:
    # a busy machine takes its time, and no test measures it
    return site.on(node, "vmgr", "doctor", "--timeout", "100", *arguments)


def findings(done: Result[str]) -> dict[str, t.Any]:
    """What was found on this one node, by check."""
    answer = json.loads(done.stdout)
    (report,) = answer if isinstance(answer, list) else [answer]
    return {finding["check"]: finding for finding in report["findings"]}


def bad(done: Result[str]) -> set[str]:
    return {check for check, finding in findings(done).items() if finding["state"] == "bad"}


def test_site_on_a_terminal_is_one_table_in_colours(site: Site) -> None:
    """What was drawn while nodes were asked is gone; nothing is wrapped."""
    terminal = Terminal(site, "vmgr", "doctor", "--timeout", "100", size=(100, 130), user=None)
    status = terminal.close()
    screen = terminal.screen
    heading, *rows, last = screen.lines
    assert heading.split() == ["check", "nodes", "found"], screen.text
    assert last == "All 3 hosts are well." if status == 0 else "need" in last, screen.text
    found = heading.index("found")
    checks = [row for row in rows if row[:found].strip()]
    assert all(row[found - 1] == " " and row[found] != " " for row in checks), screen.text
    assert {row.split()[0] for row in checks} >= {"policy", "server", "libvirt", "disk", "hooks"}
    assert "asking nodes" not in screen.text
    assert screen.styles_of(next(row for row in checks if row.startswith("policy"))[found:]) == {("green", False)}


def found_bad(site: Site, node: str, checks: set[str]) -> dict[str, t.Any]:
    """What a node finds on itself, of which just these checks are bad; by check."""
    done = doctor(site, node, "--local", "--json")
    assert done.returncode == 1
    assert bad(done) == checks
    return findings(done)


def test_site_that_is_well(site: Site) -> None:
    """From the front end every node, on a node that node; a health check gets one line."""
    done = doctor(site, "fe")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["check", "nodes", "found"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:-1] if not line.startswith(" ")}
    for check in CHECKED:
        # a front end needs a qsub and the pool, too
        assert rows[check][0] == ("cn[1-2],fe" if check in ("pool", "programs") else "cn[1-2]"), check
    assert rows["policy"] == ["cn[1-2],fe", "ok"]
    assert rows["server"] == ["fe", "ok"]
    assert rows["records"][0] == "fe"
    assert rows["rights"] == ["cn[1-2]", "operator"]
    assert lines[-1] == "All 3 hosts are well."
    brief = doctor(site, "cn1", "--local", "--brief")
    assert (brief.returncode, brief.stderr) == (0, "")
    (line,) = brief.stdout.splitlines()
    assert line.startswith("cn1: ok")
    assert doctor(site, "cn2").stdout.splitlines()[-1] == "cn2 is well."


def test_node_whose_libvirt_is_dead(site: Site) -> None:
    site.root("cn2", "kill -9 $(cat /run/libvirtd.pid)")
    try:
        done = doctor(site, "fe", "--node", "cn[1-2]")
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        (number,) = [number for number, line in enumerate(lines) if line.startswith("libvirt ")]
        assert lines[number].split()[:4] == ["libvirt", "cn2", "bad", "libvirt"]
        assert "qemu:///system" in lines[number]
        assert lines[number + 1].lstrip().startswith("-> ")
        assert "journalctl -u libvirtd" in lines[number + 1]
        assert lines[number + 2].split() == ["cn1", "ok"]
        assert lines[-1] == "1 of 2 hosts needs attention."
        here = doctor(site, "cn2", "--local", "--json")
        assert here.returncode == 1
        assert bad(here) == {"libvirt"}
        assert doctor(site, "cn1", "--local").returncode == 0
    finally:
        site.root("cn2", revive("libvirt"))
    assert doctor(site, "cn2", "--local").returncode == 0


@pytest.mark.full
def test_node_that_does_not_answer(site: Site) -> None:
    """It is one line of the table, and holds nobody up."""
    site.root("cn2", "kill $(cat /run/sshd.pid)")
    try:
        done = doctor(site, "fe", "--node", "cn2", "--json")
        assert done.returncode == 4
        assert set(findings(done)) == {"ssh", "note"}
        assert findings(done)["note"]["problem"] == "the batch server says that it is in use"
        assert "Connection refused" in findings(done)["ssh"]["problem"]
        # the other one cannot reach it either
        assert bad(doctor(site, "cn1", "--local", "--json")) == {"ssh"}
    finally:
        site.root("cn2", SSHD)
    assert doctor(site, "fe", "--node", "cn2").returncode == 0


@pytest.mark.full
def test_what_an_administrator_has_to_mend(site: Site) -> None:
    """Alarm, hook, bridge and configuration, each with what to do."""
    hook = "/var/spool/torque/mom_priv/epilogue"
    site.root("cn1", f"echo '$prologalarm 60' >{MOM_CONFIG}; chmod 400 {hook}")
    try:
        with changed(site, ("cn1",), bridge="br99"):
            found = found_bad(site, "cn1", {"alarm", "hooks", "bridge"})
            assert "write $prologalarm 300 into" in found["alarm"]["remedy"]
            assert "epilogue cannot be run (mode 0400)" in found["hooks"]["problem"]
            assert "play mikelangelo.vtorque.install" in found["hooks"]["remedy"]
            assert "bridge br99: is missing on this node" in found["bridge"]["problem"]
        with changed(site, ("cn1",), vcpus_default="many"):
            assert bad(doctor(site, "cn1", "--local", "--json")) >= {"policy"}
    finally:
        site.root("cn1", f"rm -f {MOM_CONFIG}; chmod 500 {hook}")
    assert doctor(site, "cn1", "--local").returncode == 0


@pytest.mark.full
def test_node_whose_disk_is_full_whose_pool_is_away_and_that_has_no_virtualisation(site: Site) -> None:
    """Each in the words of its own cause; a health check gets them in one line, and takes the node out of use."""
    site.root("cn2", f"{HIDE_KVM}; mount -t tmpfs -o size=1m,mode=755 trouble {POOL}; {FULL}")
    try:
        with changed(site, ("cn2",), hypervisor_default="kvm"):
            found = found_bad(site, "cn2", {"disk", "pool", "virtualisation"})
            assert STATE in found["disk"]["problem"]
            assert "free some space" in found["disk"]["remedy"]
            assert (found["pool"]["problem"], found["pool"]["cell"]) == (f"no image in {POOL}", "empty")
            assert "mount it" in found["pool"]["remedy"]
            assert "kvm" in found["virtualisation"]["problem"]
            brief = doctor(site, "cn2", "--local", "--brief")
            assert brief.returncode == 1
            (line,) = brief.stdout.splitlines()
            assert all(check in line for check in ("disk", "pool", "virtualisation"))
    finally:
        site.root("cn2", f"umount {STATE} {POOL}; {SHOW_KVM}")
    assert doctor(site, "cn2", "--local").returncode == 0


@pytest.mark.full
def test_host_that_is_not_as_the_others(site: Site) -> None:
    """Found by a look at all of them: each by itself is well."""
    with changed(site, ("cn2",), timeout=99, record_host="fe.nowhere.invalid"):
        done = doctor(site, "fe", "--json", "--query", "[?node=='cn2'].findings[] | [?state=='bad']")
        assert done.returncode == 1
        found = {finding["check"]: finding["problem"] for finding in json.loads(done.stdout)}
        assert found["configuration"] == "other than on fe: record_host, timeout"
        assert "fe.nowhere.invalid is not known" in found["names"]


def test_front_end_is_let_in_for_a_look_and_nothing_else(site: Site) -> None:
    """As the roles bind its key; what it may ask of guests is decided by the batch server's word."""
    way = "/root/.ssh/authorized_keys"
    key = site.root("fe", "ssh-keygen -y -f /root/.ssh/id_ed25519").strip()
    site.root("cn1", f"cp -p {way} {way}.away")
    try:
        line = (
            f'restrict,from="{site.root("fe", "hostname -I").split()[0]}",command="/opt/vtorque/bin/vtorque-node" {key}'
        )
        done = site.on("cn1", "/bin/sh", "-c", f"cat >{way}", stdin=f"{line}\n")
        assert done.returncode == 0, done.stderr
        assert doctor(site, "fe", "--node", "cn1").returncode == 0
        assert site.on("fe", "ssh", "cn1", "id", stdin="").stdout.startswith('{"version":1,"ok":false')
        part = {"version": 1, "do": "absent", "job_id": "1.fe", "start": 1}
        refused = site.on("fe", "ssh", "cn1", "id", stdin=f"{json.dumps(part)}\n")
        assert json.loads(refused.stdout)["ok"] is False
    finally:
        site.root("cn1", f"mv {way}.away {way}")


@pytest.mark.full
def test_settings_of_the_batch_server(site: Site) -> None:
    """A node whose root lost his right: its own word, and the front end's."""
    site.root("fe", "qmgr -c 'set server operators -= root@cn2'")
    try:
        done = doctor(site, "fe", "--query", "[].findings[] | [?state=='bad']")
        assert done.returncode == 1
        found = {finding["check"]: finding for finding in json.loads(done.stdout)}
        assert set(found) == {"server", "rights"}
        assert found["server"]["problem"].startswith("root is no operator on cn2:")
        assert "pbsnodes -N" in found["rights"]["problem"]
        for check in found:
            assert "operators += root@cn2" in found[check]["remedy"]
        assert doctor(site, "cn2", "--local", "--brief").returncode == 0, "a health check leaves the server alone"
    finally:
        site.root("fe", "qmgr -c 'set server operators += root@cn2'")


@pytest.mark.full
def test_what_a_lost_job_left(site: Site) -> None:
    """It is told; the sweep takes it away, and the doctor does not."""
    left = "/var/lib/vtorque/guests/987654.fe.1"
    site.root("cn2", f"mkdir -p {left}/vcn2-1")
    try:
        done = doctor(site, "cn2", "--local", "--json")
        assert done.returncode == 0
        found = findings(done)["left"]
        assert (found["state"], found["cell"]) == ("warn", "1")
        assert "987654.fe.1: " in found["problem"]
        site.root("cn2", f"test -d {left}/vcn2-1")
        sweep(site, "cn2")
        assert findings(doctor(site, "cn2", "--local", "--json"))["sweep"]["cell"] == "left"
    finally:
        site.root("cn2", f"rm -rf {left}")
        assert sweep(site, "cn2").returncode == 0


@pytest.mark.full
def test_silent_batch_server_takes_no_node_out_of_use(site: Site) -> None:
    """A node health check that failed for it would empty the site."""
    site.root("fe", "kill -STOP $(cat /run/lab/server.pid)")
    try:
        done = doctor(site, "cn1", "--local", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert findings(done)["note"]["state"] == "warn"
        assert "does not tell" in findings(done)["note"]["problem"]
    finally:
        site.root("fe", "kill -CONT $(cat /run/lab/server.pid)")


def test_user_is_told_that_it_is_roots(site: Site) -> None:
    done = site.on("fe", "vmgr", "doctor", user="alice")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vmgr: doctor: looks at what only root can see (call it as root)\n"

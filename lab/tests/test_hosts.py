# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines to install onto: what they are, and that nothing of them stays."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import typing as t

import pytest

from lab.hosts import fleet, manifest
from lab.system import cgroups, network
from lab.system.state import LabError, State


def ssh(state: State, host: str, *arguments: str) -> str:
    line = ["ssh", "-F", str(state.directory / "ssh_config"), host, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def left(state: State) -> list[str]:
    mounts = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [line for line in mounts if str(state.directory) in line]
    nspawn = [str(path) for path in pathlib.Path("/run/systemd/nspawn").glob("*/*") if state.owns(path.name)]
    there = [str(state.directory)] if state.directory.exists() else []
    return [*network.present(state), *map(str, cgroups.present(state)), *places, *nspawn, *there]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[State]:
    state = State(tmp_path_factory.mktemp("hosts") / "up")
    fleet.up(state, fleet.Plan(("fe", "cn1"), pool=None))
    yield state
    fleet.down(state)


@pytest.fixture
def other(tmp_path: pathlib.Path) -> t.Iterator[State]:
    state = State(tmp_path / "other")
    yield state
    fleet.down(state)


def test_a_pool_that_is_not_there_is_told_before_anything_boots(other: State, tmp_path: pathlib.Path) -> None:
    with pytest.raises(LabError, match=r"pool is missing.*make images"):
        fleet.up(other, fleet.Plan(("fe",), pool=tmp_path / "pool"))
    assert left(other) == []


@pytest.mark.parametrize("host", ["fe", "cn1"])
def test_a_host_has_booted_whole(hosts: State, host: str) -> None:
    assert ssh(hosts, host, "hostname; systemctl is-system-running; cat /proc/1/comm").split() == [
        host, "running", "systemd",
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["fe", "cn1"])
def test_nothing_of_the_hosts_own_happens_by_the_clock(hosts: State, host: str) -> None:
    """What the distribution does at midnight would change files under a test that compares them."""
    report = ssh(hosts, host, "systemctl show --property=NextElapseUSecRealtime --value '*.timer'")
    times = [line for line in report.splitlines() if line]
    assert times
    assert {time.split()[1] for time in times} == {"2100-01-01"}


def test_a_compute_node_has_libvirt_a_bridge_and_the_batch_system(hosts: State) -> None:
    assert ssh(hosts, "cn1", "virsh -c qemu:///system list --name; ip -o link show br0 type bridge | wc -l") == "1"
    assert "state = free" in ssh(hosts, "cn1", "pbsnodes cn1")


def test_the_front_end_has_neither_libvirt_nor_a_mom(hosts: State) -> None:
    assert ssh(hosts, "fe", "ls /usr/sbin/libvirtd /var/spool/torque/mom_priv 2>/dev/null; true") == ""


def test_packages_come_from_what_is_offered_and_from_nowhere_else(hosts: State) -> None:
    assert ssh(hosts, "fe", "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d").splitlines() == [
        "deb [trusted=yes] file:/srv/offered/debs ./"
    ]
    ssh(hosts, "fe", "apt-get -qq update && apt-get -qq install -y acl >/dev/null && getfacl --version")


def test_hosts_share_homes_and_nothing_else_that_they_write(hosts: State) -> None:
    ssh(hosts, "fe", "touch /etc/mine /home/alice/ours")
    assert ssh(hosts, "cn1", "ls /etc/mine /home/alice/ours 2>/dev/null; true") == "/home/alice/ours"


def test_a_change_of_a_file_is_seen_by_content_mode_and_presence(hosts: State, tmp_path: pathlib.Path) -> None:
    root = pathlib.Path(f"/proc/{hosts.running().init('cn1').pid}/root")
    before, after = tmp_path / "before", tmp_path / "after"
    ssh(hosts, "cn1", "mkdir -p /etc/t && cd /etc/t && touch text mode gone && ln -s text link && touch /home/alice/x")
    manifest.write(root, before)
    ssh(hosts, "cn1", "cd /etc/t && echo a >text && chmod 600 mode && rm gone && ln -sf mode link && touch new /home/y")
    manifest.write(root, after)
    seen = [line.split()[:2] for line in manifest.compare(before, after, ("/var/*", "/etc/t/mode"))]
    assert seen == [
        ["gone", "/etc/t/gone"],
        ["changed", "/etc/t/link"],
        ["new", "/etc/t/new"],
        ["changed", "/etc/t/text"],
    ]


def test_what_a_new_package_brought_is_told_from_what_others_wrote(hosts: State, tmp_path: pathlib.Path) -> None:
    root = pathlib.Path(f"/proc/{hosts.running().init('cn1').pid}/root")
    before, after = tmp_path / "before", tmp_path / "after"
    manifest.write(root, before)
    ssh(hosts, "cn1", "apt-get -qq update && apt-get -qq install -y acl >/dev/null && touch /usr/bin/another")
    manifest.write(root, after)
    packaged = manifest.of_new_packages(root, before)
    assert "/usr/bin/getfacl" in packaged
    seen = [line.split()[:2] for line in manifest.compare(before, after, ("/var/*",), packaged)]
    assert seen == [["new", "/usr/bin/another"]]


def test_down_leaves_nothing_and_up_begins_from_the_same_base(other: State) -> None:
    fleet.up(other, fleet.Plan(("fe",), batch=False, pool=None))
    ssh(other, "fe", "touch /etc/mine")
    fleet.up(other, fleet.Plan(("fe",), batch=False, pool=None))
    assert ssh(other, "fe", "ls /etc/mine 2>/dev/null; true") == ""
    assert fleet.down(other)
    assert left(other) == []
    assert not fleet.down(other)


def test_what_an_interrupted_up_left_is_cleaned_away(other: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that boots hosts is killed with the first host booted, and without a word to anybody."""
    child = os.fork()
    if not child:
        monkeypatch.setattr(fleet, "_wait", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        fleet.up(other, fleet.Plan(("fe", "cn1"), pool=None))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert left(other)
    # as one leaves it that is killed a moment later, while its host boots
    (fleet.NSPAWN / "propagate" / other.name("cn1")).mkdir(parents=True, exist_ok=True)
    assert fleet.down(other)
    assert left(other) == []


def test_a_host_that_cannot_boot_is_told_and_nothing_is_left(other: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.base.Base, "layers", lambda *_, **__: (pathlib.Path("/nonexistent"),))
    with pytest.raises(LabError, match="host fe ended while it booted"):
        fleet.up(other, fleet.Plan(("fe",), batch=False, pool=None))
    assert left(other) == []

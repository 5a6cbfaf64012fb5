# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLANs of a node: what they need of it, and what is created and removed.

`tests/e2e/kvm/test_vlans.py` has frames go through them: not every kernel that runs these tests has VLANs.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses, cards, iproute, vlans
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

TAGGED = guest_networks.read_line("tagged vlan device=eth1 tag=120 addresses=10.8.0.0/14 mtu=9000")
OTHER = guest_networks.read_line("other vlan device=br0 tag=120 addresses=10.64.0.0/14")
BRIDGE = vlans.bridge_of(TAGGED)
TAGGER = f"vtv{BRIDGE[3:]}"
VLANS = """[
    {"ifname": "br0", "vlans": [{"vlan": 1, "flags": ["PVID", "Egress Untagged"]}, {"vlan": 120}]},
    {"ifname": "eth0", "vlans": [{"vlan": 1, "flags": ["PVID", "Egress Untagged"]}, {"vlan": 100, "vlanEnd": 130}]},
    {"ifname": "vtq1", "vlans": [{"vlan": 1, "flags": ["PVID", "Egress Untagged"]}]}
]"""
"""As iproute2 6.1 prints it on Linux 6.1 (`bridge -json vlan show`, and `-compressvlans` for a range)."""


class Node:
    """A node's devices, of which only what the kernel tells is there, and what `ip` and `bridge` are asked."""

    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sys = place / "sys"
        self.lines: list[str] = []
        self.listing = VLANS
        self.refused = ""
        self.settings = NodeSettings("cn1", 1, run_dir=place / "run", networks=(TAGGED, OTHER))
        monkeypatch.setattr(addresses, "SYS_NET", self.sys)
        monkeypatch.setattr(vlans, "KERNEL_HAS", self.sys)
        monkeypatch.setattr(iproute, "run_batch", self._run)
        monkeypatch.setattr(iproute, "run_tool", self._answer)

    def add(self, name: str, *ports: str, flags: str = "0x1003", mtu: int = 9000, filters: str = "") -> None:
        """A device that is up; with ports, or filtering, it is a bridge."""
        (self.sys / name).mkdir(parents=True)
        (self.sys / name / "flags").write_text(f"{flags}\n")
        (self.sys / name / "mtu").write_text(f"{mtu}\n")
        if filters:
            (self.sys / name / "bridge").mkdir()
            (self.sys / name / "bridge/vlan_filtering").write_text(f"{filters}\n")
        for port in ports:
            (self.sys / name / "brif" / port).mkdir(parents=True)

    def _run(self, program: str, lines: t.Sequence[str], _deadline: Deadline) -> None:
        if self.refused:
            raise VTorqueError(f"{program} {lines[0]}", self.refused)
        self.lines += [f"{program} {line}" for line in lines]

    def _answer(self, command: t.Sequence[str], _timeout_s: float) -> subprocess.CompletedProcess[str]:
        assert command == ["bridge", "-json", "vlan", "show"]
        return subprocess.CompletedProcess(command, 0, self.listing, "")

    def create(self, *networks: guest_networks.Network) -> list[str]:
        vlans.create(networks, self.settings, Deadline.after(20))
        found, self.lines = self.lines, []
        return found


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_card_that_is_up_can_carry_a_vlan(node: Node) -> None:
    node.add("eth1")
    cards.check_networks([TAGGED])


@pytest.mark.parametrize(
    ("flags", "mtu", "why", "hint"),
    [
        ("", 0, "is missing on this node", "see networks in vtorque.yml"),
        ("0x1002", 9000, "is down", "ip link set eth1 up"),
        ("0x1003", 1500, "has an MTU of 1500, and guests there 9000", "ip link set eth1 mtu 9000"),
    ],
)
def test_card_that_cannot_carry_a_vlan_is_the_nodes_fault(
    node: Node, flags: str, mtu: int, why: str, hint: str
) -> None:
    if flags:
        node.add("eth1", flags=flags, mtu=mtu)
    with pytest.raises(NodeFault) as caught:
        cards.check_networks([TAGGED])
    assert (caught.value.cause, caught.value.why, caught.value.hint) == ("bridge", why, hint)
    assert caught.value.what == "eth1, which carries network tagged,"


@pytest.mark.parametrize(
    ("filters", "listing", "why", "hint"),
    [
        ("0", VLANS, "does not filter VLANs", "ip link set br0 type bridge vlan_filtering 1"),
        ("1", VLANS.replace("120", "121"), "does not take part in VLAN 120 itself", "vlan add dev br0 vid 120 self"),
        ("1", VLANS.replace("130", "119"), "has no port that carries VLAN 120 with its tag", "dev UPLINK vid 120"),
        # what is sent without a tag there leaves the VLAN
        ("1", VLANS.replace('"vlanEnd": 130', '"vlanEnd": 130, "flags": ["Egress Untagged"]'), "has no port", "UPLINK"),
        # a port of another bridge
        ("1", VLANS.replace("eth0", "eth9"), "has no port that carries", "UPLINK"),
        ("1", "[]", "does not take part in VLAN 120 itself", "self"),
    ],
)
def test_bridge_that_cannot_carry_a_vlan_is_the_nodes_fault(
    node: Node, filters: str, listing: str, why: str, hint: str
) -> None:
    node.add("br0", "eth0", "vtq1", filters=filters)
    node.listing = listing
    with pytest.raises(NodeFault) as caught:
        cards.check_networks([OTHER])
    assert caught.value.cause == "bridge"
    assert why in caught.value.why
    assert hint in (caught.value.hint or "")


def test_bridge_that_filters_vlans_and_has_an_uplink_in_it_can_carry_it(node: Node) -> None:
    node.add("br0", "eth0", "vtq1", filters="1")
    cards.check_networks([OTHER])


@pytest.mark.parametrize(
    ("tables", "can"),
    [
        ({"modules.dep": "kernel/net/8021q/8021q.ko: kernel/net/802/mrp.ko\n"}, True),
        ({"modules.dep": "kernel/net/8021q/8021q.ko.xz:\n"}, True),
        ({"modules.dep": "", "modules.builtin": "kernel/net/8021q/8021q.ko\n"}, True),
        ({"modules.dep": "kernel/net/802/mrp.ko:\n", "modules.builtin": ""}, False),
        ({}, False),
    ],
)
def test_kernel_that_has_no_vlans_loaded_must_have_the_module(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, tables: dict[str, str], can: bool
) -> None:
    place = tmp_path / os.uname().release
    place.mkdir()
    for name, text in tables.items():
        (place / name).write_text(text)
    node.add("eth1")
    monkeypatch.setattr(vlans, "KERNEL_HAS", node.sys / "nothing")
    monkeypatch.setattr(vlans, "MODULES", tmp_path)
    if can:
        vlans.check(TAGGED)
        return
    with pytest.raises(NodeFault, match="cannot have VLAN 120: the kernel of this node has no VLANs") as caught:
        vlans.check(TAGGED)
    assert "8021q" in (caught.value.hint or "")


def test_first_start_creates_the_devices_and_the_next_one_what_is_missing(node: Node) -> None:
    node.add("eth1")
    always = [
        f"ip link set {BRIDGE} addrgenmode none",
        f"ip link set {TAGGER} addrgenmode none",
        f"ip link set {TAGGER} master {BRIDGE} up",
        f"ip link set {BRIDGE} up",
    ]
    tagger = f"ip link add link eth1 name {TAGGER} type vlan id 120"
    bridge = f"ip link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0"
    assert node.create(TAGGED) == [bridge, tagger, *always]
    node.add(BRIDGE)
    assert node.create(TAGGED) == [tagger, *always]
    node.add(TAGGER)
    assert node.create(TAGGED) == always


def test_tag_has_another_bridge_on_another_device() -> None:
    assert vlans.bridge_of(TAGGED).startswith("vtb120x")
    assert vlans.bridge_of(TAGGED) != vlans.bridge_of(OTHER)
    last = guest_networks.read_line("last vlan device=br0 tag=4094 addresses=10.64.0.0/14")
    assert len(vlans.bridge_of(last)) <= 15


def test_devices_go_when_the_site_lists_the_vlan_no_more_and_no_guest_is_there(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for network in (TAGGED, OTHER):
        bridge = vlans.bridge_of(network)
        node.add(f"vtv{bridge[3:]}")
        node.add(bridge, f"vtv{bridge[3:]}")
    node.add("vtb-mine")  # somebody else's
    assert vlans.tidy(node.settings) == ()
    settings = NodeSettings("cn1", 1, run_dir=node.settings.run_dir, networks=(OTHER,))
    (node.sys / BRIDGE / "brif/vtq1n1").mkdir()
    assert (vlans.tidy(settings), node.lines) == ((), [])
    (node.sys / BRIDGE / "brif/vtq1n1").rmdir()
    with monkeypatch.context() as refusing:
        refusing.setattr(node, "refused", "RTNETLINK answers: Device or resource busy")
        assert vlans.tidy(settings) == ()
    assert vlans.tidy(settings) == (f"bridge {BRIDGE} of a VLAN",)
    assert node.lines == [f"ip link del {TAGGER}", f"ip link del {BRIDGE}"]

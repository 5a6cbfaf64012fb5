# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with cards on further networks: what libvirt, the seed, the rules and the job are given of them."""

from __future__ import annotations

import dataclasses
import json
import typing as t
import xml.etree.ElementTree as ET

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import agent, join
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import (
    cards,
    nft_rules,
    private,
    reachable,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import JobHost, JobMap, KeyPair

if t.TYPE_CHECKING:
    from ...conftest import Node

FAST = guest_networks.read_line("fast bridge bridge=br1 addresses=10.8.0.0/14 mtu=9000")
STORE = guest_networks.read_line("store bridge bridge=br2 addresses=10.64.0.0/14 confined=no")
RENDER = seed.render
KEY = KeyPair(
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "A" * 100 + "\n-----END OPENSSH PRIVATE KEY-----\n",
    "ssh-ed25519 " + "A" * 68,
)


@pytest.fixture
def site(node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node of a site with two further networks."""
    node.settings = dataclasses.replace(node.settings, networks=(FAST, STORE))
    monkeypatch.setattr(cards, "check_networks", lambda _networks: None)
    return node


def test_guest_has_a_card_on_each_network_and_the_job_its_addresses(site: Node) -> None:
    [facts] = site.present(site.part(networks="store+fast"))
    assert facts.networks == "store=10.65.2.1 fast=10.9.2.1"
    assert facts.address == "10.77.0.100"
    root = ET.fromstring(site.hypervisor.running[facts.name].xml)
    found = [
        tuple(card.find(tag).get(name) for tag, name in (("source", "bridge"), ("target", "dev"), ("mac", "address")))  # type: ignore[union-attr]
        for card in root.iterfind("devices/interface")
    ]
    assert found == [
        ("br0", "vtq1", "52:54:00:01:02:01"), ("br2", "vtq1n1", "42:54:00:01:02:01"),
        ("br1", "vtq1n2", "72:54:00:01:02:01"),
    ]  # fmt: skip
    assert [size.get("size") for size in root.iterfind("devices/interface/mtu")] == ["9000"]
    [report] = site.seeds
    network = yaml.safe_load(RENDER(report, None)["network-config"])["ethernets"]
    assert network["eth0"]["dhcp4"] is True
    assert network["eth1"] == {
        "match": {"macaddress": "42:54:00:01:02:01"}, "dhcp4": False, "addresses": ["10.65.2.1/14"],
    }  # fmt: skip
    assert (network["eth2"]["addresses"], network["eth2"]["mtu"]) == (["10.9.2.1/14"], 9000)


def test_address_is_looked_for_on_the_first_network_alone(site: Node) -> None:
    """The others are known; a node that heard of them on its bridge would take them for the guest's."""
    [facts] = site.present(site.part(networks="fast"))
    assert site.flushed[0] == {facts.mac}


def test_request_of_another_nodes_list_is_refused_before_anything_is_made(site: Node) -> None:
    with pytest.raises(UserFault, match="network=slow"):
        site.present(site.part(networks="slow"))
    assert site.hypervisor.running == {}


def test_rules_hold_further_cards_from_before_the_boot_and_admit_the_job_there(
    site: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[nft_rules.Guest] = []
    admitted: list[tuple[list[nft_rules.Guest], list[str], list[str]]] = []
    whom = reachable.Reach("10.77.0.11", (), (), (), ())
    site.settings = dataclasses.replace(site.settings, confine_guests=True)
    monkeypatch.setattr(reachable, "reach", lambda *_words: whom)
    monkeypatch.setattr(nft_rules, "apply_rules", lambda guests, _whom, _settings: held.extend(guests))
    monkeypatch.setattr(nft_rules, "bind", lambda _guests, _settings: None)
    monkeypatch.setattr(nft_rules, "admit", lambda guests, job, hosts, _settings: admitted.append((guests, job, hosts)))
    monkeypatch.setattr(join, "order_all", lambda orders, _deadline: {
        channel.name: agent.OrderResult(0, "") for channel, _script in orders
    })  # fmt: skip
    [facts] = site.present(site.part(networks="store+fast"))
    fast = nft_rules.Guest("vtq1n2", "72:54:00:01:02:01", "10.9.2.1")
    assert held == [nft_rules.Guest("vtq1", facts.mac, ""), fast]
    hosts = (
        JobHost(facts.name, facts.address, 1, KEY.public, networks=facts.networks),
        JobHost("vcn2-1", "10.77.0.9", 1, KEY.public, networks="store=10.65.3.1 fast=10.9.3.1"),
    )
    join.join(JobMap(1, "join", "7.head", 1, "cn1", 60.0, hosts, KEY), site.settings, site.soon())
    assert admitted[0][1] == ["10.77.0.100", "10.77.0.9"]
    assert admitted[1:] == [([fast], ["10.9.2.1", "10.9.3.1"], [])]


def test_rules_of_all_cards_go_with_the_start(site: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    monkeypatch.setattr(nft_rules, "let_go", lambda devices, _settings: gone.extend(devices) or ())
    site.present(site.part(networks="fast"))
    site.absent()
    assert {"vtq1", "vtq1n1", "vtq1n2", "vtq1n3"} <= set(gone)
    assert present_absent.describe_leftovers(site.settings) == ()


def test_network_of_the_job_is_there_before_its_guests_and_goes_after_them(
    site: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows of all other nodes what it must: which guests are there, by their ranks."""
    mine = guest_networks.read_line("mine vxlan addresses=172.31.0.0/16 mtu=1400")
    site.settings = dataclasses.replace(site.settings, networks=(FAST, mine), confine_guests=True)
    monkeypatch.setattr(reachable, "reach", lambda *_words: reachable.Reach("10.77.0.11", (), (), (), ()))
    monkeypatch.setattr(nft_rules, "apply_rules", lambda guests, _whom, _settings: done.append(list(guests)))
    monkeypatch.setattr(nft_rules, "bind", lambda _guests, _settings: None)
    monkeypatch.setattr(nft_rules, "let_go", lambda _devices, _settings: ())
    done: list[t.Any] = []

    def create(key: str, wanted: t.Sequence[private.Wanted], *_words: object) -> None:
        assert site.hypervisor.running == {}
        done.append((key, [(network.name, list(peers)) for network, peers in wanted]))

    def remove(key: str, _settings: object) -> tuple[str, ...]:
        assert site.hypervisor.running == {}
        return (f"private network of {key}",)

    monkeypatch.setattr(private, "create", create)
    monkeypatch.setattr(private, "remove", remove)
    part = dataclasses.replace(site.part(2, networks="fast+mine"), peers="cn1 cn2 cn3")
    facts = site.present(part)
    assert [one.networks for one in facts] == [
        "fast=10.9.2.1 mine=172.31.0.1", "fast=10.9.2.2 mine=172.31.0.2",
    ]  # fmt: skip
    held, (key, [(name, peers)]) = done
    assert [guest.device for guest in held if guest.private] == ["vtq1n2", "vtq2n2"]
    assert (key, name) == ("7.head.1", "mine")
    assert peers == [
        private.Peer("cn2", ("02:76:72:00:00:02", "02:76:72:00:00:03")),
        private.Peer("cn3", ("02:76:72:00:00:04", "02:76:72:00:00:05")),
    ]
    assert "private network of 7.head.1" in site.absent()


def test_hosts_of_the_job_are_called_by_network(site: Node) -> None:
    """ssh finds them there, too: the same keys, and no question."""
    hosts = (JobHost("vcn2-1", "10.77.0.9", 1, KEY.public, networks="fast=10.9.3.1"),)
    settings = dataclasses.replace(site.settings, domain="example.org")
    script = join.script_of(JobMap(1, "join", "7.head", 1, "cn1", 60.0, hosts, KEY), settings)
    assert "'10.9.3.1 vcn2-1-fast.example.org vcn2-1-fast'" in script
    assert f"'vcn2-1-fast.example.org,vcn2-1-fast,10.9.3.1 {KEY.public}'" in script
    assert "vcn2-1-fast 10.9.3.1" in next(line for line in script.splitlines() if "'Host " in line)


def test_answer_of_a_node_has_no_other_form(site: Node) -> None:
    [facts] = site.present(site.part(networks="fast"))
    written = json.loads((site.settings.start_dir("7.head", 1) / facts.name / "facts.json").read_text())
    assert written["networks"] == "fast=10.9.2.1"

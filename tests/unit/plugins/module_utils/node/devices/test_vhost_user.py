# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards on Open vSwitch: a port, a socket and flows for each guest, which are there before it and go with it.

The switch is the test's, and answers as ovs-vsctl and ovs-ofctl 3.1 do; tests/e2e/test_vhost_user.py has the real one.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.eligibility import guest_saving
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import doctor
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import host_devices, leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.vrdma import open_vswitch, vhost_user
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import (
    DomainSpec,
    render_xml,
    unsavable_parts,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import agent, join
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import causes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import build
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import cards, nft_rules, reachable
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import JobHost, JobMap
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

from ..conftest import KEY, Node

RENDER = seed.render
DOWN = "ovs-vsctl: unix:/var/run/openvswitch/db.sock: database connection failed (No such file or directory)\n"
COOKIE = 0x76746F72_00000000


class Switch:
    """An Open vSwitch with one bridge of the site's; ports and flows by their names."""

    def __init__(self) -> None:
        self.ports: dict[str, dict[str, str]] = {}
        self.flows: list[str] = []
        self.bridge: dict[str, str] = {"datapath_type": "netdev", "fail_mode": "secure", "dpdk_initialized": "true"}
        self.down: set[str] = set()
        """Programs that get no answer."""
        self.numberless: set[str] = set()
        """Ports that the switch could not make."""

    def ask(self, command: t.Sequence[str], _timeout_s: float) -> subprocess.CompletedProcess[str]:
        program, timeout, *arguments = command
        assert re.fullmatch("--timeout=[1-9]", timeout)
        if program in self.down:
            return subprocess.CompletedProcess(command, 1, "", DOWN)
        if program == "ovs-ofctl":
            assert arguments[0] == "-O"
            return subprocess.CompletedProcess(command, 0, self.change_flows(*arguments[2:]), "")
        try:
            orders = " ".join(arguments).replace(" -- ", "\n").splitlines()
            return subprocess.CompletedProcess(command, 0, "".join(self.do(order.split()) for order in orders), "")
        except LookupError as error:
            return subprocess.CompletedProcess(command, 1, "", f'ovs-vsctl: no row "{error.args[0]}" in table Bridge\n')

    def do(self, arguments: list[str]) -> str:
        match [word for word in arguments if not word.startswith("--")]:
            case ["get", "Open_vSwitch", ".", name]:
                return f"{self.bridge[name]}\n"
            case ["get", "Bridge", "brv", *names]:
                return "".join(f"{self.bridge[name] or '[]'}\n" for name in names)
            case ["get", "Bridge", name, *_names]:
                raise LookupError(name)
            case ["get", "Interface", name, "ofport"]:
                return "-1\n" if name in self.numberless else f"{10 + int(name[3:])}\n"
            case ["list-br"]:
                return "brv\n"
            case ["list", "Interface"]:
                rows = [
                    [name, ["map", [["vtorque", one["key"]]] if one.get("key") else []]]
                    for name, one in self.ports.items()
                ]
                return json.dumps({"headings": ["name", "external_ids"], "data": rows})
            case ["del-port", name]:
                self.ports.pop(name, None)
            case ["add-port", "brv", name, *tag]:
                self.ports[name] = {"tag": "".join(tag)}
            case ["set", "Interface", name, kind, server, ids]:
                assert kind == "type=dpdkvhostuserclient"
                path = json.loads(server.removeprefix("options:vhost-server-path="))
                key = json.loads(ids.removeprefix("external_ids:vtorque="))
                self.ports[name] |= {"socket": path, "key": key}
            case other:
                raise AssertionError(other)
        return ""

    def change_flows(self, order: str, bridge: str, *arguments: str) -> str:
        assert bridge == "brv"
        if order == "add-flows":
            for flow in pathlib.Path(arguments[0]).read_text().splitlines():
                if flow not in self.flows:
                    self.flows.append(flow)
        elif order == "del-flows":
            cookie = arguments[0].removesuffix("/-1")
            self.flows = [flow for flow in self.flows if not flow.startswith(f"{cookie},")]
        else:
            assert order == "show"
        return ""


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Switch:
    switch = Switch()
    monkeypatch.setattr(open_vswitch, "run_tool", switch.ask)
    return switch


@pytest.fixture
def having(node: Node, switch: Switch, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node of a site whose guests are confined, and may have a card on its switch."""
    assert switch
    node.settings = dataclasses.replace(
        node.settings, rdma_kind="vhostuser", rdma_bridge="brv", rdma_addresses="10.8.0.0/14", confine_guests=True
    )
    monkeypatch.setattr(reachable, "reach", lambda *_words: reachable.Reach("10.77.0.11", (), (), (), ()))
    for name in ("apply_rules", "bind", "admit"):
        monkeypatch.setattr(nft_rules, name, lambda *_words: None)
    return node


def held(number: int, *peers: str) -> set[str]:
    """The flows of a port's guest, as ovs-ofctl reads them."""
    cookie = f"cookie={COOKIE + number:#x},in_port={10 + number}"
    mac, address = f"5a:54:00:01:02:{number:02x}", f"10.9.2.{number}"
    own = f"{cookie},priority=60010,vlan_tci=0x0000/0x1fff,dl_src={mac}"
    return {
        f"{cookie},priority=60000,actions=drop",
        f"{own},arp,arp_sha={mac},arp_spa={address},actions=NORMAL",
        *(f"{own},ip,nw_src={address},nw_dst={peer},actions=NORMAL" for peer in peers),
    }


def test_guest_has_a_card_whose_port_and_socket_go_with_it(having: Node, switch: Switch) -> None:
    for start in (1, 2):
        facts = having.present(having.part(2, start=start, rdma="vhostuser"))
        assert [(one.devices, one.networks) for one in facts] == [
            ("vrdma:vhostuser", f"vrdma=10.9.2.{number}") for number in (1, 2)
        ]
        places = [having.settings.vhost_user_dir / f"vtv{number}" for number in (1, 2)]
        assert switch.ports == {
            place.name: {"tag": "", "socket": f"{place}/socket", "key": f"7.head.{start}"} for place in places
        }
        assert [oct(place.stat().st_mode)[-3:] for place in places] == ["700", "700"]
        assert set(switch.flows) == held(1) | held(2)
        (places[0] / "socket").touch()  # as qemu leaves it
        assert "port vtv1" in having.absent(start)
        assert (switch.ports, switch.flows) == ({}, [])
        assert list(having.settings.vhost_user_dir.iterdir()) == []
        assert present_absent.describe_leftovers(having.settings) == ()


def test_libvirt_and_the_seed_are_given_the_card_and_memory_that_the_switch_reads(having: Node) -> None:
    [facts] = having.present(having.part(rdma="vhostuser"))
    root = ET.fromstring(having.hypervisor.running[facts.name].xml)
    [card] = root.iterfind("devices/interface[@type='vhostuser']")
    source, mac, alias = (card.find(tag) for tag in ("source", "mac", "alias"))
    assert source is not None
    assert mac is not None
    assert alias is not None
    socket = str(having.settings.vhost_user_dir / "vtv1/socket")
    assert source.attrib == {"type": "unix", "path": socket, "mode": "server"}
    assert mac.get("address") == "5a:54:00:01:02:01"
    backing = root.find("memoryBacking")
    assert backing is not None
    assert [(one.tag, *one.attrib.values()) for one in backing] == [("source", "memfd"), ("access", "shared")]
    q = "{http://libvirt.org/schemas/domain/qemu/1.0}"
    override = root.find(f"{q}override/{q}device")
    assert override is not None
    assert override.get("alias") == alias.get("name")
    assert [one.attrib for one in override.iter(f"{q}property")] == [
        {"name": "vectors", "type": "unsigned", "value": "0"}
    ]
    assert unsavable_parts(having.hypervisor.running[facts.name].xml) >= {guest_saving.VHOST_USER}
    [given] = having.seeds
    texts = RENDER(given, None)
    network = yaml.safe_load(texts["network-config"])["ethernets"]
    assert network["eth1"] == {
        "match": {"macaddress": "5a:54:00:01:02:01"}, "dhcp4": False, "addresses": ["10.9.2.1/14"],
    }  # fmt: skip
    files = {one["path"]: one["content"] for one in yaml.safe_load(texts["user-data"])["write_files"]}
    assert files["/etc/vtorque/rdma"] == "dmhvc3R1c2VyIDVhOjU0OjAwOjAxOjAyOjAxCg=="  # vhostuser 5a:54:00:01:02:01


def test_guest_under_kvm_has_interrupts_as_qemu_gives_them(having: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[DomainSpec] = []
    monkeypatch.setattr(build, "render_xml", lambda spec, **terms: specs.append(spec) or render_xml(spec, **terms))
    having.present(having.part(rdma="vhostuser"))
    assert "override" in render_xml(specs[0])
    assert "override" not in render_xml(dataclasses.replace(specs[0], hypervisor="kvm"))


def test_port_is_in_the_sites_vlan(having: Node, switch: Switch) -> None:
    having.settings = dataclasses.replace(having.settings, rdma_vlan=7)
    having.present(having.part(rdma="vhostuser"))
    assert switch.ports["vtv1"]["tag"] == "tag=7"


def test_guests_reach_those_of_their_job_once_it_is_known(
    having: Node, switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "order_all", lambda orders, _deadline: {
        channel.name: agent.OrderResult(0, "") for channel, _script in orders
    })  # fmt: skip
    facts = having.present(having.part(2, rdma="vhostuser"))
    having.present(having.part(job_id="8.head", rdma="vhostuser"))
    assert set(switch.flows) == held(1) | held(2) | held(3)
    hosts = (
        *(JobHost(one.name, one.address, 1, KEY.public, networks=one.networks) for one in facts),
        JobHost("vcn9-1", "10.77.0.9", 1, KEY.public, networks="vrdma=10.9.9.1"),
    )
    join.join(JobMap(1, "join", "7.head", 1, "cn1", 60.0, hosts, KEY), having.settings, having.soon())
    assert set(switch.flows) == held(1, "10.9.2.2", "10.9.9.1") | held(2, "10.9.2.1", "10.9.9.1") | held(3)
    assert list(having.settings.vhost_user_dir.glob("*flows*")) == []


def test_site_that_confines_no_guests_has_no_flows_and_any_bridge(having: Node, switch: Switch) -> None:
    having.settings = dataclasses.replace(having.settings, confine_guests=False)
    switch.bridge["fail_mode"] = ""
    having.present(having.part(rdma="vhostuser"))
    host_devices.admit(having.settings, "7.head.1", ["10.9.2.1"])
    assert (list(switch.ports), switch.flows) == (["vtv1"], [])


@pytest.mark.parametrize(
    ("change", "down", "pattern"),
    [
        ({}, "ovs-vsctl", r"database connection failed \(No such file or directory\)"),
        ({}, "ovs-ofctl", "database connection failed"),
        ({"datapath_type": ""}, "", "brv is no bridge in user space: its datapath_type is .*, not netdev"),
        ({"dpdk_initialized": "false"}, "", "Open vSwitch runs without DPDK"),
        ({"fail_mode": ""}, "", "brv: with confine_guests its fail_mode must be secure"),
    ],
)
def test_switch_that_can_give_no_port_is_the_nodes_fault_and_the_doctors(
    having: Node, switch: Switch, change: dict[str, str], down: str, pattern: str
) -> None:
    switch.bridge |= change
    switch.down |= {down}
    with pytest.raises(NodeFault, match=pattern) as caught:
        having.present(having.part(rdma="vhostuser"))
    assert caught.value.cause == "devices"
    assert having.hypervisor.running == {}
    switch.down = set()
    assert (switch.ports, switch.flows) == ({}, [])
    assert present_absent.describe_leftovers(having.settings) == ()
    switch.down |= {down}
    with pytest.raises(NodeFault, match=pattern):
        causes.check_devices(having.settings)
    found = doctor.check_devices(having.settings)
    assert (found.state, bool(re.search(pattern, found.problem))) == (doctor.BAD, True)
    assert "vrdma_bridge" in found.remedy


def test_bridge_that_is_not_there_and_a_program_that_is_not_are_named(
    having: Node, switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    having.settings = dataclasses.replace(having.settings, rdma_bridge="brx")
    with pytest.raises(NodeFault, match='no row "brx" in table Bridge'):
        having.present(having.part(rdma="vhostuser"))
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NodeFault, match="Open vSwitch: "):
        open_vswitch._run_query("ovs-no-such-program")


def test_program_that_gives_no_answer_in_time_is_the_nodes_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_vswitch, "CALL_S", 0.01)
    monkeypatch.setattr(
        open_vswitch, "run_tool", lambda command, timeout_s: subprocess.run(["sleep", "60"], timeout=timeout_s)
    )
    with pytest.raises(NodeFault, match="ovs-vsctl gave no answer within"):
        open_vswitch.list_ports()


def test_port_of_the_sites_with_such_a_name_is_left_alone(having: Node, switch: Switch) -> None:
    switch.ports["vtv1"] = {"tag": ""}
    having.present(having.part(rdma="vhostuser"))
    assert list(switch.ports) == ["vtv1", "vtv2"]
    having.absent()
    assert list(switch.ports) == ["vtv1"]
    assert present_absent.describe_leftovers(having.settings) == ()


def test_port_that_the_switch_cannot_make_fails_the_start_and_goes(having: Node, switch: Switch) -> None:
    switch.numberless = {"vtv1"}
    with pytest.raises(NodeFault, match="Open vSwitch could not make port vtv1"):
        having.present(having.part(rdma="vhostuser"))
    assert having.hypervisor.running == {}
    having.absent()
    assert switch.ports == {}
    assert present_absent.describe_leftovers(having.settings) == ()


def test_port_that_outlived_a_boot_is_found_without_a_lease_and_goes(having: Node, switch: Switch) -> None:
    having.present(having.part(rdma="vhostuser"))
    having.hypervisor.forget()
    leases.free(having.settings, "7.head.1")
    assert "device vtv1 of 7.head.1" in present_absent.describe_leftovers(having.settings, "7.head", 1)
    assert host_devices.free(having.settings, "7.head.1") == ("port vtv1",)
    assert (switch.ports, switch.flows) == ({}, [])


def test_switch_that_is_down_at_the_end_keeps_the_lease_for_the_sweep(having: Node, switch: Switch) -> None:
    having.present(having.part(rdma="vhostuser"))
    switch.down = {"ovs-vsctl"}
    having.absent()
    assert [one.device for one in leases.read_leases(having.settings)] == ["vtv1"]
    switch.down = set()
    assert "port vtv1" in having.absent()
    assert (switch.ports, leases.read_leases(having.settings)) == ({}, ())
    assert present_absent.describe_leftovers(having.settings) == ()


def test_guest_for_whom_no_port_is_left_waits(having: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vhost_user, "MOST", 2)
    having.present(having.part(rdma="vhostuser"))
    with pytest.raises(VTorqueError, match="2 guests want a port each, and 1 of 2 are free"):
        having.present(having.part(2, rdma="vhostuser", job_id="8.head"))


def test_node_of_another_kind_or_without_a_number_gives_no_port(having: Node, switch: Switch) -> None:
    having.settings = dataclasses.replace(having.settings, node_number=None)
    with pytest.raises(SiteFault, match="node_number is not set"):
        having.present(having.part(rdma="vhostuser"))
    having.settings = dataclasses.replace(having.settings, rdma_kind="rxe")
    with pytest.raises(UserFault, match=r"guests of cn1 have no vhostuser \(RDMA here: rxe\)"):
        having.present(having.part(rdma="vhostuser"))
    assert switch.ports == {}


def test_card_on_the_switch_is_none_that_the_packet_filter_holds(having: Node) -> None:
    assert cards.list_confined_devices("vrdma=10.9.2.1", 1, having.settings) == ()
    assert list(cards.confined("vrdma=10.9.2.1", 1, having.settings)) == []


def test_node_takes_bridge_and_addresses_from_the_sites_configuration() -> None:
    site = Policy(vrdma_enabled=True, vrdma_kind="vhostuser", vrdma_bridge="brv", vrdma_addresses="10.8.0.0/14")
    found = settings_of(site, "cn1")
    assert (found.rdma_kind, found.rdma_bridge, found.rdma_addresses) == ("vhostuser", "brv", "10.8.0.0/14")

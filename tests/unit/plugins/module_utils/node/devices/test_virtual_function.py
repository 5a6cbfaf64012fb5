# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual functions for guests: an identity that is set and read back before the guest has one, and gone after it.

No machine of the tests has such a card.  The answers of `ip` are those of print_vfinfo() of iproute2 6.1 (`address`),
and of 4.20 (`mac`), whose words are also in the program itself.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import doctor, occupancy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import host_devices, leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.vrdma import virtual_function
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import causes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.pci import DeviceWish
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

from ..conftest import Node
from .conftest import NIC, Tree, class_of

PORT = "ens1f0"
VFS = ("0000:01:02.0", "0000:01:02.1")
NOTHING = {"address": "00:00:00:00:00:00", "vlan_list": [{}], "spoofchk": False, "trust": False, "link_state": "auto"}


class Card:
    """A card with virtual functions, as sysfs has it, and its driver, as `ip` asks it; children of ours change it."""

    def __init__(self, tree: Tree, place: pathlib.Path, *, infiniband: bool = False) -> None:
        self._place, self.refuses, self.ignores = place, set[str](), set[str]()
        self.lacks: set[str] = set()
        physical = tree.add(NIC, driver="mlx5_core", sriov_numvfs="2")
        self.net = tree.add_netdev(NIC, PORT)
        for name, text in {"type": "32" if infiniband else "1", "flags": "0x1003", "carrier": "1"}.items():
            (self.net / name).write_text(f"{text}\n")
        (self.net / "device").symlink_to(physical)
        nothing = {**NOTHING, "node guid": "00:00:00:00:00:00:00:00", "port guid": "00:00:00:00:00:00:00:00"}
        for number, address in enumerate(VFS):
            function = tree.add(address, driver="mlx5_core", group=f"{number + 40}", resets="flr")
            (function / "physfn").symlink_to(physical)
            (physical / f"virtfn{number}").symlink_to(pathlib.Path("..") / address)
            tree.usual[address] = "mlx5_core"
            self.write(number, nothing if infiniband else NOTHING)

    def write(self, number: int, function: dict[str, t.Any]) -> None:
        new = self._place / f"new{number}"
        new.write_text(json.dumps(function))
        new.replace(self._place / f"vf{number}.json")

    @property
    def functions(self) -> list[dict[str, t.Any]]:
        return [json.loads((self._place / f"vf{number}.json").read_text()) for number in range(len(VFS))]

    def ask(self, command: t.Sequence[str], _timeout_s: float) -> subprocess.CompletedProcess[str]:
        if command[1] == "-json":
            rows = [
                {"vf": number, **{name: value for name, value in one.items() if name not in self.lacks}}
                for number, one in enumerate(self.functions)
            ]
            return subprocess.CompletedProcess(command, 0, json.dumps([{"ifname": PORT, "vfinfo_list": rows}]), "")
        *_words, port, _vf, number, name, value = command
        assert port == PORT
        if name in self.refuses:
            return subprocess.CompletedProcess(command, 2, "", "RTNETLINK answers: Operation not supported\n")
        one = self.functions[int(number)]
        output: dict[str, dict[str, t.Any]] = {
            "mac": {"address": value}, "state": {"link_state": value}, "node_guid": {"node guid": value},
            "vlan": {"vlan_list": [{} if value == "0" else {"vlan": int(value) if value.isdecimal() else 0}]},
            "port_guid": {"port guid": value}, "spoofchk": {"spoofchk": value == "on"},
            "trust": {"trust": value == "on"},
        }  # fmt: skip
        if name not in self.ignores:
            self.write(int(number), {**one, **output[name]})
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def card(tree: Tree, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card(tree, tmp_path)
    monkeypatch.setattr(virtual_function, "run_tool", card.ask)
    return card


@pytest.fixture
def having(node: Node, card: Card) -> Node:
    """A node whose site hands on virtual functions of a card."""
    assert card
    node.settings = dataclasses.replace(node.settings, rdma_kind="sriov", rdma_ports=("ens9", PORT), rdma_vlan=7)
    return node


def test_guest_has_a_function_with_an_identity_of_its_own_that_goes_with_it(
    having: Node, card: Card, tree: Tree
) -> None:
    for start in (1, 2):
        facts = having.present(having.part(2, start=start, rdma="sriov"))
        assert [one.devices for one in facts] == [f"vrdma:sriov:{address}" for address in VFS]
        assert [tree.driver(address) for address in VFS] == ["vfio-pci"] * 2
        macs = [f"5a{having.settings.mac(index)[2:]}" for index in (0, 1)]
        expected = {"vlan_list": [{"vlan": 7}], "spoofchk": True, "trust": False, "link_state": "auto"}
        assert card.functions == [{"address": mac, **expected} for mac in macs]
        assert not set(macs) & {one.mac for one in facts}
        addresses = []
        for domain in having.hypervisor.running.values():
            [device] = ET.fromstring(domain.xml).iterfind("devices/hostdev")
            found = device.find("source/address")
            assert found is not None
            assert device.get("managed") == "no"
            addresses.append("{domain}:{bus}:{slot}.{function}".format(**found.attrib).replace("0x", ""))
        assert sorted(addresses) == list(VFS)
        assert {lease.kind for lease in leases.read_leases(having.settings)} == {"sriov"}
        assert f"device {VFS[1]}" in having.absent(start)
        assert [tree.driver(address) for address in VFS] == ["mlx5_core"] * 2
        assert [(one["address"], one["vlan_list"]) for one in card.functions] == [("00:00:00:00:00:00", [{}])] * 2
    assert leases.read_leases(having.settings) == ()
    assert present_absent.describe_leftovers(having.settings) == ()


def test_function_of_infiniband_gets_guids_and_no_mac(
    node: Node, tree: Tree, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card(tree, tmp_path, infiniband=True)
    monkeypatch.setattr(virtual_function, "run_tool", card.ask)
    node.settings = dataclasses.replace(node.settings, rdma_kind="sriov", rdma_ports=(PORT,))
    node.present(node.part(rdma="sriov"))
    mac = f"5a{node.settings.mac(0)[2:]}"
    first, second = card.functions
    assert first["node guid"] == f"{mac[:8]}:ff:fe:{mac[9:]}"
    assert first["port guid"] == f"{mac[:8]}:ff:ff:{mac[9:]}"
    assert (first["address"], second["node guid"]) == ("00:00:00:00:00:00", "00:00:00:00:00:00:00:00")
    node.absent()
    assert {one["port guid"] for one in card.functions} == {"00:00:00:00:00:00:00:00"}


@pytest.mark.parametrize(
    ("refuses", "ignores", "lacks", "message"),
    [
        ("mac", "", "", f"ip link set dev {PORT} vf 0 mac 5a.*: RTNETLINK answers: Operation not supported"),
        ("spoofchk", "", "", "vf 0 spoofchk on: RTNETLINK answers: Operation not supported"),
        ("", "vlan", "", f"vlan of function 0 of {PORT} is 0 and not 7"),
        ("", "mac", "", f"mac of function 0 of {PORT} is 00:00:00:00:00:00 and not 5a"),
        ("", "", "spoofchk", "spoofchk of function 0 of ens1f0 is not known and not on"),
        ("", "", "link_state", "state of function 0 of ens1f0 is not known and not auto"),
    ],
)
def test_function_whose_identity_is_not_what_was_set_reaches_no_guest(
    having: Node, card: Card, tree: Tree, refuses: str, ignores: str, lacks: str, message: str
) -> None:
    card.refuses, card.ignores, card.lacks = {refuses}, {ignores}, {lacks}
    with pytest.raises(VTorqueError, match=message):
        having.present(having.part(rdma="sriov"))
    assert having.hypervisor.running == {}
    having.absent()
    assert tree.driver(VFS[0]) == "mlx5_core"
    assert leases.read_leases(having.settings) == ()
    assert leases.read_quarantine(having.settings) == ()


def test_trust_that_a_driver_does_not_know_is_none(having: Node, card: Card) -> None:
    card.refuses, card.lacks = {"trust"}, {"trust"}
    having.present(having.part(rdma="sriov"))
    assert len(having.hypervisor.running) == 1


def test_trust_that_stays_on_is_refused(having: Node, card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    card.refuses = {"trust"}
    monkeypatch.setitem(NOTHING, "trust", True)
    card.write(0, NOTHING)
    with pytest.raises(VTorqueError, match=f"trust of function 0 of {PORT} is on and not off"):
        having.present(having.part(rdma="sriov"))


def test_older_program_ip_is_understood(having: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"vf": 0, "mac": "5A:00:00:00:00:01", "vlan": 9, "spoofchk": True, "link_state": "enable"}
    answer = json.dumps([{"vfinfo_list": [old]}])
    monkeypatch.setattr(
        virtual_function, "run_tool", lambda command, _s: subprocess.CompletedProcess(command, 0, answer, "")
    )
    found = virtual_function._read_back(PORT, "0")
    assert (found["mac"], found["vlan"], found["trust"], found["state"]) == ("5a:00:00:00:00:01", "9", "off", "enable")
    with pytest.raises(OSError, match=f"{PORT} knows no function 1"):
        virtual_function._read_back(PORT, "1")


def test_program_ip_itself_is_asked_and_its_reason_is_passed_on() -> None:
    """Of this machine, about a card that has no functions."""
    with pytest.raises(
        OSError, match="ip link set dev lo vf 0 mac 5a:00:00:00:00:01: RTNETLINK answers: Operation not"
    ):
        virtual_function._give_identity(("lo", "0", "mac", "5a:00:00:00:00:01"))
    with pytest.raises(OSError, match="lo knows no function 0"):
        virtual_function._read_back("lo", "0")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("flags", "0x1002", f"{PORT} has no link"),
        ("carrier", "0", f"{PORT} has no link"),
        ("device/virtfn0", None, f"{PORT} has no virtual functions: write their number to "),
        ("", None, f"{PORT}: there is no such network card"),
    ],
)
def test_card_that_cannot_give_any_is_the_nodes_fault_and_the_doctors(
    having: Node, card: Card, tree: Tree, file: str, text: str | None, message: str
) -> None:
    if text is not None:
        (card.net / file).write_text(f"{text}\n")
    elif file:
        for link in (card.net / "device").glob("virtfn*"):
            link.unlink()
    else:
        (tree.sys / "class/net" / PORT).unlink()
    with pytest.raises(NodeFault, match=f"ens9: there is no such network card.*{message}") as caught:
        having.present(having.part(rdma="sriov"))
    assert caught.value.cause == "devices"
    assert present_absent.describe_leftovers(having.settings) == ()
    with pytest.raises(NodeFault, match=message):
        causes.check_devices(having.settings)
    found = doctor.check_devices(having.settings)
    assert (found.state, message in found.problem) == (doctor.BAD, True)


def test_third_guest_of_a_node_with_two_functions_waits(having: Node) -> None:
    having.present(having.part(2, rdma="sriov"))
    with pytest.raises(VTorqueError, match=r"(start 7[.]head[.]1|guest \S+) has it"):
        having.present(having.part(rdma="sriov", job_id="8.head"))
    with pytest.raises(VTorqueError, match="3 guests want a virtual function each, and 2 can be handed on"):
        having.present(having.part(3, rdma="sriov", job_id="9.head"))
    assert len(leases.read_leases(having.settings)) == 2


def test_function_in_quarantine_is_passed_over_and_named_when_it_is_the_last(having: Node) -> None:
    leases.quarantine(VFS[0], "it answers no more", having.settings)
    [facts] = having.present(having.part(rdma="sriov"))
    assert facts.devices == f"vrdma:sriov:{VFS[1]}"
    having.absent()
    leases.quarantine(VFS[1], "it answers no more", having.settings)
    with pytest.raises(NodeFault, match=f"{VFS[0]} is in quarantine: it answers no more"):
        having.present(having.part(start=2, rdma="sriov"))


def test_function_that_the_same_start_has_as_a_pci_device_is_not_given_twice(having: Node) -> None:
    having.settings = dataclasses.replace(having.settings, pci_classes=(class_of("nic", VFS[0]),))
    [facts] = having.present(having.part(rdma="sriov", pci=(DeviceWish("nic"),)))
    assert facts.devices == f"{VFS[0]} vrdma:sriov:{VFS[1]}"


def test_function_without_an_iommu_is_refused_before_it_is_touched(having: Node, card: Card, tree: Tree) -> None:
    before = card.functions
    (tree.place(VFS[0]) / "iommu_group").unlink()
    (tree.place(VFS[1]) / "iommu_group").unlink()
    with pytest.raises(NodeFault, match="no IOMMU protects the node's memory from it"):
        having.present(having.part(rdma="sriov"))
    assert card.functions == before
    assert tree.driver(VFS[0]) == "mlx5_core"


def test_driver_that_hangs_puts_the_function_in_quarantine(
    having: Node, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_function, "DEVICE_RETURN_S", 0.2)
    having.present(having.part(rdma="sriov"))
    tree.hangs.add("reset")
    assert any("in quarantine now" in arguments for arguments in having.absent())
    assert [one.device for one in leases.read_quarantine(having.settings)] == [VFS[0]]
    assert leases.read_leases(having.settings) == ()


def test_function_of_a_killed_start_comes_back_by_its_lease_alone(having: Node, card: Card, tree: Tree) -> None:
    having.present(having.part(rdma="sriov"))
    having.hypervisor.forget()
    assert f"device {VFS[0]} of 7.head.1" in present_absent.describe_leftovers(having.settings, "7.head", 1)
    having.absent()
    assert (tree.driver(VFS[0]), card.functions[0]["address"]) == ("mlx5_core", "00:00:00:00:00:00")


def test_functions_are_listed_and_drawn_with_the_other_devices_of_the_node(having: Node) -> None:
    having.present(having.part(rdma="sriov"))
    leases.quarantine(VFS[1], "it answers no more", having.settings)
    found = {one.address: one for one in host_devices.examine(having.settings)}
    assert [(found[vf].pci_class.name, found[vf].is_usable) for vf in VFS] == [("vrdma", True), ("vrdma", False)]
    held = [(one.address, one.pci_class, one.state, one.start) for one in occupancy._devices(having.settings)]
    assert held == [(VFS[0], "vrdma", occupancy.LEASED, "7.head.1"), (VFS[1], "vrdma", occupancy.QUARANTINE, "")]
    seen = doctor.check_devices(having.settings)
    assert (seen.state, seen.cell) == (doctor.BAD, "1/2")
    assert f"{VFS[1]} is in quarantine" in seen.problem


def test_node_takes_cards_and_vlan_from_the_sites_configuration() -> None:
    site = Policy(vrdma_enabled=True, vrdma_kind="sriov", vrdma_ports=(PORT, "ib0"), vrdma_vlan=7, confine_guests=False)
    found = settings_of(site, "cn1")
    assert (found.rdma_kind, found.rdma_ports, found.rdma_vlan) == ("sriov", (PORT, "ib0"), 7)


def test_site_that_confines_guests_hands_on_no_function(having: Node) -> None:
    having.settings = dataclasses.replace(having.settings, confine_guests=True)
    taking = virtual_function.Taking(
        "7.head.1", having.part(rdma="sriov").guests, having.settings, (), (), Deadline.after(9)
    )
    with pytest.raises(SiteFault, match="holds a guest on a virtual function to its address"):
        virtual_function.take(taking)


def test_node_of_another_kind_hands_on_no_function(having: Node) -> None:
    having.settings = dataclasses.replace(having.settings, rdma_kind="rxe")
    with pytest.raises(UserFault, match=r"guests of cn1 have no sriov \(RDMA here: rxe\)"):
        having.present(having.part(rdma="sriov"))

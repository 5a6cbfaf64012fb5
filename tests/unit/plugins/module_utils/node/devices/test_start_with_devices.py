# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start whose guests have devices of their node: made, ended, killed half way, and swept."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import doctor
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import causes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal.leftovers import (
    list_leftovers_without_libvirt,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.pci import DeviceWish

from ..conftest import Node
from .conftest import DISK, NIC, Tree, class_of

WISH = (DeviceWish("nic"),)


@pytest.fixture
def with_nic(node: Node, tree: Tree) -> Node:
    tree.add(NIC)
    node.settings = dataclasses.replace(node.settings, pci_classes=(class_of("nic", NIC), class_of("nvme", DISK)))
    return node


def test_guest_has_the_device_and_the_node_has_it_back(with_nic: Node, tree: Tree) -> None:
    for start in (1, 2):
        [facts] = with_nic.present(with_nic.part(start=start, pci=WISH))
        assert facts.devices == NIC
        assert tree.driver(NIC) == "vfio-pci"
        [domain] = with_nic.hypervisor.running.values()
        [device] = ET.fromstring(domain.xml).iterfind("devices/hostdev")
        assert device.get("managed") == "no"
        address = device.find("source/address")
        assert address is not None
        assert address.attrib == {"domain": "0x0000", "bus": "0x01", "slot": "0x00", "function": "0x0"}
        assert f"device {NIC}" in with_nic.absent(start)
        assert tree.driver(NIC) == "e1000e"
    assert leases.read_leases(with_nic.settings) == ()


def test_guest_without_devices_has_the_xml_that_it_had_before_there_were_any(node: Node) -> None:
    node.present()
    [domain] = node.hypervisor.running.values()
    assert "hostdev" not in domain.xml
    assert "    </channel>\n    <memballoon model='none'/>\n" in domain.xml
    assert not node.settings.devices_dir.exists()


def test_refused_device_leaves_no_trace_of_the_start(with_nic: Node, tree: Tree) -> None:
    tree.add_netdev()
    tree.with_address.add("eth9")
    with pytest.raises(SiteFault, match="eth9 has an address"):
        with_nic.present(with_nic.part(pci=WISH))
    assert list_leftovers_without_libvirt(with_nic.settings) == ()
    assert tree.driver(NIC) == "e1000e"


def test_device_of_a_start_that_did_not_come_up_is_given_back(with_nic: Node, tree: Tree) -> None:
    with_nic.hypervisor.refuses = "vfio: error getting device"
    with pytest.raises(VTorqueError, match="vfio: error"):
        with_nic.present(with_nic.part(pci=WISH))
    assert [thing.name for thing in list_leftovers_without_libvirt(with_nic.settings) if thing.kind == "device"] == [
        NIC
    ]
    with_nic.absent()
    assert tree.driver(NIC) == "e1000e"
    assert list_leftovers_without_libvirt(with_nic.settings) == ()


def test_device_whose_qemu_was_killed_with_libvirt_is_given_back(with_nic: Node, tree: Tree) -> None:
    """Nobody knows of the guest any more but its lease."""
    with_nic.present(with_nic.part(pci=WISH))
    with_nic.hypervisor.forget()
    assert f"device {NIC} of 7.head.1" in present_absent.describe_leftovers(with_nic.settings, "7.head", 1)
    with_nic.absent()
    assert tree.driver(NIC) == "e1000e"
    assert present_absent.describe_leftovers(with_nic.settings) == ()


def test_health_and_doctor_name_what_no_guest_can_have(with_nic: Node, tree: Tree) -> None:
    settings = dataclasses.replace(with_nic.settings, pci_classes=with_nic.settings.pci_classes[:1])
    causes.check_devices(settings)
    found = doctor.check_devices(settings)
    assert (found.state, found.cell) == ("ok", "1/1")
    leases.quarantine(NIC, "it answers no more", settings)
    with pytest.raises(NodeFault, match=r"0000:01:00.0: it answers no more") as fault:
        causes.check_devices(settings)
    assert fault.value.cause == "devices"
    found = doctor.check_devices(settings)
    assert (found.state, found.cell) == ("bad", "0/1")
    assert "is in quarantine: it answers no more" in found.problem
    leases.release(NIC, settings)
    tree.add_netdev()
    tree.with_address.add("eth9")
    causes.check_devices(settings)
    assert "eth9 has an address" in doctor.check_devices(settings).problem
    assert doctor.check_devices(dataclasses.replace(settings, pci_classes=())).state == "none"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mediated devices (vGPUs) of a start: as PCI devices by a class, without a driver to be bound or a reset of ours."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import api, host_devices, leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import read_facts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import pci

from ..conftest import spec
from .conftest import GPU, Tree

KEY = "7.head.1"
FIRST, SECOND = "3b33ef89-55f0-47d0-bcf7-e06aa1dd1806", "8a1d9f7c-0b58-4c4e-9a57-5d8b4c1f2e3d"


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    vgpu = pci.read_line(f"vgpu {FIRST} {SECOND} kind=mdev")
    return NodeSettings("cn1", 1, state_dir=tmp_path / "state", run_dir=tmp_path / "run", pci_classes=(vgpu,))


def add(tree: Tree, uuid: str, parent: pathlib.Path, group: str = "90") -> None:
    """A device as mdev_register_parent of the kernel has it: below its parent, with a group of its own."""
    place = parent / uuid
    place.mkdir()
    bus = tree.sys / "bus/mdev/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / uuid).symlink_to(place)
    if group:
        there = tree.sys / "kernel/iommu_groups" / group
        there.mkdir(parents=True)
        (place / "iommu_group").symlink_to(there)


@pytest.fixture
def parent(tree: Tree) -> pathlib.Path:
    """The node's GPU, near its second cell, of which the driver has made two parts."""
    place = tree.add(GPU, code="0x030000", driver="nvidia", numa_node="1")
    add(tree, FIRST, place, "90")
    add(tree, SECOND, place, "91")
    return place


def taking(settings: NodeSettings, count: int = 1, **more: t.Any) -> api.Taking:
    wanting = spec(0, pci=(pci.DeviceWish("vgpu", count),))
    values = {"guests": (wanting,), "domains": (), "cores": (), "deadline": Deadline.after(60), **more}
    return api.Taking(values.pop("key", KEY), settings=settings, **values)


@pytest.mark.usefixtures("parent")
def test_guest_gets_the_first_free_one_and_its_lease_ends_with_the_start(tree: Tree, settings: NodeSettings) -> None:
    [device] = host_devices.take(taking(settings))[0]
    assert (device.kind, device.name, device.fragment) == ("mdev", FIRST, "devices/mdev.xml.j2")
    assert (device.numa_node, device.root) == (1, "pci0000:00")
    assert leases.read_leases(settings) == (leases.Lease(FIRST, KEY, 0, "mdev"),)
    [other] = host_devices.take(taking(settings, key="8.head.1"))[0]
    assert other.name == SECOND
    host_devices.attach([device], (0, 0), Deadline.after(60))
    assert tree.driver(GPU) == "nvidia", "whose driver makes the parts keeps it"
    assert host_devices.give_back(settings, KEY) == (f"device {FIRST}",)
    assert [lease.device for lease in leases.read_leases(settings)] == [SECOND]


@pytest.mark.usefixtures("parent")
def test_one_that_a_domain_has_is_no_other_guests(settings: NodeSettings) -> None:
    xml = (
        "<domain><name>other</name><devices><hostdev mode='subsystem' type='mdev' model='vfio-pci'>"
        f"<source><address uuid='{FIRST}'/></source></hostdev></devices></domain>"
    )
    domains = (read_facts(xml, "running", persistent=False),)
    assert [one.name for one in host_devices.take(taking(settings, domains=domains))[0]] == [SECOND]
    with pytest.raises(VTorqueError, match=f"{FIRST}: guest other has it") as error:
        host_devices.take(taking(settings, 2, key="8.head.1", domains=domains))
    assert type(error.value) is VTorqueError, "another time there will be one"


def test_one_that_nobody_made_is_the_nodes_fault(tree: Tree, settings: NodeSettings) -> None:
    tree.add(GPU, code="0x030000", driver="nvidia")
    with pytest.raises(NodeFault, match=r"there is no such device \(mdevctl start, and mdevctl list\)"):
        host_devices.take(taking(settings))


@pytest.mark.usefixtures("parent")
def test_too_few_are_the_users_fault(settings: NodeSettings) -> None:
    with pytest.raises(UserFault, match="cn1 has fewer of them"):
        host_devices.take(taking(settings, 3))


def test_all_that_speaks_against_one_is_said_at_once(tree: Tree, settings: NodeSettings) -> None:
    add(tree, FIRST, tree.add(GPU, code="0x030000", driver="nvidia", vendor=0xFFFF), group="")
    with pytest.raises(NodeFault) as fault:
        host_devices.take(taking(settings))
    assert f"{GPU}, of which it is a part, does not answer" in fault.value.why
    assert f"the driver of {GPU} has not made it ready for vfio" in fault.value.why


def test_one_whose_parent_died_under_its_guest_is_in_quarantine(parent: pathlib.Path, settings: NodeSettings) -> None:
    host_devices.take(taking(settings))
    (parent / "config").write_bytes(b"\xff" * 64)
    [done] = host_devices.give_back(settings, KEY)
    assert done == f"device {FIRST}, which is in quarantine now: {GPU}, of which it is a part, does not answer"
    assert leases.read_leases(settings) == ()
    [held] = leases.read_quarantine(settings)
    assert held.device == FIRST


def test_part_of_a_device_without_registers_is_alive(tree: Tree, settings: NodeSettings) -> None:
    """A driver may make parts of nothing, as the kernel's own examples do."""
    virtual = tree.sys / "devices/virtual/mtty/mtty"
    virtual.mkdir(parents=True)
    add(tree, FIRST, virtual)
    [device] = host_devices.take(taking(settings))[0]
    assert (device.name, device.numa_node, device.root) == (FIRST, -1, "")
    assert host_devices.give_back(settings, KEY) == (f"device {FIRST}",)


@pytest.mark.usefixtures("parent")
def test_doctor_examines_them_as_all_devices(settings: NodeSettings) -> None:
    found = host_devices.examine(settings)
    assert [(one.address, one.is_usable, one.numa_node) for one in found] == [(FIRST, True, 1), (SECOND, True, 1)]

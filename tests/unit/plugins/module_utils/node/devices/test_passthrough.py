# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices of a start: chosen, leased, given to vfio-pci, and given back, whatever hangs."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import api, host_devices, leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci import passthrough
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import read_facts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.pci import DeviceWish

from ..conftest import spec
from .conftest import DISK, GPU, NIC, Tree, class_of

KEY = "7.head.1"
SECOND = "0000:06:00.0"


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    read = files.read_json
    monkeypatch.setattr(files, "read_json", lambda path: read(path))
    return NodeSettings(
        "cn1", 1, state_dir=tmp_path / "state", run_dir=tmp_path / "run",
        pci_classes=(class_of("nic", NIC, SECOND), class_of("nvme", DISK)),
    )  # fmt: skip


def taking(settings: NodeSettings, *wishes: str, key: str = KEY, guests: int = 1, **more: t.Any) -> api.Taking:
    asked = []
    for text in wishes:
        name, _colon, count = text.partition("*")
        asked.append(DeviceWish(name, int(count or 1)))
    specs = tuple(spec(index, pci=tuple(asked)) for index in range(guests))
    return api.Taking(key, specs, settings, **{"domains": (), "cores": (), "deadline": Deadline.after(60), **more})


def names(found: t.Mapping[int, tuple[api.HostDevice, ...]]) -> dict[int, list[str]]:
    return {guest: [device.name for device in devices] for guest, devices in found.items()}


def test_take_class_leases_the_first_free_devices(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add(SECOND)
    tree.add_disk()
    found = host_devices.take(taking(settings, "nic", "nvme"))
    assert names(found) == {0: [NIC, DISK]}
    assert leases.read_leases(settings) == (
        leases.Lease(NIC, KEY, 0, "pci", "e1000e"), leases.Lease(DISK, KEY, 0, "pci", "nvme"),
    )  # fmt: skip
    assert names(host_devices.take(taking(settings, "nic", key="8.head.1"))) == {0: [SECOND]}
    with pytest.raises(VTorqueError, match=r"start 7.head.1 has it") as error:
        host_devices.take(taking(settings, "nic", key="9.head.1"))
    assert type(error.value) is VTorqueError, "another time there will be one"


def test_take_class_prefers_what_is_near_the_cores_of_the_job(tree: Tree, settings: NodeSettings) -> None:
    """The second of the list is near the job's cell; one that has a fault is no choice, however near."""
    tree.add(NIC, numa_node="0")
    tree.add(SECOND, numa_node="1")
    [device] = host_devices.take(taking(settings, "nic", cores=(2, 3)))[0]
    assert (device.name, device.numa_node, device.root) == (SECOND, 1, "pci0000:00")
    assert names(host_devices.take(taking(settings, "nic", key="8.head.1", cores=(2, 3)))) == {0: [NIC]}


def test_take_again_by_the_same_start_finds_its_own(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add(SECOND)
    host_devices.take(taking(settings, "nic"))
    assert names(host_devices.take(taking(settings, "nic"))) == {0: [NIC]}


def test_take_gives_each_guest_its_own(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add(SECOND)
    assert names(host_devices.take(taking(settings, "nic", guests=2))) == {0: [NIC], 1: [SECOND]}


def test_take_prefers_a_device_that_nothing_speaks_against(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add_netdev()
    tree.with_address.add("eth9")
    tree.add(SECOND)
    assert names(host_devices.take(taking(settings, "nic"))) == {0: [SECOND]}
    with pytest.raises(SiteFault, match="eth9 has an address"):
        host_devices.take(taking(settings, "nic*2"))


def test_take_that_is_refused_touches_nothing(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add_disk()
    tree.busy.add("nvme0n1")
    with pytest.raises(SiteFault):
        host_devices.take(taking(settings, "nic", "nvme"))
    assert leases.read_leases(settings) == ()
    assert (tree.driver(NIC), tree.driver(DISK)) == ("e1000e", "nvme")


def test_take_address_that_the_site_does_not_list_is_refused(tree: Tree, settings: NodeSettings) -> None:
    tree.add(GPU, code="0x030000")
    with pytest.raises(UserFault, match="hands on no such device"):
        host_devices.take(taking(settings, GPU))
    tree.add(NIC)
    assert names(host_devices.take(taking(settings, NIC))) == {0: [NIC]}


def test_take_where_no_memory_may_be_locked_is_fault_of_node(
    tree: Tree, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that lacks CAP_SYS_RESOURCE."""
    tree.add(NIC)
    (tree.proc / "self/status").write_text("CapEff:\t00000000a80425fb\n")
    monkeypatch.setattr(passthrough.resource, "getrlimit", lambda _which: (8 << 20, 8 << 20))
    with pytest.raises(NodeFault, match="8 MiB may be locked here"):
        host_devices.take(taking(settings, "nic"))


def test_take_far_device_of_a_class_that_is_near_is_refused(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC, numa_node="1")
    near = dataclasses.replace(settings, pci_classes=(dataclasses.replace(settings.pci_classes[0], numa=True),))
    with pytest.raises(UserFault, match="near NUMA cell 1, the job has cores of 0"):
        host_devices.take(taking(near, NIC, cores=(0, 1)))
    assert names(host_devices.take(taking(near, NIC, cores=(1, 2)))) == {0: [NIC]}


def test_take_class_that_the_node_has_not_is_refused(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    with pytest.raises(UserFault, match=r"classes: nic, nvme"):
        host_devices.take(taking(settings, "gpu"))
    with pytest.raises(UserFault, match="has fewer of them"):
        host_devices.take(taking(settings, "nic*3"))


def granted(settings: NodeSettings, *addresses: str) -> NodeSettings:
    nics = dataclasses.replace(settings.pci_classes[0], resource="nics", granted=addresses)
    return dataclasses.replace(settings, pci_classes=(nics, settings.pci_classes[1]))


def test_take_what_the_batch_system_gave_and_nothing_else(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add(SECOND)
    assert names(host_devices.take(taking(granted(settings, SECOND), "nic"))) == {0: [SECOND]}
    with pytest.raises(UserFault, match="gave the job 0 of them"):
        host_devices.take(taking(granted(settings), "nic"))
    with pytest.raises(UserFault, match="did not give it to the job"):
        host_devices.take(taking(granted(settings, SECOND), NIC))


def test_take_device_of_another_domain_is_refused(tree: Tree, settings: NodeSettings) -> None:
    """Also of one that is none of ours: libvirt's own word."""
    tree.add(NIC)
    xml = (
        "<domain><name>other</name><devices><hostdev><source><address domain='0x0000' bus='0x01' slot='0x00'"
        " function='0x0'/></source></hostdev></devices></domain>"
    )
    with pytest.raises(VTorqueError, match="guest other has it"):
        host_devices.take(taking(settings, NIC, domains=(read_facts(xml, "running", False),)))


def test_take_device_in_quarantine_puts_the_node_offline(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add(SECOND)
    leases.quarantine(NIC, "it answers no more", settings)
    assert names(host_devices.take(taking(settings, "nic"))) == {0: [SECOND]}, "another of the class is as good"
    with pytest.raises(NodeFault, match=r"in quarantine on cn1: 0000:01:00.0: it answers no more") as error:
        host_devices.take(taking(settings, NIC, key="8.head.1"))
    assert error.value.cause == "devices"
    with pytest.raises(NodeFault):
        host_devices.take(taking(granted(settings, NIC), "nic", key="8.head.1"))
    assert leases.release(NIC, settings)
    assert not leases.release(NIC, settings)
    assert names(host_devices.take(taking(settings, NIC, key="8.head.1"))) == {0: [NIC]}


def take_and_attach(settings: NodeSettings, *wishes: str) -> None:
    for devices in host_devices.take(taking(settings, *wishes)).values():
        host_devices.attach(devices, (0, 0), Deadline.after(30))


def test_device_comes_back_to_its_driver(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    for _job in range(2):
        take_and_attach(settings, "nic")
        assert tree.driver(NIC) == "vfio-pci"
        assert host_devices.give_back(settings, KEY) == (f"device {NIC}",)
        assert tree.driver(NIC) == "e1000e"
        assert (tree.place(NIC) / "driver_override").read_text() == "(null)\n"
    assert leases.read_leases(settings) == ()
    assert leases.read_quarantine(settings) == ()


def test_device_that_is_vfios_for_good_stays_so(tree: Tree, settings: NodeSettings) -> None:
    (tree.add(NIC, driver="vfio-pci") / "driver_override").write_text("vfio-pci\n")
    take_and_attach(settings, "nic")
    host_devices.give_back(settings, KEY)
    assert tree.driver(NIC) == "vfio-pci"
    assert (tree.place(NIC) / "driver_override").read_text() == "vfio-pci\n"


def test_give_back_before_attach_leaves_all_as_it_was(tree: Tree, settings: NodeSettings) -> None:
    """The process that made the guests was killed between lease and driver."""
    tree.add(NIC)
    host_devices.take(taking(settings, "nic"))
    assert host_devices.give_back(settings, KEY) == (f"device {NIC}",)
    assert tree.driver(NIC) == "e1000e"


@pytest.mark.parametrize("file", ["unbind", "reset", "drivers_probe"])
def test_give_back_that_hangs_ends_in_quarantine(
    tree: Tree, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    tree.add(NIC)
    take_and_attach(settings, "nic")
    monkeypatch.setattr(passthrough, "DEVICE_RETURN_S", 0.3)
    tree.hangs.add(file)
    [done] = host_devices.give_back(settings, KEY)
    assert done.startswith(f"device {NIC}, which is in quarantine now: process ")
    [found] = leases.read_quarantine(settings)
    assert (found.device, "has not ended in time" in found.why) == (NIC, True)
    assert leases.read_leases(settings) == ()


def test_device_that_dies_of_its_reset_is_quarantined(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    take_and_attach(settings, "nic")
    tree.dies.add(NIC)
    host_devices.give_back(settings, KEY)
    assert [one.why for one in leases.read_quarantine(settings)] == ["it answers no more"]


def test_device_whose_driver_does_not_take_it_back_is_quarantined(
    tree: Tree, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add(NIC)
    take_and_attach(settings, "nic")
    monkeypatch.setitem(tree.usual, NIC, "another")
    host_devices.give_back(settings, KEY)
    assert [one.why for one in leases.read_quarantine(settings)] == ["its driver is another and not e1000e"]


def test_attach_that_hangs_fails_in_time(tree: Tree, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.add(NIC)
    tree.hangs.add("unbind")
    found = host_devices.take(taking(settings, "nic"))
    monkeypatch.setattr(passthrough, "DEVICE_ATTACH_S", 0.3)
    with pytest.raises(VTorqueError, match=r"was not given to vfio-pci: process .* has not ended in time"):
        host_devices.attach(found[0], (0, 0), Deadline.after(30))


def test_node_without_devices_loads_and_reads_nothing(settings: NodeSettings) -> None:
    assert host_devices.give_back(settings, KEY) == ()
    assert not settings.devices_dir.exists()


def test_leases_of_an_earlier_boot_are_forgotten_alone(tree: Tree, settings: NodeSettings) -> None:
    tree.add(NIC)
    tree.add(SECOND)
    host_devices.take(taking(settings, "nic"))
    host_devices.take(taking(settings, "nic", key="8.head.1"))
    assert leases.free(settings, KEY) == (NIC,)
    assert [lease.device for lease in leases.read_leases(settings)] == [SECOND]

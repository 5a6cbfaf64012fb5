# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May a device be handed on: each thing that speaks against it, alone and all at once, from a tree as sysfs has it."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci import inventory, preflight, usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.pci import PciClass

from .conftest import DISK, GPU, NIC, Tree, class_of

RAM = {0: 512, 1: 512}


def faults(tree: Tree, *classes: PciClass, node: preflight.Node | None = None, other: str = "") -> list[str]:
    chosen = []
    for number, pci_class in enumerate(classes):
        device = inventory.inspect(pci_class.addresses[0], tree.sys)
        uses = usage.Usage(tree.host).of(device)
        chosen.append(preflight.ChosenDevice(device, pci_class, number, uses, other))
    seen = node or preflight.Node(
        inventory.has_groups(tree.sys), inventory.is_unsafe(tree.sys), inventory.has_vfio(tree.sys)
    )
    return [f"{fault.owner}: {fault}" for fault in preflight.find_faults(chosen, seen, RAM)]


def nic(**changes: t.Any) -> PciClass:
    return class_of("nic", NIC, **changes)


def test_preflight_device_of_its_own_group_passes(tree: Tree) -> None:
    tree.add(NIC)
    tree.add_netdev()
    assert faults(tree, nic()) == []


def test_preflight_no_iommu_is_fault_of_node(tree: Tree) -> None:
    tree.add(NIC, group="")
    [found] = faults(tree, nic())
    assert found.startswith(f"node: {NIC}: no IOMMU")
    assert "intel_iommu=on" in found


def test_preflight_interrupts_not_remapped_is_fault_of_node(tree: Tree) -> None:
    tree.add(NIC)
    parameters = tree.sys / "module/vfio_iommu_type1/parameters"
    parameters.mkdir(parents=True)
    (parameters / "allow_unsafe_interrupts").write_text("Y\n")
    [found] = faults(tree, nic())
    assert found.startswith("node:")
    assert "not remapped" in found


def test_preflight_vfio_not_loaded_is_fault_of_node(tree: Tree) -> None:
    tree.add(NIC)
    (tree.sys / "bus/pci/drivers/vfio-pci").rmdir()
    [found] = faults(tree, nic())
    assert "modprobe vfio-pci" in found


def test_preflight_no_such_device_is_fault_of_node(tree: Tree) -> None:
    tree.add(GPU)
    [found] = faults(tree, nic())
    assert found.startswith(f"node: {NIC}: class nic lists it, and there is no such device")


def test_preflight_device_that_answers_nothing_is_fault_of_node(tree: Tree) -> None:
    tree.add(NIC, vendor=0xFFFF, power_state="D3cold")
    [found] = faults(tree, nic())
    assert "node: " in found
    assert "does not answer, power state D3cold" in found


@pytest.mark.parametrize(("code", "sentence"), [
    ("0x010802", "it is of class 0108, and nic is 0200 or 0207"),
    ("0x060400", "it is a bridge (class 0604)"),
])  # fmt: skip
def test_preflight_device_of_another_class_is_fault_of_site(tree: Tree, code: str, sentence: str) -> None:
    tree.add(NIC, code=code)
    [found] = faults(tree, nic())
    assert found.startswith("site: ")
    assert sentence in found


def test_preflight_card_with_virtual_functions_is_fault_of_site(tree: Tree) -> None:
    tree.add(NIC, sriov_numvfs="2")
    [found] = faults(tree, nic())
    assert "2 virtual functions of it are switched on" in found


def test_preflight_function_whose_card_has_no_driver_is_fault_of_site(tree: Tree) -> None:
    card = tree.add("0000:01:00.1", driver="", group="9")
    (tree.add(NIC) / "physfn").symlink_to(card)
    [found] = faults(tree, nic())
    assert "site: " in found
    assert "0000:01:00.1, of which it is a virtual function, has no driver" in found


def test_preflight_company_in_group_is_fault_of_site_and_named(tree: Tree) -> None:
    tree.add(NIC, group="4")
    tree.add("0000:04:01.0", group="4", driver="snd_hda")
    tree.add("0000:04:02.0", group="4", driver="")
    tree.add("0000:00:04.0", group="4", code="0x060400", driver="pcieport", bus="0000:00")
    [found] = faults(tree, nic())
    assert "site: " in found
    assert "its IOMMU group 4 has others: 0000:04:01.0 (snd_hda) (" in found


def test_preflight_group_that_goes_along_passes_but_not_to_two_guests(tree: Tree) -> None:
    tree.add(NIC, group="4")
    tree.add(DISK, code="0x010802", driver="nvme", group="4")
    both = [inventory.inspect(address, tree.sys) for address in (NIC, DISK)]

    def found(*guests: int) -> int:
        chosen = [
            preflight.ChosenDevice(one, class_of("any", one.address), guest)
            for one, guest in zip(both, guests, strict=True)
        ]
        return len(preflight.find_faults(chosen, preflight.Node(), RAM))

    assert found(0, 0) == 0
    assert found(0, 1) == 2


@pytest.mark.parametrize(("use", "sentence"), [
    ("mount", "nvme0n1p1 is mounted on /data"),
    ("swap", "nvme0n1p1 is swap space"),
    ("holder", "nvme0n1 is part of md0"),
    ("pool", "nvme0n1 is in use by the kernel"),
    ("program", "/dev/nvme0 is open in smartd (77)"),
])  # fmt: skip
def test_preflight_disk_in_use_is_fault_of_site(tree: Tree, use: str, sentence: str) -> None:
    tree.add_disk()
    if use == "mount":
        (tree.proc / "1").mkdir()
        (tree.proc / "1/mountinfo").write_text("30 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n")
    elif use == "swap":
        (tree.proc / "swaps").write_text("Filename Type Size Used Priority\n/dev/nvme0n1p1 partition 1 0 -2\n")
    elif use == "holder":
        (tree.sys / "class/block/nvme0n1/holders/md0").touch()
    elif use == "pool":
        tree.busy.add("nvme0n1")
    else:
        tree.add_program(77, "smartd", "/dev/nvme0")
    [found] = faults(tree, class_of("nvme", DISK))
    assert found.startswith(f"site: {DISK}: ")
    assert sentence in found


@pytest.mark.parametrize(("use", "sentence"), [
    ("address", "eth9 has an address"),
    ("ipv6", "eth9 has an address"),
    ("route", "a route leads over eth9"),
    ("bridge", "eth9 belongs to br0"),
    ("vlan", "eth9 belongs to eth9.5"),
])  # fmt: skip
def test_preflight_card_in_use_is_fault_of_site(tree: Tree, use: str, sentence: str) -> None:
    tree.add(NIC)
    card = tree.add_netdev()
    own = "fe80000000000000005400fffe000001 02 40 20 80     eth9\n"
    (tree.proc / "net/if_inet6").write_text(own)
    if use == "address":
        tree.with_address.add("eth9")
    elif use == "ipv6":
        (tree.proc / "net/if_inet6").write_text(own + "20010db8000000000000000000000001 02 40 00 80 eth9\n")
    elif use == "route":
        (tree.proc / "net/route").write_text("Iface\tDestination\tGateway\neth9\t0000000A\t00000000\t0001\n")
    elif use == "bridge":
        (card / "master").symlink_to(tree.sys / "class/net/br0")
    else:
        (card / "upper_eth9.5").symlink_to(tree.sys)
    [found] = faults(tree, nic())
    assert found.startswith("site: ")
    assert sentence in found


def test_preflight_screen_of_console_is_fault_of_site(tree: Tree) -> None:
    tree.add(GPU, code="0x030000", boot_vga="1")
    [found] = faults(tree, class_of("gpu", GPU))
    assert "screen of the node's console" in found


def test_preflight_programs_of_nvidia_are_named(tree: Tree) -> None:
    """The driver of NVIDIA makes files in /dev of which sysfs knows nothing."""
    tree.add(GPU, code="0x030200", driver="nvidia")
    facts = tree.proc / usage.NVIDIA / GPU
    facts.mkdir(parents=True)
    (facts / "information").write_text("Model: \t A100\nDevice Minor: \t 3\n")
    tree.add_program(80, "nvidia-persiste", "/dev/nvidia3")
    [found] = faults(tree, class_of("gpu", GPU))
    assert "/dev/nvidia3 is open in nvidia-persiste (80)" in found


def test_preflight_device_of_another_guest_is_for_another_time(tree: Tree) -> None:
    tree.add(NIC)
    [found] = faults(tree, nic(), other="guest vcn1-2")
    assert found.startswith("retry: ")
    assert "guest vcn1-2 has it" in found


def test_preflight_device_without_reset_is_fault_of_site_unless_any(tree: Tree) -> None:
    tree.add(NIC, resets=None)
    [found] = faults(tree, nic())
    assert "site: " in found
    assert "no way to reset it" in found
    assert faults(tree, nic(reset=False)) == []


def test_preflight_reset_by_a_bus_with_others_is_fault_of_site(tree: Tree) -> None:
    tree.add(NIC, resets="bus", bus="0000:00:07.0")
    tree.add("0000:01:01.0", bus="0000:00:07.0", group="8")
    [found] = faults(tree, nic())
    assert "it can be reset with its bus alone, where others are: 0000:01:01.0" in found


def test_preflight_memory_that_may_not_be_locked_is_fault_of_node(tree: Tree) -> None:
    tree.add(NIC)
    assert faults(tree, nic(), node=preflight.Node(lockable_mib=512 + 1024)) == []
    [found] = faults(tree, nic(), node=preflight.Node(lockable_mib=1000))
    assert "its guest locks 1536 MiB of memory, and 1000 MiB may be locked here" in found


def test_preflight_regions_that_fit_no_guest_are_fault_of_site(tree: Tree) -> None:
    large = f"0x1000000000 {0x1000000000 + (80 << 30) - 1:#x} 0x000000000014220c\n"
    tree.add(GPU, code="0x030200", resource=large)
    [found] = faults(tree, class_of("gpu", GPU))
    assert "81920 MiB of memory regions" in found


def test_preflight_far_device_is_fault_of_user_where_the_class_wants_it_near(tree: Tree) -> None:
    tree.add(NIC, numa_node="1")
    here = preflight.Node(cells=(0,))
    assert faults(tree, nic(), node=here) == []
    [found] = faults(tree, nic(numa=True), node=here)
    assert found.startswith("user: ")
    assert "near NUMA cell 1, the job has cores of 0" in found


def test_preflight_names_all_faults_of_all_devices_in_one_error(tree: Tree) -> None:
    tree.add(NIC, resets=None)
    tree.add_netdev()
    tree.with_address.add("eth9")
    tree.add_disk()
    tree.busy.add("nvme0n1")
    found = []
    for address in (NIC, DISK):
        device = inventory.inspect(address, tree.sys)
        uses = usage.Usage(tree.host).of(device)
        found.append(preflight.ChosenDevice(device, class_of("any", address), 0, uses))
    error = preflight.error_of(preflight.find_faults(found, preflight.Node(), RAM), "cn1")
    assert isinstance(error, SiteFault)
    for sentence in ("no way to reset it", "eth9 has an address", "nvme0n1 is in use"):
        assert sentence in error.why


@pytest.mark.parametrize(("owners", "kind"), [
    (("retry", "site", "node"), NodeFault),
    (("retry", "user", "site"), SiteFault),
    (("retry",), VTorqueError),
])  # fmt: skip
def test_error_is_of_the_owner_who_must_act_first(owners: tuple[str, ...], kind: type[VTorqueError]) -> None:
    faults = [preflight.Fault(owner, NIC, "why", "hint") for owner in owners]
    assert type(preflight.error_of(faults, "cn1")) is kind

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices of the node in guests, through the machine's own IOMMU."""

from __future__ import annotations

import typing as t

import pytest

from lab.machine import machine
from lab.stories import devices as story
from lab.system.state import State

from ..conftest import CHECKOUT
from ..trouble import revive
from .conftest import CARD, MachineSite, handed_on

DISK, NO_RESET, PAIR = "0000:02:00.0", "0000:00:06.0", ("0000:05:01.0", "0000:05:02.0")
"""As the machine has them (lab/machine/hardware.py)."""
pytestmark = pytest.mark.full
KVM = "img=tiny,hypervisor=kvm,ram=256M"
JOB = """#!/bin/sh
for device in /sys/bus/pci/devices/*; do echo $(cat $device/vendor $device/device); done
"""
TURNS = 20
TURN = f"""
import pathlib
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import api, host_devices
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages, pci
settings = NodeSettings("cn1", 1, pci_classes=(pci.read_line("nic {CARD}"),))
guest = messages.GuestSpec(
    rank=0, index=0, image="tiny", distro="debian", arch="x86_64", vcpus=1, ram_mib=64, hypervisor="kvm",
    fs_type="sharedfs", host_key=None, authorized_key=None, pci=(pci.DeviceWish("nic", 1),),
)
driver = pathlib.Path("/sys/bus/pci/devices/{CARD}/driver")
for turn in range({TURNS}):
    start = str(900 + turn) + ".fe.1"
    taken = host_devices.take(api.Taking(start, (guest,), settings, (), (), Deadline.after(300)))
    host_devices.attach(taken[0], (0, 0), Deadline.after(300))
    there = driver.resolve().name
    print(there, *host_devices.give_back(settings, start), driver.resolve().name)
"""
"""Starts without a guest, by the functions that a start calls; with guests the tests below do the same."""
DRIVER = "basename $(readlink /sys/bus/pci/devices/{}/driver)"


@pytest.fixture
def devices(site: MachineSite) -> t.Iterator[MachineSite]:
    """The site hands on devices of its node."""
    with handed_on(site, f"nic {CARD}", f"nvme {DISK}", f"odd {NO_RESET} {PAIR[0]}"):
        yield site


def driver(site: MachineSite, address: str) -> str:
    return site.root("cn1", DRIVER.format(address)).strip()


def test_card_is_in_the_guest_and_back_at_its_driver_for_the_next_job(devices: MachineSite) -> None:
    script = devices.write("/home/alice/devices.sh", JOB)
    for _job in range(2):
        assert driver(devices, CARD) == "e1000e"
        ended = devices.job("-l", "nodes=1:ppn=2", "-vm", f"{KVM},pci=nic:1", script)
        assert ended.exit_status == 0, ended.err
        assert "0x8086 0x10d3" in ended.out.splitlines(), "an e1000e, which qemu itself would not have given"
        assert driver(devices, CARD) == "e1000e"
    assert devices.root("cn1", "ls /var/lib/vtorque/devices/leases").split() == []
    assert "free" in devices.root("cn1", f"vmgr node devices | grep {CARD}")


def test_devices_that_must_stay_are_refused_all_at_once(devices: MachineSite) -> None:
    """One without a reset, one with company in its group, and a disk that is mounted: nothing is taken from anybody."""
    devices.machine("modprobe", "e1000")
    mount = f"""
        block=$(basename $(ls -d /sys/bus/pci/devices/{DISK}/nvme/nvme*/nvme*n1))
        mknod /dev/$block b $(tr : ' ' </sys/class/block/$block/dev)
        mkfs.ext4 -q /dev/$block; mkdir -p /mnt/disk; mount /dev/$block /mnt/disk; echo $block
    """
    block = devices.root("cn1", mount).strip()
    script = devices.write("/home/alice/devices.sh", JOB)
    try:
        job_id = devices.submit("-l", "nodes=1:ppn=2", "-vm", f"{KVM},pci=odd:2+nvme:1", script)
        devices.wait_state(job_id, "H")
        record = devices.stored("cn1", job_id)
        assert devices.on("fe", "qdel", job_id, user="alice").returncode == 0
        for sentence in (
            f"{NO_RESET}: there is no way to reset it",
            f"has others: {PAIR[1]} (e1000)",
            f"{DISK}: {block} is mounted on /mnt/disk",
        ):
            assert sentence in record
        assert (driver(devices, DISK), driver(devices, PAIR[0])) == ("nvme", "e1000")
    finally:
        devices.root("cn1", f"umount /mnt/disk; rm /dev/{block}")


def test_device_of_a_killed_guest_is_the_nodes_again(devices: MachineSite) -> None:
    """Kill -9 of qemu and of libvirtd: the end of the job gives the card back."""
    script = devices.write("/home/alice/devices.sh", f"{JOB}touch here\nsleep 3600\n")
    job_id = devices.submit("-l", "nodes=1:ppn=2", "-vm", f"{KVM},pci={CARD}", script)
    devices.await_file(job_id, "/home/alice/here")
    assert driver(devices, CARD) == "vfio-pci"
    devices.root("cn1", "kill -9 $(cat /run/libvirtd.pid) $(pidof qemu-system-x86_64)")
    devices.root("cn1", revive("libvirt"))
    devices.end(job_id)
    devices.wait_for("the card to be back", lambda: driver(devices, CARD) == "e1000e")
    assert devices.root("cn1", "ls /var/lib/vtorque/devices/leases").split() == []


def test_device_goes_to_one_start_after_the_other_and_comes_back_each_time(devices: MachineSite) -> None:
    out = devices.on("cn1", "/opt/vtorque/venv/bin/python", "-I", "-c", TURN)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == [f"vfio-pci device {CARD} e1000e"] * TURNS
    assert devices.root("cn1", "ls /var/lib/vtorque/devices/leases").split() == []


def test_two_guests_of_a_job_have_a_cell_huge_pages_and_a_card_each(site: MachineSite) -> None:
    """As `make demo STORY=devices` has it, which sees to what it prints."""
    lines: list[str] = []
    report = story.Story(machine.state_of(State()), lines.append)
    report.find_nodes()
    programs = CHECKOUT / "build/story-programs"  # the machine has a /tmp of its own
    story.copy_programs(programs)
    with handed_on(site, f"nic {' '.join(story.CARDS)}"):
        report.run(programs)
    assert sum(story.CARD_ID in line for line in lines) == 2, lines

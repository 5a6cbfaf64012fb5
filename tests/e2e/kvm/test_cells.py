# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest by KVM on two cells of its node: what it sees of them, and where the node has its memory."""

from __future__ import annotations

import re

import pytest

from lab.stories.devices import CARDS

from .conftest import MachineSite, handed_on

pytestmark = pytest.mark.full

JOB = """#!/bin/sh
for cell in /sys/devices/system/node/node[0-9]*; do
    echo "$(basename $cell): $(cat $cell/cpulist); $(cat $cell/distance); $(sed -n 's/.*MemTotal: *//p' $cell/meminfo)"
done
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
dmesg 2>/dev/null | grep -o 'KVM_HINTS_REALTIME' | head -n 1
touch seen
while [ ! -e done ]; do sleep 1; done
"""
QEMU = """
pid=$(pidof qemu-system-x86_64)
tr '\\0' '\\n' <"/proc/$pid/cmdline" | grep -A1 -x -e -cpu -e -smp
cat "/proc/$pid/numa_maps"
"""
POOL = "cat /sys/devices/system/node/node?/hugepages/hugepages-2048kB/nr_hugepages"


def test_guest_on_two_cells_has_the_memory_of_each_and_knows_that_its_cores_are_its_own(site: MachineSite) -> None:
    """The machine has two cells of two processors: one is the host's share, and the guest has the other three."""
    before = site.machine("/bin/sh", "-c", POOL)
    script = site.write("/home/alice/cells.sh", JOB)
    job_id = site.submit(
        "-l", "nodes=cn1:ppn=4", "-vm",
        "img=tiny,hypervisor=kvm,vcpus=3,ram=384M,vcpu_pinning=true,hugepages=2M", script,
    )  # fmt: skip
    site.await_file(job_id, "/home/alice/seen")
    qemu = site.machine("/bin/sh", "-c", QEMU)
    site.root("fe", "touch /home/alice/done")
    ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    assert sorted(re.findall(r"(bind:\d) file=/memfd:.* huge .*N(\d)=(\d+)", qemu)) == [
        ("bind:0", "0", "64"), ("bind:1", "1", "128"),
    ], qemu  # fmt: skip
    assert re.search(r"^-cpu\nhost,migratable=off.*kvm-hint-dedicated=on", qemu, re.MULTILINE), qemu
    cells = re.findall(r"^node(\d): (\S+); (\d+) (\d+);", ended.out, re.MULTILINE)
    assert [cell[:2] for cell in cells] == [("0", "0"), ("1", "1-2")], ended.out
    assert cells[0][2] == cells[1][3] == "10"
    assert cells[0][3] == cells[1][2] != "10"
    assert re.search(r"^(kvm-clock|tsc)$", ended.out, re.MULTILINE), ended.out
    assert site.machine("/bin/sh", "-c", POOL) == before


def test_guest_knows_which_of_its_cells_a_device_is_near(site: MachineSite) -> None:
    """It stands on both cells, and its card is one of the second: that of which the host's share takes no processor."""
    job = """#!/bin/sh
for card in /sys/bus/pci/devices/*; do
    grep -q 0x10d3 $card/device && cell=$(cat $card/numa_node) && cat /sys/devices/system/node/node$cell/cpulist
done
cat /sys/devices/system/node/online
"""
    script = site.write("/home/alice/near.sh", job)
    request = "img=tiny,hypervisor=kvm,vcpus=3,ram=384M,vcpu_pinning=true,pci=nic:1"
    with handed_on(site, f"nic {CARDS[1]}"):
        ended = site.job("-l", "nodes=cn1:ppn=4", "-vm", request, script)
    assert ended.exit_status == 0, ended.err
    assert re.fullmatch(r"(0-1|1-2)\n0-1\n", ended.out), ended.out

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job by KVM, in the machine that has one: its clock, its cores and its card (`make test` plays this file alone)."""

from __future__ import annotations

import collections
import os
import subprocess
import typing as t

from ..conftest import CHECKOUT
from .conftest import CARD, NODES, MachineSite, handed_on

JOB = """#!/bin/sh
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
for device in /sys/bus/pci/devices/*; do echo $(cat $device/vendor $device/device); done
touch here
while [ ! -e go ]; do sleep 1; done
exit 37
"""
THREADS = "grep -h -e ^Name: -e ^Cpus_allowed_list: /proc/$pid/task/*/status $({})"
"""On which cores each thread of a qemu may run, and of those that the kernel made for it, as the machine sees them."""
LOOK = f"""
pid=$(pidof qemu-system-x86_64)
tr '\\0' '\\n' </proc/$pid/cmdline
echo threads
{THREADS.format("grep -l -x -e vhost-$pid -e kvm-nx-lpage-recovery-$pid /proc/[0-9]*/comm | sed 's,comm$,status,'")}
echo driver
basename $(readlink /sys/bus/pci/devices/{CARD}/driver)
"""
"""A node, which has a space of processes of its own, sees none of the kernel's.  So it cannot move `kvm-pit`, which the
kernel begins outside of all groups and names by the number that qemu has in the node: the second test does."""
AFTER = f"""
basename $(readlink /sys/bus/pci/devices/{CARD}/driver)
ls /var/lib/vtorque/devices/leases
"""
PAUSED = """
ip tuntap add proof mode tap multi_queue
qemu-system-x86_64 -machine q35,accel=kvm -cpu host -smp 2 -m 64 -nodefaults -display none -S \
    -name guest=proof,debug-threads=on -object iothread,id=disk -daemonize -pidfile /run/proof.pid \
    -netdev tap,id=net,ifname=proof,script=no,downscript=no,vhost=on,queues=2 -device virtio-net-pci,netdev=net,mq=on
"""
PLACE = """
import sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import pins, threads
print(*threads.place_threads("proof", int(sys.argv[1]), (), pins.Pins(((2,), (3,)), (0,))))
"""
PLACED = f"""
pid=$(cat /run/proof.pid)
build/runtime/bin/python -c "$1" $pid
echo threads
{THREADS.format("grep -l -e ^vhost- -e ^kvm- /proc/[0-9]*/comm | sed 's,comm$,status,'")}
kill $pid
ip link delete proof 2>/dev/null || ip tuntap delete proof mode tap multi_queue
"""
RECOVERY = "kvm-nx-lpage-recovery-"
OF_KERNEL = {"vhost-", "kvm-pit/", RECOVERY}


def threads(text: str) -> list[tuple[str, str]]:
    """The names of threads, without numbers of processes, and the cores on which they may run."""
    lines = [line.partition(":")[2].strip() for line in text.strip().splitlines()]
    names = (name if name.startswith("CPU ") else name.rstrip("0123456789") for name in lines[::2])
    # where it is a thread of qemu's, the kernel cuts its name off
    whole = (RECOVERY if RECOVERY.startswith(name) and name.startswith("kvm-nx") else name for name in names)
    return list(zip(whole, lines[1::2], strict=True))


def places(found: t.Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Of each name the cores of all threads that have it."""
    there = collections.defaultdict(set)
    for name, cores in found:
        there[name].add(cores)
    return dict(there)


def test_job_by_kvm_has_its_clock_cores_of_its_own_and_a_card_of_the_node(site: MachineSite) -> None:
    """The machine has two cells of two processors: the host's share is in the first, the guest has the second."""
    script = site.write("/home/alice/kvm.sh", JOB)
    with handed_on(site, f"nic {CARD}"):
        wanted = "img=tiny,hypervisor=kvm,vcpus=2,ram=256M,vcpu_pinning=true,pci=nic:1"
        job_id = site.submit("-l", "nodes=cn1:ppn=3", "-vm", wanted, script)
        site.await_file(job_id, "/home/alice/here")
        qemu, _word, rest = site.machine("/bin/sh", "-c", LOOK).partition("\nthreads\n")
        listed, _word, driver = rest.partition("driver\n")
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
    assert "-accel\nkvm\n" in qemu
    assert "-cpu\nhost" in qemu
    assert driver.strip() == "vfio-pci"
    there = places(threads(listed))
    assert {name: there.pop(name) for name in ("CPU 0/KVM", "CPU 1/KVM")} == {"CPU 0/KVM": {"2"}, "CPU 1/KVM": {"3"}}
    assert there.keys() >= OF_KERNEL - {"kvm-pit/"}
    assert {cores for some in there.values() for cores in some} == {"0"}, there
    assert ended.exit_status == 37, ended.err
    clock, *devices = ended.out.splitlines()
    assert clock == "kvm-clock"
    assert "0x8086 0x10d3" in devices, "an e1000e, which qemu itself would not have given"
    assert site.root(NODES[1], AFTER).split() == ["e1000e"], "the node's again, and leased to nobody"


def test_demo_leaves_a_machine_that_is_up_alone(site: MachineSite) -> None:
    done = subprocess.run(
        ["lab/demo.sh"], cwd=CHECKOUT, env={**os.environ, "STORY": "devices"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout
    assert "the machine of `lab machine up` is up" in done.stderr
    assert site.machine("echo", "on") == "on\n"


def test_threads_that_the_kernel_makes_for_a_guest_are_placed_where_libvirt_leaves_them(site: MachineSite) -> None:
    """Where the node sees all of the kernel's threads, as a site's does: one of vhost for each queue, and KVM's own."""
    site.machine("/bin/sh", "-c", PAUSED)
    moved, _word, listed = site.machine("/bin/sh", "-c", PLACED, "sh", PLACE).partition("threads\n")
    found = threads(listed)
    there = places(found)
    assert {name: there.pop(name) for name in ("CPU 0/KVM", "CPU 1/KVM")} == {"CPU 0/KVM": {"2"}, "CPU 1/KVM": {"3"}}
    # 6.12.118 makes it when a vCPU runs for the first time, and these are paused
    assert there.keys() >= {*OF_KERNEL - {RECOVERY}, "IO disk"}
    assert RECOVERY in there or site.machine("uname", "-r") > "6.12"
    assert {cores for some in there.values() for cores in some} == {"0"}, there
    assert [name for name, _cores in found].count("vhost-") == 2
    assert "kvm-pit/" in moved

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs by KVM, in the machine that has one: what the user and the node see of it."""

from __future__ import annotations

from .conftest import MachineSite

JOB = """#!/bin/sh
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
grep -c -w svm /proc/cpuinfo
touch here
while [ ! -e go ]; do sleep 1; done
exit 37
"""
PLACES = """
pid=$(pidof qemu-system-x86_64)
for task in /proc/$pid/task/* $(grep -l -x -e vhost-$pid -e kvm-nx-lpage-recovery-$pid /proc/[0-9]*/comm); do
    task=${task%/comm}
    echo "$(cat $task/comm)=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $task/status)"
done
"""
"""On which cores each thread of a guest may run, as the machine sees it: a node, which has a space of processes of its
own, sees none of the kernel's.  So it cannot move `kvm-pit` there, which the kernel begins outside of all groups and
names by the number that qemu has in the node."""
QEMU = """
for pid in $(pidof qemu-system-x86_64); do
    tr '\\0' '\\n' <"/proc/$pid/cmdline" | grep -A1 -x -e -accel -e -cpu
    cat /proc/$pid/task/*/comm
done
"""


def test_job_that_asks_for_kvm_runs_by_it(site: MachineSite) -> None:
    """The guest's clock is KVM's, its processor the node's, and qemu has a thread of KVM's for each of its vCPUs."""
    script = site.write("/home/alice/kvm.sh", JOB)
    job_id = site.submit("-l", "nodes=1:ppn=2", "-vm", "img=tiny,hypervisor=kvm,vcpus=2,ram=256M", script)
    begun = "test -e /home/alice/here || ls /home/alice/kvm.sh.e*"  # or it has ended, and its error file says why
    site.wait_for("the job to be at work", lambda: site.on("fe", "/bin/sh", "-c", begun).returncode == 0)
    qemu = site.root("cn1", QEMU)
    site.root("fe", "touch /home/alice/go")
    ended = site.end(job_id)
    assert ended.exit_status == 37
    assert ended.out.split()[0] == "kvm-clock"
    assert "-accel\nkvm\n" in qemu
    assert "-cpu\nhost,migratable=on\n" in qemu
    assert {"CPU 0/KVM", "CPU 1/KVM"} <= set(qemu.splitlines())


def test_threads_of_a_pinned_guest_are_on_its_cores_those_of_vhost_and_kvm_included(site: MachineSite) -> None:
    """The machine has two cells of two processors: the host's share is in the first, the guest has the second."""
    script = site.write("/home/alice/pinned.sh", "#!/bin/sh\ntouch pinned\nwhile [ ! -e free ]; do sleep 1; done\n")
    job_id = site.submit(
        "-l", "nodes=cn1:ppn=3", "-vm", "img=tiny,hypervisor=kvm,vcpus=2,ram=256M,vcpu_pinning=true", script
    )
    begun = "test -e /home/alice/pinned || ls /home/alice/pinned.sh.e*"
    site.wait_for("the job to be at work", lambda: site.on("fe", "/bin/sh", "-c", begun).returncode == 0)
    lines = [line.rpartition("=") for line in site.machine("/bin/sh", "-c", PLACES).splitlines()]
    site.root("fe", "touch /home/alice/free")
    assert site.end(job_id).exit_status == 0
    vcpus = {name: cores for name, _equals, cores in lines if name.startswith("CPU ")}
    assert vcpus == {"CPU 0/KVM": "2", "CPU 1/KVM": "3"}, lines
    others = {name.rstrip("0123456789"): cores for name, _equals, cores in lines if name not in vcpus}
    assert others.keys() >= {"vhost-", "kvm-nx-lpage-recovery-"}, lines
    assert set(others.values()) == {"0"}, lines

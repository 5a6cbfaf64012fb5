# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest has what is its job's on the node and on the network, and no more; our own processes are not the job's.

Seen to fail: with guests of which all packets pass; without qemu's seccomp filter (`seccomp_sandbox` in qemu.conf).
"""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from .conftest import Site
from .trouble import NODES, REREAD, WAITS, changed, check_refused, done_on, finish, forge, request, wait_in_guest

SHARED = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False, "host_os_core_count": 0}
CORES = """
for process in $(pgrep -f '^[^ ]*qemu-system') $(pgrep -f '^vtorque-virtiofsd:'); do
    grep -h '^Cpus_allowed_list' /proc/$process/task/*/status
done | cut -f 2
"""
"""On which cores each thread of the hypervisor and of virtiofsd may run."""
LIMIT = "virsh memtune $(virsh list --name) | sed -n 's/^hard_limit *: //p'"
GROUPS = """
for process in $(pgrep -f "$1"); do grep -E ':(cpuset|memory|):' /proc/$process/cgroup | cut -d : -f 3; done | sort -u
"""


def cores(site: Site, node: str, least: int = 4) -> set[str]:
    """The lists of cores of all threads, each once: with a guest up, two threads of qemu at least, two of virtiofsd."""
    found = site.root(node, CORES).split()
    assert len(found) >= least
    return set(found)


@contextlib.contextmanager
def without_cgroups(site: Site) -> t.Iterator[None]:
    """The MOMs are of those that make none."""
    config = "/var/spool/torque/mom_priv/config"
    with done_on(site, NODES, f"rm {config}; {REREAD}", f"echo '$lab_cgroups false' >{config}; {REREAD}"):
        yield


def test_a_guest_stays_on_the_cores_of_its_job_and_our_processes_do_not_live_there(site: Site) -> None:
    """Where the MOM gives a job one core of a shared node; memory is bounded by what the job has asked for."""
    with changed(site, ("fe", *NODES), **SHARED):
        job_id = site.submit("-l", "nodes=cn1:ppn=1", stdin=WAITS)
        wait_in_guest(site, job_id)
        assert cores(site, "cn1") == {"0"}
        # 192 MiB of memory, 512 of the host's share, 1024 of software emulation
        assert site.root("cn1", LIMIT).strip() == str((192 + 512 + 1024) << 10)

        def groups(pattern: str) -> set[str]:
            return set(site.on("cn1", "/bin/sh", "-c", GROUPS, "sh", pattern).stdout.split()) - {"/"}

        assert groups("[c]li.vtorque_shell") == {f"/torque/{job_id}"}
        assert groups("[c]li.vtorque_node") == {"/vtorque"}
        assert groups("^vtorque-virtiofsd:") == {"/vtorque"}
        assert finish(site, job_id).exit_status == 0
    assert not site.root("cn1", "find /sys/fs/cgroup -type d -path '*/torque/*'")


STATUS = """
for process in $(pgrep -f '^[^ ]*qemu-system'); do grep -hE '^(Uid|Seccomp):' /proc/$process/task/*/status; done
"""


@pytest.mark.both
@pytest.mark.full
def test_qemu_is_not_root_and_is_held_by_seccomp(site: Site) -> None:
    """Each of its threads, as the kernel tells it: what breaks out of a guest may call what qemu needs, and no more."""
    job_id = site.submit(*site.batch.on_first, stdin=WAITS)
    wait_in_guest(site, job_id)
    report = [line.split() for line in site.root("cn1", STATUS).splitlines()]
    assert finish(site, job_id).exit_status == 0
    assert len(report) >= 4  # two threads at least
    assert {arguments[1] for arguments in report if arguments[0] == "Seccomp:"} == {"2"}
    assert "0" not in {number for name, *numbers in report if name == "Uid:" for number in numbers}


@pytest.mark.full
def test_without_cpusets_a_job_needs_the_node_for_itself(site: Site) -> None:
    """Then it has the node's cores without those of the host; else it is told why it did not run."""
    last = site.root("cn1", "cut -d - -f 2 /sys/devices/system/cpu/online").strip()
    with without_cgroups(site):
        refused = forge(site, request(img="tiny"), "-l", "nodes=cn2:ppn=2")
        job_id = site.submit("-l", "nodes=cn1:ppn=2", stdin=WAITS)
        wait_in_guest(site, job_id)
        assert cores(site, "cn1") == {f"1-{last}" if int(last) > 1 else "1"}
        assert finish(site, job_id).exit_status == 0
        check_refused(site.end(refused), "the cores of job", "cn2", "other jobs may run there", "vsub")


LISTEN = """
import os, socket, struct, sys
heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
heard.bind((sys.argv[1], 0))
with open("/run/lab/heard", "w") as told:
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    open("/run/lab/listener", "w").write(str(os.getpid()))
    while True:
        frame = heard.recv(2048)
        mac, kind = frame[6:12].hex(":"), struct.unpack("!H", frame[12:14])[0]
        address, port = "", 0
        if kind == 0x806:
            address = socket.inet_ntoa(frame[28:32])
        elif kind == 0x800:
            address, header = socket.inet_ntoa(frame[26:30]), 14 + 4 * (frame[14] & 15)
            if frame[23] == 6 and frame[header + 13] & 18 == 2:
                port = struct.unpack("!H", frame[header + 2:header + 4])[0]
        print(mac, hex(kind), address or "-", port, file=told, flush=True)
"""
"""Writes down of each frame from whom it comes, whose address it gives, and to which port it opens a connection."""
ANOTHER, ANOTHER_MAC, OWN_MAC = "10.77.0.99", "52:54:00:aa:bb:cc", "52:54:00:00:01:01"
HOSTILE = f"""#!/bin/sh
# root of the guest, who tries what he can; none of it needs to succeed
exec >/dev/null 2>&1
dev=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
mac=$(cat /sys/class/net/$dev/address)
for port in 15001 15003 16509; do nc -w 1 10.77.0.12 $port </dev/null; done
nc -w 1 10.77.0.1 7000 </dev/null
ip addr add {ANOTHER}/24 dev $dev
arping -U -c 1 -w 1 -I $dev {ANOTHER}
ping -c 1 -W 1 -I {ANOTHER} 10.77.0.12
ip addr del {ANOTHER}/24 dev $dev
ip link set $dev down; ip link set $dev address {ANOTHER_MAC}; ip link set $dev up
arping -c 1 -w 1 -I $dev 10.77.0.12
ping -c 1 -W 1 10.77.0.12
ip link set $dev down; ip link set $dev address $mac; ip link set $dev up
nc -w 1 10.77.0.12 7000 </dev/null
exit 0
"""
HOOK = "/etc/vtorque/guest-hooks/prologue"


@contextlib.contextmanager
def listeners(site: Site, interfaces: dict[str, str]) -> t.Iterator[None]:
    """On these interfaces of nodes it is written down what comes."""
    for node, interface in interfaces.items():
        site.root(node, f"/opt/vtorque/venv/bin/python - {interface} <<'END'\n{LISTEN}\nEND")
    try:
        yield
    finally:
        for node in interfaces:
            site.root(node, "kill $(cat /run/lab/listener); rm /run/lab/listener /run/lab/heard")


@pytest.mark.both
@pytest.mark.full
def test_a_guest_whose_root_is_hostile_is_not_heard(site: Site) -> None:
    """Neither as another, nor by whom the site does not name, nor at the batch system's ports; its own job works.

    Guests are confined without a word of the site.
    """
    with changed(site, guest_may_reach=["10.77.0.12"]), listeners(site, {"fe": "eth0", "cn2": "br0"}):
        site.root("cn1", f"mkdir -p {HOOK.rpartition('/')[0]}")
        done = site.on("cn1", "/bin/sh", "-c", f"cat >{HOOK} && chmod 755 {HOOK}", stdin=HOSTILE)
        assert done.returncode == 0, done.stderr
        try:
            ended = site.job(*site.batch.on_first, stdin="echo ran\n")
        finally:
            site.root("cn1", f"rm {HOOK}")
        assert (ended.exit_status, ended.out, ended.err) == (0, "ran\n", "")
        heard = {
            node: [line.split() for line in site.root(node, "cat /run/lab/heard").splitlines()]
            for node in ("fe", "cn2")
        }
    ports = {node: {port for mac, _kind, _address, port in lines if mac == OWN_MAC} for node, lines in heard.items()}
    assert ports == {"fe": {"0"}, "cn2": {"0", "7000"}}
    everything = heard["fe"] + heard["cn2"]
    assert ANOTHER not in {address for _mac, _kind, address, _port in everything}
    assert ANOTHER_MAC not in {mac for mac, *_more in everything}
    assert {kind for mac, kind, *_more in everything if mac == OWN_MAC} == {"0x800", "0x806"}
    log = site.stored("cn1", ended.job_id, name="vtorque.log")
    places = "10.77.0.1 tcp 7000, 10.77.0.12 tcp 15001, 10.77.0.12 tcp 15003 and 1 more"
    assert f"network rules vtq1 (it was not let go to {places})" in log

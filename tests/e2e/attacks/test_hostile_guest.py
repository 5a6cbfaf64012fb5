# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root in a guest, and a user in one, against the node, its other jobs and other people's files; all bounded.

Root of a guest is played by the site's own script in guests, which is root there.
Seen to fail: with a disk of a user's that is mounted without `nosuid`; with an overlay that may grow beyond its image's
size; with guests of which all packets pass (homes by NFS, the other job's guest).  The guest that lies would be
believed by a node file, or a job's map, that takes the names that guests give themselves.
"""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from ..conftest import Site
from ..trouble import NODES, WELL, changed, finish, home_server, wait_in_guest
from .conftest import Attack, check_untouched, guest_of

HOOK = "/etc/vtorque/guest-hooks/prologue"
CONSOLE = "/var/lib/vtorque/guests/*/*/console.log*"
LOGS = "find /var/log /var/lib/vtorque/log -type f -printf '%s\n'"
MIB = 1 << 20
CONSOLES_MIB = 8
"""What virtlogd keeps of a console by its own settings: a file of 2 MiB and three before it."""


@contextlib.contextmanager
def root_of_guests(site: Site, script: str) -> t.Iterator[None]:
    """Root of each guest of cn1 runs this before the job does."""
    site.root("cn1", f"mkdir -p {HOOK.rpartition('/')[0]}")
    done = site.on("cn1", "/bin/sh", "-c", f"cat >{HOOK} && chmod 755 {HOOK}", stdin=script)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        site.root("cn1", f"rm {HOOK}")


FLOOD = """#!/bin/sh
# escape sequences, lies and lines without an end, until the guest is gone
(
    exec >/dev/console 2>&1 </dev/null
    printf 'vtorque-ready 0123456789abcdef 10.77.0.1\\n\\033]0;owned\\007\\033[2J\\n'
    while :; do
        head -c 65536 /dev/urandom | tr -d '\\n'
        printf '\\n\\033[31mvtorque-failed x \\033]52;c;b3duZWQ=\\007\\n'
    done
) &
"""


@pytest.mark.both
@pytest.mark.full
def test_console_that_is_written_without_end(site: Site, attack: Attack) -> None:
    """The node keeps a bounded part of it, shows it without control characters, and the job goes on."""
    logs = sum(map(int, site.root("cn1", LOGS).split()))
    with root_of_guests(site, FLOOD), guest_of(site, *site.batch.on_first) as (job_id, node):
        attack("to fill the node's disk by the console")
        sizes: list[int] = []

        def turned_over() -> bool:
            sizes[:] = [int(size) for size in site.root(node, f"stat -c %s {CONSOLE}").split()]
            assert sum(sizes) <= (CONSOLES_MIB + 1) * MIB, sizes
            return len(sizes) > 2

        site.wait_for("a console that was turned over twice", turned_over, seen=lambda: sizes)
        check_untouched(finish(site, job_id))
    attack("to write control characters to somebody's terminal")
    for arguments in (("console",), ("log",), ("show",)):
        printed = site.on(node, "vmgr", "job", *arguments, job_id)
        assert printed.returncode == 0, printed.stderr
        assert not [char for char in printed.stdout if not (char.isprintable() or char in "\n\t")]
    attack("to fill the node's disk by what is kept of the console")
    stored = site.root(node, f"find /var/lib/vtorque/records/{site.full_id(job_id)}.1 -type f -printf '%s\n'").split()
    assert sum(map(int, stored)) <= 2 * MIB
    assert sum(map(int, site.root(node, LOGS).split())) <= logs + MIB


SHARED = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False, "host_os_core_count": 0}
TAKEN = "for pid in $(pgrep -f '^[^ ]*qemu-system'); do sed -n '/^VmRSS:/s/[^0-9]//gp' /proc/$pid/status; done"
LIMIT_MIB = 192 + 512 + 1024
"""What a guest may take: its memory, the host's share of a node with two jobs, what software emulation needs."""
COUNTS = "echo up; n=0; while [ ! -e ~/enough ]; do n=$((n + 1)); sleep 1; done; echo counted\n"
FILL = """#!/bin/sh
# root of the guest: all of its disk, twice, what lies behind its end, and its seed
exec >/dev/console 2>&1 </dev/null
[ -b /dev/vda ] && [ -b /dev/vdb ] || exit 1
for pass in 1 2; do dd if=/dev/zero of=/dev/vda bs=1M; sync; done
dd if=/dev/zero of=/dev/vda bs=1M seek=4096 count=1 conv=fsync && echo GOT more than the disk
dd if=/dev/zero of=/dev/vdb bs=4k count=1 conv=fsync && echo GOT the seed
exit 0
"""
DISK = "/var/lib/vtorque/guests/*/*/disk.qcow2"
DISK_MIB = 64
"""Of the tiny image, by its record."""
TABLES_MIB = 4
"""What a disk may take besides what is on it, for qcow2's own tables."""


@pytest.mark.both
@pytest.mark.full
def test_guest_that_writes_over_all_of_its_disk(site: Site, attack: Attack) -> None:
    """The node loses what it has promised, the size of the image's disk, and no more; the guest's job goes on."""
    for what in ("all of its disk, twice", "behind the end of its disk", "its seed"):
        attack(f"root of a guest writes {what}")
    with root_of_guests(site, FILL), guest_of(site, *site.batch.on_first) as (job_id, node):
        promised = json.loads(site.root(node, f"qemu-img info -U --output=json {DISK}"))["virtual-size"]
        taken = int(site.root(node, f"du -B 1 {DISK} | cut -f 1"))
        check_untouched(finish(site, job_id))
    assert promised == DISK_MIB * MIB
    assert promised - MIB <= taken <= promised + TABLES_MIB * MIB
    assert "GOT" not in site.stored(node, job_id, name="vcn1-1.console.log")
    assert set(site.nodes().values()) == {WELL}


BOMBS = {
    "a fork bomb": "echo up; bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done\n",
    "a memory hog": "echo up; exec awk 'BEGIN { x = \"0123456789abcdef\"; while (1) x = x x }'\n",
    "files in memory": "echo up; for x in /tmp /dev/shm; do head -c 300m /dev/zero >$x/full & done; wait; sleep 600\n",
}


@pytest.mark.full
def test_guests_that_fork_hog_and_fill_beside_another_job(site: Site, attack: Attack) -> None:
    """Each is bounded by its own guest: the other job on the node has what is its own, and no node is blamed."""
    site.root("fe", "rm -f /home/alice/enough")
    with changed(site, ("fe", *NODES), **SHARED):
        asks = ("-l", "nodes=cn1:ppn=1")
        with guest_of(site, *asks, script=COUNTS) as (beside, node):
            for what, script in BOMBS.items():
                attack(f"{what} in a guest")
                job_id = site.submit(*asks, stdin=script)
                try:
                    wait_in_guest(site, job_id)
                    began = used(site, node, beside)
                    goes_on = lambda began=began: used(site, node, beside) > began + 200_000_000  # noqa: E731
                    site.wait_for("the other job to go on", goes_on)
                    taken = [int(kib) for kib in site.root(node, TAKEN).split()]
                    assert max(taken) < LIMIT_MIB << 10
                    assert int(site.root(node, "ls -d /proc/[0-9]* | wc -l")) < 100
                finally:
                    site.on("fe", "qdel", job_id)
                site.wait_state(job_id, "C")
                assert site.facts(beside)["job_state"] == "R"
            site.root("fe", "touch /home/alice/enough && rm -f /home/alice/full")
            ended = site.end(beside)
            assert (ended.exit_status, ended.out, ended.err) == (0, "up\ncounted\n", "")
    site.root("fe", "rm -f /home/alice/enough")
    assert set(site.nodes().values()) == {WELL}


def used(site: Site, node: str, job_id: str) -> int:
    """Nanoseconds of processor time of the first guest of a job."""
    name = site.root(node, f"ls /var/lib/vtorque/guests/{job_id}.1 | grep ^v").split()[0]
    return int(site.root(node, f"virsh domstats --cpu-total {name} | sed -n 's/.*cpu.time=//p'") or 0)


GRASP = """#!/bin/sh
# root of the guest: other shares, other people's homes, files that are root's on the node
exec >/dev/console 2>&1 </dev/null
while read -r module; do insmod "/lib/modules/$module"; done </lib/modules/order-nfs
mkdir -p /mnt/x
tries=0
for tag in vtorque1 vtorque2 bob home root /home/bob ../bob vtorque0/../../bob; do
    mount -t virtiofs "$tag" /mnt/x && echo "GOT $tag" && cp -r /mnt/x /dev/console && umount /mnt/x
done
nc -w 1 10.77.0.1 2049 </dev/null && echo "GOT the port"
for share in 10.77.0.1:/home 10.77.0.1:/home/bob 10.77.0.11:/home; do
    timeout -s KILL 5 mount -t nfs4 -o "vers=4.2,addr=${share%%:*}" "$share" /mnt/x || continue
    echo "GOT $share" && cat /mnt/x/secret /mnt/x/bob/secret
    umount /mnt/x
done
cd /home/alice || exit 0
ls ../bob/secret /home/bob/secret && echo "GOT the secret"
cp /usr/bin/busybox own; mkdir own.d
su -s /bin/sh alice -c 'cp /usr/bin/bash bash; chmod 6755 bash; touch given'
chown 0:0 bash
chmod 6755 bash
chown 1002:2000 given
mknod disk b 8 0; mknod memory c 1 1
ln -s /home/bob/secret link; cat link && echo "GOT the link"
ln /etc/passwd hard
exit 0
"""


@pytest.mark.both
@pytest.mark.full
def test_root_of_a_guest_and_files_of_others(site: Site, attack: Attack) -> None:
    """No share but the job's, no home but the user's; what he makes there is his on the node.

    All homes are served by NFS, too, to whoever asks as root: he does not get there.
    """
    for word in ("other shares", "another's home", "another's home by NFS", "a setuid file of root's",
                 "a file given away", "devices", "links"):  # fmt: skip
        attack(f"root of a guest: {word}")
    secret = "what bob keeps for himself"
    site.write("/home/bob/secret", secret, user="bob")
    site.root("fe", "chmod 600 /home/bob/secret")
    made = "bash given own own.d disk memory link hard"
    try:
        with home_server(site), root_of_guests(site, GRASP):
            ended = site.job(*site.batch.on_first, stdin="ls ~/bash && ~/bash -p -c 'echo $EUID'; ls /home\n")
        console = site.stored("cn1", ended.job_id, name="vcn1-1.console.log")
        owners = site.root("fe", f"cd /home/alice && stat -c '%u %n' {made} 2>/dev/null; true").split("\n")
        powers = site.root("fe", "find /home -user root -perm /6000; find /home -type b -o -type c")
        stored = site.read("/home/bob/secret")
    finally:
        site.root("fe", f"cd /home/alice && rm -rf {made}; rm -f /home/bob/secret")
    assert ended.exit_status == 0, ended.err
    assert ended.out.splitlines() == ["/home/alice/bash", "1001", "alice"]
    assert "GOT" not in console
    assert secret not in console
    assert "(it was not let go to 10.77.0.1 tcp 2049" in site.stored("cn1", ended.job_id, name="vtorque.log")
    assert {line for line in owners if line} == {"1001 bash", "1001 given"}
    assert (powers, stored) == ("", secret)


OFFLINE = """
cd /home/alice && rm -f evil.img && truncate -s 24M evil.img &&
/usr/sbin/mke2fs -q -t ext4 -O ^has_journal -L data evil.img &&
/usr/sbin/debugfs -w -f - evil.img <<END
write /usr/bin/bash bash
sif bash uid 0
sif bash gid 0
sif bash mode 0106755
mknod disk b 254 0
sif disk mode 060666
END
"""


@pytest.mark.both
@pytest.mark.full
def test_setuid_file_on_a_disk_that_the_user_made_offline(site: Site, attack: Attack) -> None:
    """He writes what he likes on a disk of his own; in the guest nothing of it makes him root."""
    done = site.on("fe", "/bin/sh", "-c", OFFLINE, user="alice")
    assert done.returncode == 0, done.stderr
    try:
        attack("a setuid file of root's on a disk of the user's own")
        attack("a device on a disk of the user's own")
        ended = site.job(
            "-vm",
            "disk=/home/alice/evil.img",
            stdin="cd /data; stat -c '%u %a' bash disk; ./bash -p -c 'echo $EUID'; head -c 1 disk | wc -c\n",
        )
    finally:
        site.root("fe", "rm -f /home/alice/evil.img")
    assert ended.out.split() == ["0", "6755", "0", "666", "1001", "0"], ended.err


@pytest.mark.both
def test_user_in_a_guest_is_not_its_root(site: Site, attack: Attack) -> None:
    """Nothing there raises him, and he reads no file that is root's."""
    looks = {
        "a program with setuid": "find / -xdev -perm /6000 -type f 2>/dev/null",
        "a file of root's that all may write": "find / -xdev -user root -perm -0002 -type f 2>/dev/null",
        "a disk of the guest's": "cat /dev/vda /dev/vdb /dev/sr0 2>/dev/null | head -c 1",
        "the console": "echo GOT 2>/dev/null >/dev/console; echo GOT 2>/dev/null >/dev/ttyS0",
        "the channel to the node": "for port in /dev/virtio-ports/* /dev/vport*; do echo GOT 2>/dev/null >$port; done",
        "the guest's host key": "cat /etc/ssh/ssh_host_*_key /etc/dropbear/host_key 2>/dev/null",
        "the shadow file": "cat /etc/shadow 2>/dev/null",
        "root by su": "echo id | su root -c 'echo GOT' 2>/dev/null",
        "a mount": "mount -t tmpfs x /mnt 2>/dev/null && echo GOT",
        "the network": "ip link set eth0 down 2>/dev/null && echo GOT",
        "the clock": "date -s 2001-01-01 >/dev/null 2>&1; date +%Y | grep 2001",
        "the end": "poweroff -f 2>/dev/null && echo GOT",
    }  # fmt: skip
    for what in looks:
        attack(f"the user in his guest: {what}")
    script = "".join(f"printf '%s|' \"$({look})\"\n" for look in looks.values())
    ended = site.job(stdin=f"{script}id -u\n")
    assert (ended.exit_status, ended.out) == (0, "|" * len(looks) + "1001\n")


NEIGHBOUR = """#!/bin/sh
# root of alice's guest: into a guest of bob's, in his place, and as his network card
exec >/dev/console 2>&1 </dev/null
[ "$VTORQUE_USER" = alice ] || exit 0
dev=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
mac=$(cat /sys/class/net/$dev/address)
nc -w 2 {address} 22 </dev/null && echo GOT his sshd
ip addr add {address}/24 dev $dev
for way in -U -A; do arping $way -c 2 -w 2 -I $dev {address}; done
ping -c 1 -W 1 -I {address} 10.77.0.11 && echo GOT an answer in his place
ip addr del {address}/24 dev $dev
ip link set $dev down; ip link set $dev address {mac}; ip link set $dev up
arping -U -c 2 -w 2 -I $dev {address}
ping -c 1 -W 1 10.77.0.11 && echo GOT an answer as his card
ip link set $dev down; ip link set $dev address $mac; ip link set $dev up
exit 0
"""
MONITORS = "/run/lab/monitors"


@contextlib.contextmanager
def moves(site: Site, node: str) -> t.Iterator[list[str]]:
    """What a node learns anew of cards, addresses and ports of its bridge; the lines are there when it ends."""
    lines: list[str] = []
    for what in ("ip monitor neigh", "bridge monitor fdb"):
        # it hears from when it has its socket of the kernel's (its number, and the groups to which it listens)
        hears = "awk -v it=$it '$3 == it && $4 !~ /^0+$/ { found = 1 } END { exit !found }' /proc/net/netlink"
        begin = f"setsid {what} >>{MONITORS}.seen 2>&1 </dev/null & it=$!; echo $it >>{MONITORS}"
        site.root(node, f"{begin}; until {hears}; do sleep 0.1; done")
    try:
        yield lines
    finally:
        site.root(node, f"kill $(cat {MONITORS})")
        lines += site.root(node, f"cat {MONITORS}.seen; rm {MONITORS} {MONITORS}.seen").splitlines()


@pytest.mark.full
def test_root_of_a_guest_against_the_guest_of_another_job_on_its_node(site: Site, attack: Attack) -> None:
    """He is not let in there; nobody takes him for it; and the other job ends as if he had not been there."""
    for what in ("to log in to", "to have the address of", "to have the network card of"):
        attack(f"root of a guest: {what} another job's guest")
    asks = ("-l", "nodes=cn1:ppn=1")
    with changed(site, ("fe", *NODES), **SHARED), guest_of(site, *asks, user="bob") as (his, node):
        (guest,) = json.loads(site.stored(node, his))["guests"]
        names = {"address": guest["address"], "mac": guest["mac"]}
        with moves(site, node) as moved, root_of_guests(site, NEIGHBOUR.format(**names)):
            ended = site.job(*asks, stdin="echo ran\n")
        check_untouched(finish(site, his, user="bob"))
    assert (ended.exit_status, ended.out, ended.err) == (0, "ran\n", "")
    assert any("vtq2" in line for line in moved), moved  # his own card is seen
    his_card = [line for line in moved if line.startswith(f"{guest['mac']} ") and "vtq1" not in line]
    his_address = [line for line in moved if line.startswith(f"{guest['address']} ") and "lladdr" in line]
    assert his_card == [line for line in his_address if guest["mac"] not in line] == []
    assert "GOT" not in site.stored(node, ended.job_id, name="vcn1-2.console.log")
    log = site.stored(node, ended.job_id, name="vtorque.log")
    assert f"(it was not let go to {guest['address']} tcp 22" in log
    assert set(site.nodes().values()) == {WELL}


LIAR = """#!/bin/sh
# root of the guest: its name is that of a node, for whoever asks it, and for the server of addresses
hostname cn2 && echo cn2 >/etc/hostname
udhcpc -i eth0 -s /bin/true -t 5 -T 1 -n -q -x hostname:cn2 >/dev/null 2>&1
exit 0
"""
BY_NAME = """
hostname; sort -u $HOSTS
for guest in $(sort -u $HOSTS); do ssh $guest hostname </dev/null; done
ssh cn2 hostname </dev/null 2>/dev/null || echo 'nobody by the lie'
"""
TOLD_NAME = "grep -c 'client provides name: cn2' /var/log/dnsmasq.log || true"


@pytest.mark.both
@pytest.mark.full
def test_guest_that_lies_in_its_name(site: Site, attack: Attack) -> None:
    """It is called what its node calls it, in the node file, in the record, and by the other guests of its job."""
    attack("root of a guest: the name of a node for its own")
    attack("root of a guest: the name of a node to the DHCP server")
    before = int(site.root("fe", TOLD_NAME))
    with root_of_guests(site, LIAR):
        ended = site.job(*site.batch.pair, stdin=BY_NAME.replace("HOSTS", site.batch.hosts))
    assert int(site.root("fe", TOLD_NAME)) > before
    assert (ended.exit_status, ended.err) == (0, "")
    assert ended.out.splitlines() == ["cn2", "vcn1-1", "vcn2-1", "cn2", "vcn2-1", "nobody by the lie"]
    record = json.loads(site.stored("cn1", ended.job_id))
    assert [guest["name"] for guest in record["guests"]] == ["vcn1-1", "vcn2-1"]
    printed = site.on("cn1", "vmgr", "job", "show", ended.job_id).stdout
    assert "vcn1-1" in printed
    assert set(site.nodes().values()) == {WELL}

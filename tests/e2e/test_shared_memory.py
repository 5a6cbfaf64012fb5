# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that guests of a job on one host share (`unclot`): whose it is, and that it goes, however the job ends.

Seen to fail: with a file that qemu itself makes, which everybody could open and which stayed; and with one that is
given to qemu before its mode is set.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import pathlib
import re
import subprocess
import typing as t

import pytest

from .conftest import CHECKOUT, Site
from .trouble import (
    HOOK,
    NODES,
    WAITS,
    changed,
    check_held,
    drop,
    finish,
    kill,
    revive,
    sweep,
    sweep_all,
    wait_in_guest,
)

PYTHON = "/opt/vtorque/venv/bin/python"
STOP = "/home/bob/stop-shm"
WATCH = f"""
import json, os
# what lies in /dev/shm at every moment, and whether this user may open it
seen = set()
while not os.path.exists("{STOP}"):
    for name in os.listdir("/dev/shm"):
        path = "/dev/shm/" + name
        try:
            facts = os.lstat(path)
            try:
                os.close(os.open(path, os.O_RDONLY))
                opened = True
            except PermissionError:
                opened = False
            seen.add((facts.st_mode, facts.st_uid, opened))
        except FileNotFoundError:  # it has gone meanwhile
            pass
print(json.dumps(sorted(seen)))
"""
EXAMPLES = CHECKOUT / "docs/examples"
NODE = "cn1"
SHARES = "unclot=true,unclot_shmem=2M"
LEASES = "ls -A /dev/shm /var/lib/vtorque/devices/leases | grep ^vtorque- || :"


def built(source: pathlib.Path, place: pathlib.Path) -> bytes:
    """A program for any guest."""
    arguments = ["gcc", "-O2", "-static", "-Wall", "-o", str(place / source.stem), str(source)]
    subprocess.run(arguments, check=True, capture_output=True, timeout=120)
    return (place / source.stem).read_bytes()


@pytest.fixture(scope="module")
def region(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program in the home of each user."""
    program = built(pathlib.Path(__file__).with_name("region.c"), tmp_path_factory.mktemp("region"))
    for user in ("alice", "bob"):
        site.write(f"/home/{user}/region", program, user=user)
    return "~/region"


@contextlib.contextmanager
def watching(site: Site) -> t.Iterator[list[tuple[int, int, bool]]]:
    """bob looks at the shared memory of the node without a pause; what he has seen is there at the end."""
    seen: list[tuple[int, int, bool]] = []
    site.root("fe", f"rm -f {STOP}")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(site.on, NODE, PYTHON, "-I", "-S", "-", user="bob", stdin=WATCH)
        try:
            yield seen
        finally:
            site.root("fe", f"touch {STOP}")
        done = running.result()
        assert done.returncode == 0, done.stderr
        seen += [tuple(one) for one in json.loads(done.stdout)]
    site.root("fe", f"rm -f {STOP}")


def test_example_of_the_manual_measures_a_region_that_is_the_users_alone(site: Site, tmp_path: pathlib.Path) -> None:
    """From before the start of its guests to after their end; both round trips are printed."""
    site.write("/home/alice/pingpong", built(EXAMPLES / "pingpong.c", tmp_path))
    look = "stat -L -c '%u %a %s %n' $VTORQUE_SHM"
    script = f'{(EXAMPLES / "pingpong.sh").read_text(encoding="utf-8")}{look}; ssh "$peer" "{look}"\n'
    with watching(site) as seen:
        vm = "vms_per_node=2,vcpus=1,unclot=true,unclot_shmem=3M"
        asked = site.vsub("-l", f"nodes={NODE}:ppn=3", "-vm", vm, stdin=f"{script}{WAITS}")
        assert "unclot_shmem=3M becomes 4M, the next power of two" in asked.stderr
        job_id = asked.stdout.strip()
        wait_in_guest(site, job_id)
        file, lease = site.root(NODE, LEASES).split()
        assert file == lease
        facts = site.root(NODE, f"stat -c '%U %a %s' /dev/shm/{file}").split()
        assert facts == ["libvirt-qemu", "600", str(4 << 20)]
        ended = finish(site, job_id)
    assert (ended.exit_status, ended.err) == (0, "")
    head, by_region, by_tcp, *places = ended.out.splitlines()[:5]
    assert re.fullmatch(r"/dev/vtorque-shm: 4194304 bytes, shared by (vcn1-\d+) (vcn1-\d+)", head)
    assert re.fullmatch(r"region: \d+\.\d\d us for a round trip, \d+ of them", by_region)
    assert re.fullmatch(r"tcp: \d+\.\d\d us for a round trip, \d+ of them", by_tcp)
    uid = site.root("fe", "id -u alice").strip()
    assert places == [f"{uid} 600 4194304 /dev/vtorque-shm"] * 2
    assert {mode & 0o7777 for mode, _uid, _opened in seen} == {0o600}
    assert not any(opened for _mode, _uid, opened in seen)
    assert site.root(NODE, LEASES) == ""
    record = json.loads(site.root(NODE, f"/opt/vtorque/bin/vmgr job show {job_id} --json"))
    assert [guest["devices"] for guest in record["guests"]] == ["unclot:4M"] * 2


@pytest.mark.full
def test_guests_of_another_user_on_the_node_have_memory_of_their_own(site: Site, region: str) -> None:
    """Both jobs at once: what one writes, its own other guest reads, and no guest of the other job."""
    shared = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False, "host_os_core_count": 0}
    devices = "grep -l 0x1110 /sys/bus/pci/devices/*/device | wc -l"
    with changed(site, ("fe", *NODES), **shared):
        first = f"{region} write secret-of-alice; set -- $VTORQUE_SHM_PEERS; ssh $2 {region} count secret-of-alice\n"
        alices = site.submit(
            "-l", f"nodes={NODE}:ppn=2", "-vm", f"vms_per_node=2,vcpus=1,{SHARES}", stdin=first + WAITS
        )
        wait_in_guest(site, alices)
        second = f"{region} count secret-of-alice; {region} used; {devices}; ls -l /sys/bus/pci/devices/*/resource2\n"
        bobs = site.submit("-l", f"nodes={NODE}:ppn=1", "-vm", f"vcpus=1,ram=128M,{SHARES}", stdin=second, user="bob")
        ended = site.end(bobs)
        assert len(set(site.root(NODE, "ls /dev/shm").split())) == 1, "that of the job that ended is gone"
        by_alice = finish(site, alices)
    assert ended.out.splitlines()[:3] == ["0", "0", "1"], ended.err
    assert by_alice.out.splitlines()[0] == "1", by_alice.err


@pytest.mark.full
def test_guests_of_a_distribution_share_memory_too(site: Site, region: str) -> None:
    """With systemd, udev and a stock kernel, and nothing in the image for it."""
    script = f"{region} write over; set -- $VTORQUE_SHM_PEERS; ssh $2 {region} count over; ls -lLn $VTORQUE_SHM\n"
    vm = f"img=debian12,ram=512M,vms_per_node=2,vcpus=1,{SHARES}"
    ended = site.job("-l", f"nodes={NODE}:ppn=3", "-vm", vm, stdin=script)
    count, file = ended.out.splitlines()
    assert (ended.exit_status, ended.err, count) == (0, "", "1")
    assert file.startswith("-rw------- 1 ")


@pytest.mark.full
def test_region_of_a_killed_libvirt_and_qemu_is_gone(site: Site) -> None:
    """libvirt, which comes back and knows of the guest; then qemu.  Both at once would leave cgroups of libvirt's."""
    job_id = site.submit("-l", f"nodes={NODE}:ppn=2", "-vm", f"vcpus=1,{SHARES}", stdin="echo up; sleep 3600\n")
    wait_in_guest(site, job_id)
    assert len(site.root(NODE, LEASES).split()) == 2
    site.root(NODE, "kill -9 $(cat /run/libvirtd.pid)")
    site.root(NODE, revive("libvirt"))
    site.wait_for("libvirt to know of the guest", lambda: site.root(NODE, "virsh list --name").strip())
    assert len(site.root(NODE, LEASES).split()) == 2
    site.root(NODE, "kill -9 $(pidof qemu-system-x86_64)")
    site.end(job_id)
    site.wait_for("the region to go", lambda: not site.root(NODE, LEASES), seen=lambda: site.root(NODE, LEASES))


@pytest.mark.full
def test_region_of_a_killed_prologue_is_gone(site: Site) -> None:
    """Killed when the file is there; what the hook does not undo is the sweep's."""
    job_id = site.submit("-l", f"nodes={NODE}:ppn=2", "-vm", f"vcpus=1,{SHARES}", stdin="echo RAN\n")
    site.wait_for("the region", lambda: site.root(NODE, "ls /dev/shm"))
    kill(site, NODE, HOOK)
    facts = site.wait_state(job_id, "CH")
    if facts["job_state"] == "H":
        drop(site, job_id)
    assert "RAN" not in site.end(job_id).out
    sweep_all(site)
    assert site.root(NODE, LEASES) == ""


@pytest.mark.full
def test_region_of_a_node_that_lost_its_power_is_gone_with_its_lease(site: Site) -> None:
    job_id = site.submit("-l", f"nodes={NODE}:ppn=2", "-vm", f"vcpus=1,{SHARES}", stdin="echo up; sleep 3600\n")
    wait_in_guest(site, job_id)
    assert site.on("fe", "qhold", "-h", "u", job_id, user="alice").returncode == 0
    assert site.run("lose", NODE).returncode == 0
    site.wait_for("the server to miss the node", lambda: "down" in site.nodes()[NODE].states)
    assert site.run("back", NODE).returncode == 0
    site.wait_state(job_id, "H")
    done = sweep(site, NODE, "--boot")
    assert (done.returncode, done.stderr) == (0, "")
    assert site.root(NODE, LEASES) == ""
    drop(site, job_id)


@pytest.mark.full
def test_region_that_the_node_has_no_room_for_is_refused_before_anything_is_made(site: Site) -> None:
    """Whoever fills the place of shared memory; the job is tried again, and held with the figures."""
    site.root(NODE, "mount -o remount,size=64M /dev/shm && head -c 60M /dev/zero >/dev/shm/full")
    try:
        with changed(site, node_fault_retries=1):
            vm = "vcpus=1,unclot=true,unclot_shmem=32M"
            job_id = site.submit("-l", f"nodes={NODE}:ppn=2", "-vm", vm, stdin="echo RAN\n")
            check_held(site, job_id, "unclot_shmem=32M: /dev/shm of cn1 has ")
            drop(site, job_id)
    finally:
        site.root(NODE, "rm /dev/shm/full; mount -o remount,size=50% /dev/shm")

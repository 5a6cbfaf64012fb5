# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores for virtual I/O of a guest by KVM: under load its threads have two, afterwards one, and no vCPU is there."""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import MachineSite
from .test_kvm import THREADS, places, threads

pytestmark = pytest.mark.full
JOB = """#!/bin/sh
dd if=/dev/urandom of=/dev/vda bs=1M count=32 2>/dev/null
while [ ! -e calm ]; do
    for reader in 1 2 3; do dd if=/dev/vda of=/dev/null bs=1M count=32 iflag=direct 2>/dev/null & done
    dd if=/dev/zero of=load bs=1M count=8 conv=fsync 2>/dev/null
    wait
done
touch rested
while [ ! -e go ]; do sleep 1; done
exit 37
"""
"""Its disk has an I/O thread, and its home a virtiofsd.  Large reads past its cache cost it little, and them much."""
HOOK = "/etc/vtorque/guest-hooks/prologue"
OPEN_DISK = f"install -m 755 -D /dev/stdin {HOOK} <<'END'\n#!/bin/sh\nchmod 666 /dev/vda\nEND"
"""There is nothing on the disk of this guest."""
RECORD = "/var/lib/vtorque/records/{}.1"
LOOK = f"""
pid=$(pidof qemu-system-x86_64)
{THREADS.format("grep -l -x -e vhost-$pid /proc/[0-9]*/comm | sed 's,comm$,status,'")}
"""
VCPU = "CPU 0/KVM"


def changes(site: MachineSite, job_id: str) -> dict[str, t.Any]:
    """What the node has written down of a job."""
    text = site.root("cn1", f"cat {RECORD.format(job_id)}/io-cores.json 2>/dev/null || true")
    return json.loads(text) if text else {"most_used": 0, "changes": [], "count": 0}


def where(site: MachineSite) -> tuple[dict[str, set[str]], set[str]]:
    """The cores of the guest's threads, by their names, and those of the kernel's for its card.

    These a node of the lab does not see (`test_kvm`), and so they stay on all that their control group allows.
    """
    found = places(threads(site.machine("/bin/sh", "-c", LOOK)))
    return found, {cores for name in list(found) if name.startswith("vhost-") for cores in found.pop(name)}


def test_virtual_io_gets_a_core_more_under_load_and_gives_it_back(site: MachineSite) -> None:
    """The machine has four processors: one is the host's, one the vCPU's, and two may be for virtual I/O."""
    site.root("cn1", OPEN_DISK)
    script = site.write("/home/alice/io.sh", JOB)
    wish = "img=tiny,hypervisor=kvm,vcpus=1,ram=256M,vcpu_pinning=true,iocm=true,iocm_max_cores=2"
    job_id = site.submit("-l", "nodes=cn1:ppn=4", "-vm", wish, script)
    site.wait_for("two cores in use", lambda: changes(site, job_id)["most_used"] == 2)
    busy, vhost = where(site)
    own, io = busy.pop(VCPU), changes(site, job_id)["cores"]
    assert {cores for some in busy.values() for cores in some} == {io}, busy
    assert not own & {io, *io.split("-")}
    assert vhost == {io}
    assert "IO iothread" in busy
    site.root("fe", "touch /home/alice/calm")
    site.await_file(job_id, "/home/alice/rested")
    site.wait_for("one core in use", lambda: changes(site, job_id)["changes"][-1][1] == 1)
    calm, vhost = where(site)
    assert vhost == {io}
    assert calm.pop(VCPU) == own
    one = {io.partition("-")[0].partition(",")[0]}
    assert {cores for some in calm.values() for cores in some} == one, calm
    log = site.root("cn1", f"cat {RECORD.format(job_id)}/vtorque.log")
    assert "2 in place of 1: it wanted" in log
    assert "1 in place of 2: it wanted" in log
    site.root("cn1", f"kill -9 {log.partition('worker ')[2].partition(' ')[0]}")
    dead, _vhost = where(site)
    assert dead.pop(VCPU) == own, "its death moves nothing"
    assert {cores for some in dead.values() for cores in some} == one, dead
    site.root("fe", "touch /home/alice/go")
    assert site.end(job_id).exit_status == 37
    site.root("cn1", f"rm {HOOK}")

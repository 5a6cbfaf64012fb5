# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest has what is its job's on the node, and no more; our own processes are not the job's."""

from __future__ import annotations

import contextlib
import typing as t

from .conftest import Site
from .trouble import NODES, REREAD, WAITS, changed, check_refused, finish, forge, request, wait_in_guest

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


def cores(site: Site, node: str) -> set[str]:
    """The lists of cores of all threads, each once."""
    found = site.root(node, CORES).split()
    assert len(found) >= 4  # of qemu two at least, of virtiofsd two
    return set(found)


@contextlib.contextmanager
def without_cgroups(site: Site) -> t.Iterator[None]:
    """The MOMs are of those that make none."""
    config = "/var/spool/torque/mom_priv/config"
    for node in NODES:
        site.root(node, f"echo '$lab_cgroups false' >{config}; {REREAD}")
    try:
        yield
    finally:
        for node in NODES:
            site.root(node, f"rm {config}; {REREAD}")


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

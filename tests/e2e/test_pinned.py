# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests whose vCPUs have cores of their own, read from /proc by another hand than the product's.

Seen to fail: without `vcpupin` in the template.  The product's own proof then moved the threads, and the log said so.
"""

from __future__ import annotations

import json

import pytest

from .conftest import Site
from .trouble import NODES, WAITS, changed, check_refused, finish, wait_in_guest

TWO_CORES = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False, "host_os_core_count": 0}
"""A node of the lab has two processors: a guest of two vCPUs has both."""
VMGR = "/opt/vtorque/bin/vmgr"
THREADS = """
for task in /proc/$(pgrep -f '^[^ ]*qemu-system')/task/*; do
    echo "$(cat $task/comm)=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $task/status)"
done
for process in $(pgrep -f '^vtorque-virtiofsd:'); do
    sed -n 's/^Cpus_allowed_list:[[:space:]]*/virtiofsd=/p' /proc/$process/task/*/status
done
"""


def threads(site: Site, node: str) -> tuple[dict[str, str], set[str]]:
    """The cores of each vCPU's thread, by its name, and those of all other threads."""
    found = [line.partition("=") for line in site.root(node, THREADS).splitlines()]
    vcpus = {name: cores for name, _equals, cores in found if name.startswith("CPU ")}
    return vcpus, {cores for name, _equals, cores in found if not name.startswith("CPU ")}


def test_vcpus_of_a_job_have_the_cores_that_the_record_says(site: Site) -> None:
    """By the map of the user, which turns them round."""
    site.write("/home/alice/pins", "0: 1\n1: 0\n")
    with changed(site, ("fe", *NODES), **TWO_CORES):
        job_id = site.submit("-l", "nodes=cn1:ppn=2", "-vm", "vcpus=2,vcpu_pinning=/home/alice/pins", stdin=WAITS)
        wait_in_guest(site, job_id)
        vcpus, others = threads(site, "cn1")
        assert vcpus == {"CPU 0/TCG": "1", "CPU 1/TCG": "0"}
        assert others == {"0-1"}  # the site keeps none for the host
        drawn = site.root("cn1", f"{VMGR} node topology")
        assert "[0:A] [1:A]" in drawn
        assert "vCPU 0 on 1, vCPU 1 on 0, other threads on 0-1" in drawn
        asked = json.loads(site.root("fe", f"{VMGR} node topology cn1 --query 'guests[].[start,vcpu_cores]'"))
        assert [(start.rpartition(".")[0], cores) for start, cores in asked] == [(job_id, "1;0")]
        assert finish(site, job_id).exit_status == 0
    record = json.loads(site.root("cn1", f"{VMGR} job show {job_id} --json"))
    assert [(guest["vcpu_cores"], guest["other_cores"]) for guest in record["guests"]] == [("1;0", "0-1")]
    log = site.root("cn1", f"{VMGR} job log {job_id}")
    assert "read from its threads: vCPU 0 on 1; vCPU 1 on 0; other threads on 0-1" in log
    assert "moved there" not in log  # libvirt had placed all of them


def test_dry_run_shows_the_cores_that_a_job_would_have_once_root_has_asked_the_nodes(site: Site) -> None:
    arguments = ("--dry-run", "-vm", "vcpus=1,vcpu_pinning=true")
    assert "the first node that fits" not in site.vsub(*arguments, stdin="true\n").stdout
    assert "remembered what cn[1-2] have" in site.root("fe", f"{VMGR} node topology --all")
    try:
        printed = site.vsub(*arguments, stdin="true\n").stdout
        assert "on cn1, the first node that fits" in printed
        assert "  guest 1: vCPU 0 on 1, other threads on 0; cell 0; " in printed
    finally:
        site.root("fe", "rm -r /var/lib/vtorque/topology")


@pytest.mark.full
def test_other_threads_have_the_core_that_is_kept_for_the_host(site: Site) -> None:
    job_id = site.submit("-l", "nodes=cn1:ppn=2", "-vm", "vcpus=1,vcpu_pinning=true", stdin=WAITS)
    wait_in_guest(site, job_id)
    assert threads(site, "cn1") == ({"CPU 0/TCG": "1"}, {"0"})
    assert finish(site, job_id).exit_status == 0
    assert "vCPU 0 on 1; other threads on 0" in site.root("cn1", f"{VMGR} job show {job_id}")


@pytest.mark.full
def test_job_with_too_few_cores_for_its_vcpus_does_not_run_and_is_told_so(site: Site) -> None:
    """Slots that are no processors: the node has two, and says four."""
    ended = site.job("-l", "nodes=cn1:ppn=4", "-vm", "vcpus=3,vcpu_pinning=true,ram=192M", stdin="echo RAN\n")
    check_refused(ended, "vcpu_pinning", "need 4 processors of their own, and the job has 2 left")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with cells and huge pages of the node, read from the kernel and in the guest, and the pool after any end.

The nodes of a lab share the machine's pools, of which these tests take a few pages.
"""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from .conftest import Site
from .trouble import WAITS, check_refused, finish, wait_in_guest

POOL = pathlib.Path("/sys/devices/system/node/node0/hugepages/hugepages-2048kB")
PAGES = 80
JOB = ("-l", "nodes=cn1:ppn=2", "-vm", f"vcpus=1,vcpu_pinning=true,numa=1,hugepages=2M,ram={2 * PAGES}M")
MAPS = "cat /proc/$(pgrep -f '^[^ ]*qemu-system')/numa_maps"
GUEST = """
for cell in /sys/devices/system/node/node*; do
    echo "$(basename $cell) $(cat $cell/cpulist) $(cat $cell/distance)"
done
"""


@pytest.fixture
def before() -> tuple[int, int]:
    """How many pages there are, and how many of these are free."""
    return pool()


def pool() -> tuple[int, int]:
    total, free = (int((POOL / name).read_text(encoding="ascii")) for name in ("nr_hugepages", "free_hugepages"))
    return total, free


def huge_of_guest(site: Site) -> list[tuple[str, int]]:
    """The policy and the number of pages of cell 0 of each mapping of a guest's qemu that is of huge pages."""
    found = re.findall(r"^\S+ (\S+) file=/memfd:\S+ .*\bhuge\b.* N0=([0-9]+)", site.root("cn1", MAPS), re.MULTILINE)
    return [(policy, int(count)) for policy, count in found]


def test_memory_of_a_guest_is_in_huge_pages_of_its_cell_and_the_pool_as_before(
    site: Site, before: tuple[int, int]
) -> None:
    job_id = site.submit(*JOB, stdin=GUEST + WAITS)
    wait_in_guest(site, job_id)
    assert huge_of_guest(site) == [("bind:0", PAGES)]
    ended = finish(site, job_id)
    assert ended.exit_status == 0
    assert "node0 0 10\n" in ended.out
    assert pool() == before
    record = json.loads(site.root("cn1", f"/opt/vtorque/bin/vmgr job show {job_id} --json"))
    assert [(guest["cells"], guest["pages"]) for guest in record["guests"]] == [(f"0:0:{2 * PAGES}", "2M")]
    assert f"{2 * PAGES} MiB of NUMA cell 0 for vCPU 0, in pages of 2M" in site.root(
        "fe", f"/opt/vtorque/bin/vmgr job show {job_id}"
    )


@pytest.mark.full
def test_pool_is_as_before_when_qemu_was_killed(site: Site, before: tuple[int, int]) -> None:
    job_id = site.submit(*JOB, stdin=WAITS)
    wait_in_guest(site, job_id)
    site.root("cn1", "kill -9 $(pgrep -f '^[^ ]*qemu-system')")
    assert site.end(job_id).exit_status != 0
    assert pool() == before


@pytest.mark.full
def test_pages_that_a_cell_never_has_are_refused_with_the_cell(site: Site, before: tuple[int, int]) -> None:
    """More than the machine's memory in one cell, and less than what the lab's Torque counts."""
    have = int(re.search(r"MemTotal:\s+([0-9]+)", pathlib.Path("/proc/meminfo").read_text())[1]) // 1024  # type: ignore[index]
    ram = (have - 900) // 2 * 2
    ended = site.job(
        "-l", "nodes=cn1:ppn=2", "-vm", f"vcpus=1,vcpu_pinning=true,hugepages=2M,ram={ram}M", stdin="echo RAN\n"
    )
    check_refused(ended, "NUMA cell 0")
    assert pool() == before

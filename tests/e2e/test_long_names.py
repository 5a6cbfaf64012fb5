# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs over three nodes of a site whose nodes have long names, one of them the beginning of another."""

from __future__ import annotations

import contextlib
import os
import typing as t

import pytest

from .conftest import Site
from .trouble import WAITS, finish, sweep, wait_in_guest

START_WAYS = ("fast",)  # a lab of nodes of other names

NODES = ("n1.site", "n10.site", "n2.site", "n3.site")
"""As many as the job names, with the one that it names again: no batch server takes more."""
SPEC = "n1.site:ppn=2+n10.site:ppn=2+n2.site:ppn=2+n10.site:ppn=2"
LOOK = """
echo "$PBS_NP $PBS_NUM_NODES $PBS_NUM_PPN"
cat "$PBS_NODEFILE"
for host in $(cat "$PBS_NODEFILE"); do ssh "$host" hostname </dev/null; done
"""


@pytest.fixture(scope="module")
def site() -> t.Iterator[Site]:
    """A lab with such names beside that of all tests."""
    here = Site(os.environ.get("VTORQUE_LAB", "/run/vtorque-lab") + "-long")
    with contextlib.ExitStack() as stack:
        stack.callback(here.run, "down")
        # the roles have installed nodes of other names
        here.up("--nodes", ",".join(("fe", *NODES)), by_roles=False)
        yield here


@pytest.mark.full
def test_job_on_nodes_with_long_names_one_of_them_named_twice(site: Site) -> None:
    """One guest a node, whatever exec_host repeats; every node cleans itself and nobody else."""
    job_id = site.submit("-l", f"nodes={SPEC}", "-vm", "vcpus=1,ram=192M", stdin=LOOK)
    ended = site.end(job_id)
    assert site.left_on_nodes() == []
    assert site.facts(job_id)["exec_host"] == "n1.site/0-1+n10.site/0-1+n2.site/0-1+n10.site/2-3"
    guests = ["vn1-1", "vn10-1", "vn2-1"]
    assert ended.out.splitlines() == ["3 3 1", *guests, *guests], ended.err
    assert (ended.exit_status, ended.err, ended.node) == (0, "", "n1.site")
    for node in NODES[:3]:
        # the mother superior's epilogue, or her sisters' own
        log = site.stored(node, job_id, name="vtorque.log")
        assert ("epilogue.parallel of job" in log) is (node != "n1.site"), node
    assert site.stored("n3.site", job_id, name="vtorque.log") == ""


MIXED = ("-l", "nodes=n1.site:ppn=3+n10.site:ppn=3+n2.site:ppn=3", "-vm", "vcpus=1,ram=192M,vms_per_node=2,nodes=2")


@pytest.mark.full
def test_mixed_job_that_loses_a_sister_and_fails(site: Site) -> None:
    """Two guests on each of the first two hosts, none on the third; the status is the script's, and all is gone."""
    script = 'sort -u "$PBS_NODEFILE"; ssh n2.site hostname </dev/null\n' + WAITS.replace("exit 0", "exit 4")
    job_id = site.submit(*MIXED, stdin=script)
    assert wait_in_guest(site, job_id) == "n1.site"
    assert site.run("lose", "n10.site").returncode == 0
    try:
        ended = finish(site, job_id)
        assert [thing for thing in site.left_on_nodes() if not thing.startswith("n10.site: ")] == []
    finally:
        assert site.run("back", "n10.site").returncode == 0
    assert (ended.exit_status, ended.err) == (4, "")
    assert ended.out.splitlines() == ["n2.site", "vn1-1", "vn1-2", "vn10-1", "vn10-2", "n2.site", "up", "on"]
    assert sweep(site, "n10.site", "--boot").returncode == 0
    site.wait_for("the node that was lost", lambda: site.nodes()["n10.site"].usable)
    assert site.left_on_nodes() == []


@pytest.mark.full
def test_mixed_job_whose_time_is_over(site: Site) -> None:
    """Its guests are gone when it is complete, and what it began on its bare host."""
    job_id = site.submit(*MIXED, "-l", "walltime=5", stdin="ssh n2.site sleep 600 </dev/null\n")
    assert site.end(job_id).exit_status == -11
    assert site.left_on_nodes() == []

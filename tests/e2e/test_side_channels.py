# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`side_channels`: a job that has its node to itself runs, and its record says so; one that shares it does not.

What of a level a node can keep is in the doctor's rows, and in the domains of guests.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from .conftest import Site
from .trouble import NODES, changed, check_refused, forge, request, wait_in_guest

XML = "sed -n /nosharepages/p /run/libvirt/qemu/*.xml\n"


@pytest.mark.full
def test_job_that_has_its_node_to_itself_runs_and_its_record_names_the_promise(site: Site) -> None:
    with changed(site, NODES, side_channels="exclusive"):
        job_id = site.submit(stdin="echo up; until [ -e ~/go ]; do sleep 1; done\n")
        wait_in_guest(site, job_id)
        node = site.runs(job_id)
        assert "nosharepages" in site.root(node, XML)
        site.write("/home/alice/go", "")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.err) == (0, "")
        (guest,) = json.loads(site.stored(node, job_id))["guests"]
        assert guest["side_channels"] == "exclusive"
        shared = forge(site, request(img="tiny"), "-l", "nodes=1:ppn=2")
        check_refused(site.end(shared), "submit the job with vsub, which asks for whole nodes")
    site.on("fe", "rm", "-f", "/home/alice/go", user="alice")


@pytest.mark.full
def test_job_on_whole_cores_runs_on_them_and_rows_name_what_else_the_node_can(site: Site) -> None:
    """Its guest has cores whose siblings are the job's too, and nothing in its domain that this host cannot give."""
    with changed(site, NODES, side_channels="cores"):
        job_id = site.submit(stdin="echo up; until [ -e ~/go ]; do sleep 1; done\n")
        wait_in_guest(site, job_id)
        node = site.runs(job_id)
        domain = ET.fromstring(site.root(node, "virsh dumpxml $(virsh list --name)"))
        assert domain.find("memoryBacking/nosharepages") is not None
        vcpu = domain.find("vcpu")
        assert vcpu is not None
        cores = numbers(vcpu.get("cpuset", ""))
        assert cores
        siblings = [
            numbers(site.root(node, f"cat /sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
            for core in sorted(cores)
        ]
        assert set().union(*siblings) <= cores
        done = site.on(node, "vmgr", "doctor", "--local", "--json")
        rows = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
        divides = "resctrl" in site.root(node, "cat /proc/filesystems").split()
        assert (rows["resctrl"]["cell"] == "no", rows["resctrl"]["state"] == "none") == (not divides, not divides)
        one_thread = site.root(node, "cat /sys/devices/system/cpu/smt/control").strip() != "on"
        apart = (rows["sched_core"]["cell"], rows["sched_core"]["state"])
        assert apart in ([("no threads", "none")] if one_thread else [("on", "ok"), ("no", "warn")])
        assert domain.find("cputune/cachetune") is None, "other jobs may be here: caches are shared"
        site.write("/home/alice/go", "")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.err) == (0, "")
        (guest,) = json.loads(site.stored(node, job_id))["guests"]
        assert guest["side_channels"] == "cores"
    site.on("fe", "rm", "-f", "/home/alice/go", user="alice")


def numbers(text: str) -> set[int]:
    """The numbers of a list of processors (`0-1,4`)."""
    spans = [re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part) for part in text.strip().split(",")]
    return {number for span in spans if span for number in range(int(span[1]), int(span[2] or span[1]) + 1)}

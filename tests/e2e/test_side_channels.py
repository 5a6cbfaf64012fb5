# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`side_channels`: a job that has its node to itself runs, and its record says so; one that shares it does not."""

from __future__ import annotations

import json

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

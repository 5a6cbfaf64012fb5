# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job starts the same whether its start begins early or goes straight: hook, ansible-playbook, vtorque-node."""

from __future__ import annotations

import pytest

from .conftest import BOOTED, Site, cases
from .trouble import PAIR, SUPERIOR, WAITS, changed, check_refused, finish, wait_in_guest

START_WAYS = cases(BOOTED, *BOOTED)
EARLY = {"asked.json", "early.json"}
"""What an early begin leaves in the run directory: what the node was asked, and the ssh that was begun."""
NODE = ("-l", f"nodes={SUPERIOR}")


def test_start_begins_early_or_straight_as_the_site_wants(site: Site, start_way: str) -> None:
    """The second job on a node is the first that can begin early; it has guests on both nodes."""
    assert site.job(*NODE, stdin="true\n").exit_status == 0
    job_id = site.submit(*PAIR, stdin=f"hostname; sort -u $PBS_NODEFILE | wc -l; {WAITS}")
    wait_in_guest(site, job_id)
    files = set(site.root(SUPERIOR, f"ls /run/vtorque/jobs/{job_id}.1").split())
    ended = finish(site, job_id)
    name, nodes, *_rest = ended.out.split()
    assert (ended.exit_status, nodes) == (0, "2")
    assert name.startswith("vcn1-")
    assert files & EARLY == (EARLY if start_way == "fast" else set())
    assert "ready.json" in files


@pytest.mark.full
def test_request_that_a_node_refuses_is_refused(site: Site) -> None:
    """By the prologue: the front end's configuration allows it."""
    with changed(site, vcpus_max=1):
        check_refused(site.job("-vm", "vcpus=2", stdin="echo RAN\n"), "vcpus=2")

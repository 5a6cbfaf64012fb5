# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spare nodes of a job (`-vm spare=K`): a node that fails at the start is replaced in the same start.

Seen to fail: with a plan whose spare nodes take nobody's place.
"""

from __future__ import annotations

import json

import pytest

from .batch_facts import TORQUE
from .conftest import WAYS, Site, cases
from .trouble import WELL, changed, check_message, check_offline, check_queued_again, check_well, drop, sweep

START_WAYS = cases(WAYS, "fast")

LOOK = """#!/bin/sh
hostname
sed 's/^/slot /' "${PBS_NODEFILE:-$VTORQUE_HOSTS}"
env | sed -n 's/^\\(PBS_NUM_NODES\\|SLURM_NNODES\\|SLURM_JOB_NUM_NODES\\|SLURM_TASKS_PER_NODE\\)=/count /p'
ls /home/alice >/dev/null && echo home
"""


def of_a_job(site: Site) -> tuple[str, str]:
    """The nodes of a job that asks for two, in its order: in Torque's the last one that is found leads."""
    return ("cn2", "cn1") if site.batch is TORQUE else ("cn1", "cn2")


@pytest.mark.both
def test_job_starts_on_the_spare_node_where_the_first_one_cannot_have_its_guest(site: Site) -> None:
    """In one start: its user reads nothing of it, the node is offline with our note, and both are clean at the end."""
    first, other = of_a_job(site)
    site.write("/home/alice/look.sh", LOOK)
    with changed(site, (first,), bridge="br99"):
        ended = site.job("-vm", "img=tiny,spare=1", "/home/alice/look.sh")
        assert (ended.exit_status, ended.err) == (0, "")
        name, *lines = ended.out.splitlines()
        assert name.startswith(f"v{other}-")
        assert {line for line in lines if line.startswith("slot ")} == {f"slot {name}"}
        assert {line for line in lines if line.startswith("count ")} == {"count 1"}
        assert lines[-1] == "home"
        assert site.facts(ended.job_id)["start_count"] == "1"
        nodes = site.nodes()
        check_offline(nodes[first], "bridge", ended.job_id, "br99")
        assert nodes[other] == WELL
        record = json.loads(site.stored(first, ended.job_id))
        assert (record["nodes"], record["spares"]) == ([other], [])
        assert [(one["node"], one["by"], "br99" in one["why"]) for one in record["replaced"]] == [(first, other, True)]
    assert sweep(site, first).returncode == 0
    check_well(site, first)


@pytest.mark.both
@pytest.mark.full
def test_spare_node_of_a_job_that_starts_well_has_no_guest_and_is_not_seen(site: Site) -> None:
    first, other = of_a_job(site)
    site.write("/home/alice/look.sh", LOOK)
    ended = site.job("-vm", "img=tiny,spare=1", "/home/alice/look.sh")
    assert (ended.exit_status, ended.err) == (0, "")
    name, *lines = ended.out.splitlines()
    assert name.startswith(f"v{first}-")
    assert {line for line in lines if line.startswith("slot ")} == {f"slot {name}"}
    record = json.loads(site.stored(first, ended.job_id))
    assert (record["nodes"], record["spares"], record["replaced"]) == ([first], [other], [])


@pytest.mark.both
@pytest.mark.full
def test_without_a_spare_node_left_the_start_fails_as_ever(site: Site) -> None:
    """One node is blamed, and the job waits for as many nodes as before."""
    first, other = of_a_job(site)
    with changed(site, bridge="br99"):
        job_id = site.submit("-vm", "img=tiny,spare=1", stdin="echo RAN\n")
        facts = check_queued_again(site, job_id)
        nodes = site.nodes()
        check_offline(nodes[first], "bridge", job_id, "br99")
        assert nodes[other] == WELL
        check_message(site.reported(facts), "br99", f"also failed: {other}", f"{first} is set offline")
        drop(site, job_id)
    assert sweep(site, first).returncode == 0
    check_well(site, first)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`checkpoint=on`: the guests of a job are saved while it runs, and a later start begins from there."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from .conftest import Ended, Site
from .test_endings import lost
from .test_saved import HOME, RING, domains
from .trouble import NODES, PAIR, WAITS, changed, finish, home_server, sweep_all, wait_in_guest

STORE = "/home/.checkpoints"
KEYS = ("-vm", "checkpoint=on")


SETTINGS: dict[str, t.Any] = {"checkpoint_dir": STORE, "checkpoint_min": 0, **HOME}


@contextlib.contextmanager
def storing(site: Site) -> t.Iterator[None]:
    site.root("fe", f"mkdir -m 700 {STORE}")
    try:
        with home_server(site), changed(site, ("fe", *NODES), **SETTINGS):
            yield
    finally:
        site.root("fe", f"rm -rf {STORE}")


def checkpoints(site: Site, job_id: str) -> list[str]:
    return site.root("fe", f"ls {STORE}/{job_id} 2>/dev/null; :").split()


def save(site: Site, job_id: str, generation: int = 1) -> None:
    """Have the guests of a job saved, as its owner."""
    asked = site.on("fe", "vmgr", "job", "checkpoint", job_id, user="alice")
    assert asked.returncode == 0, asked.stderr
    site.wait_for("the checkpoint", lambda: str(generation) in checkpoints(site, job_id))


def check_lines(out: str) -> None:
    """Each line is there once, and in its order."""
    lines = [line for line in out.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert out.splitlines()[0] == "up"


NOTES = RING.replace("echo line $i;", "echo line $i; echo line $i >>~/notes;")
"""A file that comes by NFS is not taken back: what is done twice stands there twice."""


def end_elsewhere(site: Site, job_id: str) -> Ended:
    """Wait for the good end of a job that goes on while its former node cn1 is out of use."""
    facts = site.wait_state(job_id, "CH")
    site.root("fe", "pbsnodes -c cn1")
    assert facts["job_state"] == "C", facts["comment"]
    ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    return ended


def test_job_that_its_owner_suspends_leaves_its_node_and_goes_on_elsewhere_when_it_is_released(site: Site) -> None:
    with storing(site):
        site.root("fe", "rm -f /home/alice/go /home/alice/notes; pbsnodes -o cn2")
        job_id = site.submit("-l", "nodes=1:ppn=2", *KEYS, stdin=NOTES)
        wait_in_guest(site, job_id)
        asked = site.on("fe", "vmgr", "job", "suspend", job_id, user="alice")
        assert asked.returncode == 0, asked.stderr
        assert f"qrls {job_id}" in asked.stdout
        site.wait_state(job_id, "H")
        (row,) = json.loads(site.root("fe", "vmgr suspended list --json"))
        assert (row["job_id"], row["user"], row["node"], row["guests"]) == (job_id, "alice", "", 1)
        assert domains(site) == []
        assert site.root("fe", "pbsnodes cn1 | grep -c ' jobs = '; :") == "0\n"
        notes = site.root("fe", "cat /home/alice/notes")
        site.root("fe", "pbsnodes -o cn1; pbsnodes -c cn2")
        site.on("fe", "qrls", job_id, user="alice")
        goes_on = "the job to go on"
        site.wait_for(goes_on, lambda: len(site.root("fe", "cat /home/alice/notes")) > len(notes))
        assert site.root("fe", "vmgr suspended list --json").strip() == "[]"
        site.root("fe", "touch /home/alice/go")
        ended = end_elsewhere(site, job_id)
    check_lines(ended.out)
    assert site.root("fe", "cat /home/alice/notes").splitlines() == ended.out.splitlines()[1:-1]


@pytest.mark.full
def test_job_that_cannot_be_saved_is_neither_suspended_nor_ended_by_the_wish(site: Site) -> None:
    with storing(site):
        job_id = site.submit("-l", "nodes=1:ppn=2", stdin=WAITS)
        wait_in_guest(site, job_id)
        for verb in ("suspend", "checkpoint"):
            asked = site.on("fe", "vmgr", "job", verb, job_id, user="alice")
            assert asked.returncode != 0
            assert "was submitted without checkpoint=on" in asked.stderr
        assert finish(site, job_id).exit_status == 0


@pytest.mark.full
def test_job_of_one_node_begins_again_on_the_other_from_its_checkpoint(site: Site) -> None:
    with storing(site):
        site.root("fe", "rm -f /home/alice/go; pbsnodes -o cn2")
        job_id = site.submit("-l", "nodes=1:ppn=2", *KEYS, stdin=RING)
        wait_in_guest(site, job_id)
        save(site, job_id)
        site.root("fe", f"qhold -h u {job_id}; qrerun {job_id}")
        site.wait_state(job_id, "H")
        site.root("fe", f"pbsnodes -o cn1; pbsnodes -c cn2; touch /home/alice/go; qrls -h u {job_id}")
        ended = end_elsewhere(site, job_id)
    check_lines(ended.out)


TWO_GUESTS = """
echo up
ssh $(tail -n 1 $PBS_NODEFILE) 'i=0; until [ -e ~/go ]; do i=$((i + 1)); echo line $i; sleep 0.2; done'
echo ended $?
"""
"""All lines but the first and the last come over a connection between the two guests."""


@pytest.mark.full
def test_job_of_two_nodes_that_lose_their_power_begins_again_from_its_checkpoint(site: Site) -> None:
    with storing(site):
        site.root("fe", "rm -f /home/alice/go")
        job_id = site.submit(*PAIR, *KEYS, stdin=TWO_GUESTS)
        wait_in_guest(site, job_id)
        save(site, job_id)
        site.root("fe", f"qhold -h u {job_id}")
        with lost(site, NODES[0]), lost(site, NODES[1]):
            pass
        site.wait_state(job_id, "H")
        with changed(site, **SETTINGS):  # a node that boots has the lab's own configuration
            sweep_all(site)
            site.root("fe", f"touch /home/alice/go; qrls -h u {job_id}")
            facts = site.wait_state(job_id, "CH")
            assert facts["job_state"] == "C", facts["comment"]
            ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    check_lines(ended.out)
    assert ended.out.splitlines()[-1] == "ended 0"
    assert len(ended.out.splitlines()) > 3

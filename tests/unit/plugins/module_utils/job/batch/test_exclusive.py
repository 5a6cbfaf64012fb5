# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is a job's alone when the server and the MOM both say so."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import exclusive
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures/torque"


class Batch:
    """A server that says this of any node."""

    def __init__(self, *jobs: str) -> None:
        self.output = frozenset(jobs)

    def jobs(self, _node: str) -> frozenset[str]:
        return self.output


@pytest.fixture
def mom(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "mom_priv/jobs").mkdir(parents=True)
    for name in ("72-1.head.SC", "72-1.head.JB"):
        (tmp_path / "mom_priv/jobs" / name).touch()
    return tmp_path


def at(torque_home: pathlib.Path) -> Policy:
    """The policy of a site that has Torque there."""
    return Policy(torque_home=str(torque_home))


def test_a_job_that_is_alone(mom: pathlib.Path) -> None:
    assert exclusive.others(t.cast(t.Any, Batch("72[1].head")), "72[1].head", "cn1", at(mom)) == ()
    # as after its end, when the server has freed the node
    assert exclusive.others(t.cast(t.Any, Batch()), "72[1].head", "cn1", at(mom)) == ()


def test_jobs_beside_it_are_named(mom: pathlib.Path) -> None:
    (mom / "mom_priv/jobs/72-2.head.JB").touch()
    (mom / "mom_priv/jobs/note.txt").touch()
    found = exclusive.others(t.cast(t.Any, Batch("72[1].head", "9.head")), "72[1].head", "cn1", at(mom))
    assert found == ("job 9.head", "file 72-2.head.JB")


def test_a_mom_whose_files_cannot_be_read_does_not_tell(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="what the MOM has here is not known"):
        exclusive.others(t.cast(t.Any, Batch()), "1.head", "cn1", at(tmp_path))


def test_jobs_of_nodes_as_recorded() -> None:
    nodes = {node.name: node.jobs for node in answers.parse_nodes((FIXTURES / "pbsnodes-x.xml").read_bytes())}
    assert nodes == {"t1": {"12[1].th", "12[2].th"}, "t2": set(), "t3": set()}


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("", set()),
        ("0/7.th", {"7.th"}),
        ("0-1,3/7.th,2/8[4].th", {"7.th", "8[4].th"}),
        ("0/7.th, 1/8.th", {"7.th", "8.th"}),
        ("what is this", {"what is this"}),
        ("x/7.th", {"x/7.th"}),
    ],
)
def test_slots_of_a_node(text: str, jobs: set[str]) -> None:
    assert answers.parse_slots(text) == jobs

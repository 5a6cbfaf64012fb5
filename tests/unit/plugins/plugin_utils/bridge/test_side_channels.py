# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`side_channels`: what of a node a job gets, and when it is refused."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import exclusive
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import cpus, side_channels
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import job_cores

from ...module_utils.job.verdict.test_decide import job_at
from ...module_utils.node.system.test_side_channels import host


class Node:
    """A node, what the kernel tells of it, and what the batch system does there."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.directory, self.alone, self.later, self.group = directory, True, (), ()
        self.patch = patch
        patch.setattr(exclusive, "is_exclusive", lambda *_words: self.alone)
        patch.setattr(job_cores, "cpusets_of", lambda *_words: self.later)
        patch.setattr(cpus, "of_groups", lambda _patterns: self.group)

    def keep(self, level: str, cores: tuple[int, ...], **tree: t.Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
        place = host(self.directory / str(len(list(self.directory.iterdir()))), **tree)
        self.patch.setattr(side_channels.find_whole_cores, "__defaults__", (place,))
        self.patch.setattr(side_channels.select_whole_cores, "__defaults__", (place,))
        self.patch.setattr(side_channels.find_objections, "__defaults__", (place,))
        return job_cores.apply_side_channels(job_at(1), Policy(side_channels=level), "t1", cores)


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_site_without_a_promise_asks_nobody(node: Node) -> None:
    node.alone, node.later = False, ("slurm/job_7",)
    assert node.keep("off", (0, 1)) == ((0, 1), ("slurm/job_7",))


@pytest.mark.parametrize("level", ["exclusive", "strict"])
def test_job_that_shares_its_node_is_refused(node: Node, level: str) -> None:
    node.alone = False
    with pytest.raises(UserFault, match="does not have the node to itself"):
        node.keep(level, (0, 4))


def test_exclusive_leaves_a_job_all_of_its_processors(node: Node) -> None:
    assert node.keep("exclusive", (1, 2, 3, 4, 5, 6, 7), smt="on") == ((1, 2, 3, 4, 5, 6, 7), ())


def test_cores_gives_whole_cores_of_a_shared_node(node: Node) -> None:
    node.alone = False
    assert node.keep("cores", (0, 1, 4), smt="on") == ((0, 4), ())
    with pytest.raises(SiteFault, match="have the batch system give whole cores"):
        node.keep("cores", (0, 1), smt="on")


def test_cores_is_refused_where_the_cpuset_is_still_to_come_on_a_shared_node(node: Node) -> None:
    node.alone, node.later = False, ("slurm/job_7",)
    with pytest.raises(SiteFault, match="pbs_exclusive_node_alloc"):
        node.keep("cores", (0, 4))
    node.group = (0, 1, 4)
    assert node.keep("cores", (0, 1, 4)) == ((0, 4), ()), "nobody moves them to parts of cores later"
    node.alone, node.group = True, ()
    assert node.keep("cores", (0, 4)) == ((0, 4), ("slurm/job_7",))


def test_strict_is_refused_on_a_node_that_cannot_keep_it(node: Node) -> None:
    assert node.keep("strict", (0, 4)) == ((0, 4), ())
    with pytest.raises(SiteFault, match=r"several threads.*KSM merges pages"):
        node.keep("strict", (0, 4), smt="on", ksm="1")


def test_silent_server_keeps_no_promise(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_words: object) -> t.NoReturn:
        raise SiteFault("pbsnodes", "gave no answer")

    monkeypatch.setattr(exclusive, "is_exclusive", silent)
    with pytest.raises(SiteFault, match="gave no answer"):
        node.keep("exclusive", (0, 4))


def test_job_is_alone_by_the_servers_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked for where the job itself says so."""
    job = dataclasses.replace(job_at(1), node_exclusive=True)
    assert job_cores.apply_side_channels(job, Policy(side_channels="exclusive"), "t1", (0,)) == ((0,), ())

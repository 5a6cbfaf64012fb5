# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no partition has is refused by vsbatch, and what some partition may have is sbatch's to judge."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import Offers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.submission import Site, prepare
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_commands, open_front
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.questions import partitions
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.sbatch import node_sizes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.demand import NodeSize
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors

RECORDED = "batch*|1|2|24105|vtorque\nbatch*|1|2|24105|vtorque,fast\nfast|1|2|24105|vtorque,fast\n"
"""On 22.05.8, with two nodes, one of which is in both partitions."""
SMALL = NodeSize("batch", 2, 24105)
POLICY = Policy(batch_system="slurm", img_default="tiny", distro_default="debian", vcpus_default=1, ram_default=512)


def faults(*arguments: str, sizes: t.Sequence[NodeSize] = (SMALL, SMALL)) -> dict[str, str]:
    asked = open_front("slurm").read_call([*arguments, "--wrap", "true"], {}).read_script(bytes)
    return {fault.key: fault.message for fault in asked.object_to_sizes(sizes)}


@pytest.mark.parametrize(
    ("queue", "feature", "count"),
    [("", None, 2), ("batch", None, 2), ("fast", None, 1), ("fast,batch", None, 3), ("", "fast", 1), ("", "gpu", 0),
     ("elsewhere", None, 0)],
)  # fmt: skip
def test_sizes_are_those_of_the_partitions_that_are_asked_for(queue: str, feature: str | None, count: int) -> None:
    found = partitions.read_sizes(RECORDED, queue, feature)
    assert len(found) == count
    assert {(size.cores, size.mem_mib) for size in found} <= {(2, 24105)}


@pytest.mark.parametrize("text", ["", "x", "batch*|x|2|3|f", "batch*|1|2|3", "slurm_load_partitions: Unable"])
def test_answer_of_another_form_tells_of_no_node(text: str) -> None:
    assert partitions.read_sizes(text, "", None) == ()


@pytest.mark.parametrize(
    ("arguments", "key", "number"),
    [
        (("-n", "8"), "--ntasks", "4, at most 2 a node"),
        (("-n3", "-c2"), "--ntasks", "6 processors"),
        (("-N3",), "--nodes", "(2)"),
        (("-N", "3-5"), "--nodes", "(2)"),
        (("-N2", "-c3"), "--cpus-per-task", "(2)"),
        (("--ntasks-per-node=3",), "--ntasks-per-node", "(2)"),
        (("--tasks-per-node=3",), "--tasks-per-node", "(2)"),
        (("--mem=99G",), "--mem", "any node of partition batch"),
        (("--mem", "24106"), "--mem", "any node of partition batch"),
    ],
)
def test_job_that_would_wait_for_ever_is_refused_with_the_largest_nodes_numbers(
    arguments: tuple[str, ...], key: str, number: str
) -> None:
    found = faults(*arguments)
    assert list(found) == [key]
    assert number in found[key]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n4",), ("-N2",), ("-N1-9",), ("-c2",), ("-n2", "-c2"), ("--mem=24105",), ("--mem=0",), ("--mem=20G",),
        ("-n8", "--overcommit"), ("-n8", "-O"), ("-N3", "-w", "cn[1-3]"), ("-N", "2k"), ("--mem=all",), ("-n", "many"),
    ],
)  # fmt: skip
def test_job_that_may_run_is_sbatchs_to_judge(arguments: tuple[str, ...]) -> None:
    assert faults(*arguments) == {}


def test_job_runs_in_one_of_the_partitions() -> None:
    sizes = [SMALL, SMALL, NodeSize("fast", 8, 1024)]
    assert faults("-n8", sizes=sizes) == {}
    assert list(faults("-n9", sizes=sizes)) == ["--ntasks"]
    assert list(faults("-N3", sizes=sizes)) == ["--nodes"]
    assert faults("-n99", sizes=()) == {}, "nothing is known where sinfo does not answer"


def test_machines_that_no_node_of_the_partition_can_hold_are_refused() -> None:
    asked = open_front("slurm").read_call(["-p", "fast", "-vm", "vcpus=9", "--wrap", "true"], {}).read_script(bytes)
    queues: list[str] = []

    def sizes(queue: str) -> tuple[NodeSize, ...]:
        queues.append(queue)
        return (SMALL,)

    with pytest.raises(RequestErrors) as caught:
        prepare(asked, POLICY, Site(Offers(None), {}, sizes), "/home/alice")
    assert queues == ["fast"]
    (fault,) = caught.value.faults
    assert fault.key == "processors"
    assert "more than any node of this site has (2)" in fault.message


def test_sizes_are_one_question_to_the_controller(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho \"$*\" >>{tmp_path}/asked\nprintf '{RECORDED}'\n")
    (tmp_path / "sinfo").chmod(0o755)
    assert len(open_commands("slurm", tmp_path).node_sizes("", "vtorque")) == 2
    assert (tmp_path / "asked").read_text() == "-h -a -e -o %P|%D|%c|%m|%f\n"
    assert node_sizes.UNCERTAIN


def words_of(*arguments: str, keys: str = "spare=1") -> list[str]:
    asked = open_front("slurm").read_call(["-vm", keys, *arguments, "--wrap", "true"], {}).read_script(bytes)
    command_call = prepare(asked, POLICY, Site(Offers(), {}, lambda _queue: ()), "/home/alice").command_call
    return list(command_call.argv)


@pytest.mark.parametrize(
    ("arguments", "keys", "nodes"),
    [
        ((), "spare=1", "--nodes=2"),
        (("-N2",), "spare=1", "--nodes=3"),
        (("--nodes", "4", "--ntasks-per-node=2"), "spare=2", "--nodes=6"),
    ],
)
def test_spare_nodes_are_asked_for_besides(arguments: tuple[str, ...], keys: str, nodes: str) -> None:
    """Of several options sbatch takes the last one."""
    found = [word for word in words_of(*arguments, keys=keys) if word.startswith(("-N", "--nodes"))]
    assert found[-1] == nodes


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-N2", "-w", "n1,n2"), "asks for hosts by name"),
        (("-N2-4",), "or their number is not known"),
        (("-N2", "-n4"), "spread over the spare nodes"),
        (("-n4",), "spread over the spare nodes"),
    ],
)
def test_spare_node_that_could_not_take_every_place_is_refused(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(UserFault, match=why):
        words_of(*arguments)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores are a job's: by the MOM's cpuset, or because nobody else may come; and who is told when they are not."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import node_traces
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import cpus
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import job_cores

from ..node_agent.test_serve import JOB

ALL = cpus.of_node(0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nodes of which the server was asked: each has two slots."""
    names: list[str] = []

    class Batch:
        def node(self, name: str) -> BatchNode:
            names.append(name)
            return BatchNode(name, frozenset({"free"}), 2, 0, frozenset(), "")

    monkeypatch.setattr(job_cores, "open_batch", lambda _policy, **_more: Batch())
    monkeypatch.setattr(cpus, "of_mom", lambda _job_id: ())
    return names


def test_cpuset_of_the_mom_is_the_jobs(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(cpus, "of_mom", {JOB.job_id: (5, 6)}.__getitem__)
    assert job_cores.cores_of(JOB, Policy(), "cn1") == (5, 6)
    assert asked == []


def test_exclusive_job_has_all_but_the_hosts(asked: list[str]) -> None:
    job = dataclasses.replace(JOB, node_exclusive=True)
    assert job_cores.cores_of(job, Policy(host_os_core_count=0), "cn1") == ALL
    assert job_cores.cores_of(job, Policy(host_os_core_count=1), "cn1") == ALL[1:]
    assert job_cores.cores_of(job, Policy(host_os_core_count=1), "cn1", with_host=True) == ALL
    assert asked == []


def test_job_with_all_slots_has_all_cores(asked: list[str]) -> None:
    assert job_cores.cores_of(JOB, Policy(host_os_core_count=0), "cn1.example") == ALL
    assert asked == ["cn1.example"]


@pytest.mark.parametrize(
    ("exclusive", "fault", "hint"),
    [(True, UserFault, "submit the job with vsub"), (False, SiteFault, "--enable-cgroups")],
)
def test_a_shared_node_without_cpusets_takes_no_guests(
    asked: list[str], exclusive: bool, fault: type[Exception], hint: str
) -> None:
    policy = Policy(pbs_exclusive_node_alloc=exclusive, kill_user_processes_after_job=False)
    with pytest.raises(fault, match="other jobs may run there") as report:
        job_cores.cores_of(JOB, policy, "cn2")
    assert hint in str(report.value)
    assert asked == ["cn2"]


def test_on_a_shared_node_whose_cpusets_follow_guests_boot_where_no_job_is(
    monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    monkeypatch.setattr(node_traces, "cpusets", lambda _policy, job_id: (f"job_{job_id}",))
    monkeypatch.setattr(cpus, "of_groups", lambda patterns: {("job_8.head",): (3,)}.get(patterns, ()))
    monkeypatch.setattr(cpus, "unassigned_cores", lambda *arguments: arguments)
    policy = Policy(batch_system="slurm", pbs_exclusive_node_alloc=False, host_os_core_count=1)
    assert job_cores.cores_of(JOB, policy, "cn2") == (("job_*",), 1, 1)
    assert job_cores.cores_of(dataclasses.replace(JOB, job_id="8.head"), policy, "cn2") == (3,)
    assert job_cores.cpusets_of(JOB.job_id, policy) == ("job_7.head",)


def test_cores_may_change_while_the_cpuset_on_a_shared_node_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_traces, "cpusets", lambda _policy, job_id: (f"job_{job_id}",))
    slurm = Policy(batch_system="slurm", host_os_core_count=0)
    groups: dict[str, cpus.Cores] = {}
    monkeypatch.setattr(cpus, "of_groups", lambda patterns: groups.get("job", ()))
    assert job_cores.may_change(JOB, slurm, (2**14,))
    assert not job_cores.may_change(JOB, slurm, ALL)
    assert not job_cores.may_change(JOB, Policy(), (2**14,)), "Torque makes none after the prologue"
    groups["job"] = (2**14,)
    assert not job_cores.may_change(JOB, slurm, (2**14,))

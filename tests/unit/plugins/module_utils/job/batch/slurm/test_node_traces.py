# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmd has on a node, asked by a sweep that looks at many starts."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import hook_calls, node_traces
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy


def test_alive_here_for_many_starts_asks_slurm_once(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text(
        f"#!/bin/sh\necho asked >>{tmp_path}/calls\necho PID JOBID STEPID LOCALID GLOBALID\necho 41 7 batch 0 0\n"
    )
    program.chmod(0o755)
    alive_here = node_traces.alive_here(Policy(batch_system="slurm", pbs_qsub_on_nodes=f"{tmp_path}/qsub"))
    assert [alive_here(f"{number}.lab") for number in (7, 8, 9, 7)] == [True, False, False, True]
    assert (tmp_path / "calls").read_text() == "asked\n"


@pytest.mark.parametrize(
    ("task_plugin", "cgroup_conf", "there"),
    [
        ("task/cgroup,task/affinity", "ConstrainCores=yes\n", True),
        ("task/affinity,task/cgroup", "# ConstrainCores=no\n constraincores = Yes # all\n", True),
        ("affinity,cgroup", "ConstrainCores=yes\n", True),
        ("affinity,Cgroup", "ConstrainCores=yes\n", True),
        ("task/affinity", "ConstrainCores=yes\n", False),
        ("task/cgroup", "ConstrainCores=no\n", False),
        ("task/cgroup", None, False),
    ],
)
def test_cpuset_of_a_job_is_where_slurmd_will_make_it_if_it_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, task_plugin: str, cgroup_conf: str | None, there: bool
) -> None:
    (tmp_path / "slurm.conf").write_text(f"TaskPlugin={task_plugin}\n")
    if cgroup_conf is not None:
        (tmp_path / "cgroup.conf").write_text(cgroup_conf)
    monkeypatch.setattr(hook_calls, "CONFIGURATIONS", (tmp_path / "none", tmp_path / "slurm.conf"))
    policy = Policy(batch_system="slurm")
    places = [pathlib.PurePath(one) for one in ("slurm_cn1/uid_1001/job_7", "system.slice/cn1_slurmstepd.scope/job_7")]
    for place in places:
        for job_id in ("7.lab", "*"):
            assert any(place.match(pattern) for pattern in node_traces.cpusets(policy, job_id)) is there
        assert not any(place.match(pattern) for pattern in node_traces.cpusets(policy, "70.lab"))


def test_slurm_of_a_prefix_is_read_by_its_own_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`slurm_bin` is /opt/slurm/bin, whose slurm.conf is /opt/slurm/etc/slurm.conf; that of /etc/slurm is another's."""
    other = tmp_path / "other"
    for place, text in (
        (other, "TaskPlugin=task/none\n"),
        (tmp_path / "etc", "TaskPlugin=task/cgroup\nTaskProlog=/site/task\nPrologEpilogTimeout=120\n"),
    ):
        place.mkdir()
        (place / "slurm.conf").write_text(text)
        (place / "cgroup.conf").write_text(f"ConstrainCores={'no' if place == other else 'yes'}\n")
    monkeypatch.setattr(hook_calls, "CONFIGURATIONS", (other / "slurm.conf",))
    policy = Policy(batch_system="slurm", slurm_bin=str(tmp_path / "bin"))
    job: t.Any = None
    assert node_traces.cpusets(policy, "*")
    assert node_traces.runs_users_programs_first(job, policy)
    assert hook_calls.hook_limits(policy).seconds == 120
    (tmp_path / "etc/slurm.conf").unlink()
    assert not node_traces.cpusets(policy, "*")
    assert hook_calls.hook_limits(policy).seconds == float("inf")

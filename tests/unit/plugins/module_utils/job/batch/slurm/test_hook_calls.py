# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Slurm calls a hook, and for how long."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookCall, HookEnd, Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm"


def call(name: str, file: str, **changes: str) -> HookCall:
    environment = dict(line.split("=", 1) for line in (FIXTURES / file).read_text().splitlines())
    return hook_calls.read_call([name, "yes"], {**environment, **changes})


def test_node_that_runs_the_script_is_the_first_of_the_list() -> None:
    assert call("prologue", "prolog-cn1.txt").role == Role.BEGIN_FIRST
    assert call("prologue", "prolog-cn2.txt").role == Role.BEGIN_OTHER
    assert call("epilogue", "epilog-cn2.txt").role == Role.END_OTHER
    assert call("prologue", "prolog-cn1.txt").nodes == ("cn1", "cn2")


def test_start_counts_from_one_and_an_end_covers_each_start_before() -> None:
    assert call("prologue", "prolog-cn1.txt").start == 1
    assert call("epilogue", "epilog-cn1.txt", SLURM_JOB_RESTART_COUNT="1").start == 2


@pytest.mark.parametrize(("text", "status"), [("37:0", 37), ("0:9", 137), ("0:0", 0), ("", None), ("x", None)])
def test_exit_status_of_the_job(text: str, status: int | None) -> None:
    assert call("epilogue", "epilog-cn1.txt", SLURM_JOB_EXIT_CODE2=text).exit_status == status


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_RESTART_COUNT": ""},
        {"SLURM_NODELIST": ""},
        {"SLURM_NODELIST": "n[1-"},
        {"SLURM_CLUSTER_NAME": "a b"},
        {"SLURM_CLUSTER_NAME": "hpc_main"},
        {"SLURM_NODELIST": "gpu_n[1-2]"},
        {"SLURM_JOB_USER": "4alice"},
    ],
)
def test_environment_of_another_form_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(VTorqueError):
        call("prologue", "prolog-cn1.txt", **changes)


def test_job_that_was_queued_again_or_held_leaves_the_node_alone() -> None:
    assert hook_calls.exit_status(HookEnd.AGAIN) == 0
    assert hook_calls.exit_status(HookEnd.FAILED) == 1


def test_job_of_another_form_leaves_the_node_alone_too() -> None:
    assert hook_calls.exit_status(HookEnd.UNREADABLE) == 0


@pytest.mark.parametrize(
    ("text", "begin_s", "end_s"),
    [
        ("", float("inf"), 300),
        ("PrologEpilogTimeout=120\n", 120, 120),
        ("prologepilogtimeout = 400 # site's\n", 400, 300),
        ("#PrologEpilogTimeout=120\n", float("inf"), 300),
        ("PrologEpilogTimeout=65534\n", float("inf"), 300),
        ("PrologTimeout=90\nPrologEpilogTimeout=120\n", 90, 120),
    ],
)
def test_bound_of_a_hook_is_that_of_slurm_conf(
    text: str, begin_s: float, end_s: float, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slurm.conf").write_text(text)
    monkeypatch.setattr(hook_calls, "CONFIGURATIONS", (tmp_path / "none", tmp_path / "slurm.conf"))
    policy: t.Any = Policy()
    assert hook_calls.hook_limits(policy).seconds == begin_s
    assert hook_calls.hook_ends(call("prologue", "prolog-cn1.txt"), policy, 1000.0) == 1000.0 + begin_s
    assert hook_calls.hook_ends(call("epilogue", "epilog-cn1.txt"), policy, 1000.0) == 1000.0 + end_s

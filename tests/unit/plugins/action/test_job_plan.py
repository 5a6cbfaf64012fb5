# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""job_plan: what was planned, for root alone, and the same twice."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.action import job_plan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.job_snapshot import save_snapshot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import planning as start_planning

from .task import JOB, START, act, error, make_plan


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> types.SimpleNamespace:
    """What the plan is made from; `.plan` is what `make_plan` gives, `.start` what the server says.

    A plan bears the digest of its inputs where it is to be `named`; `.made` is how many were made.
    """
    world = types.SimpleNamespace(plan=make_plan("n1"), start=START, fault=None, made=0, named=False)
    aux = tmp_path / "torque" / "aux"
    aux.mkdir(parents=True)
    (aux / JOB).write_text("n1\n")
    site = types.SimpleNamespace(
        checkpoint_dir=None,
        torque_home=str(tmp_path / "torque"), vm_img_dir=str(tmp_path), prologue_timeout=270, batch_system="torque"
    )  # fmt: skip
    world.site = site

    def plan_it(*_args: t.Any, node_file: str, inputs: str, **_others: t.Any) -> JobPlan:
        assert node_file == "n1\n"
        if world.fault:
            raise world.fault
        world.made += 1
        return dataclasses.replace(world.plan, inputs=inputs) if world.named else t.cast(JobPlan, world.plan)

    server = types.SimpleNamespace(
        job=lambda job_id: types.SimpleNamespace(start_count=world.start, x="", euser="nobody", egroup="")
    )
    monkeypatch.setattr(job_plan.policy_file, "load", lambda path: site)
    monkeypatch.setattr(job_plan, "open_batch", lambda policy: server)
    monkeypatch.setattr(start_planning, "image_of", lambda job, policy: None)
    monkeypatch.setattr(start_planning, "make_plan", plan_it)
    return world


def test_the_plan_is_for_root_alone(run_dir: pathlib.Path, planning: t.Any) -> None:
    result = act(job_plan, run_dir)
    assert result["changed"]
    assert result["nodes"] == ["n1"]
    assert result["guests"] == 1
    assert (run_dir / "plan.json").stat().st_mode & 0o777 == 0o400
    assert JobPlan.from_json((run_dir / "plan.json").read_text()) == planning.plan


def test_job_plan_with_a_saved_answer_asks_no_server(
    run_dir: pathlib.Path, planning: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {"job_id": JOB, "start_count": START, "slot_hosts": ("n1",), "variables": {}, "resource_list": {}}
    names = [field.name for field in dataclasses.fields(BatchJob)]
    save_snapshot(BatchJob(**{name: report.get(name, "") for name in names}), run_dir)
    monkeypatch.setattr(job_plan, "open_batch", lambda policy: pytest.fail("the server was asked"))
    assert act(job_plan, run_dir)["nodes"] == ["n1"]


def test_plan_that_says_the_same_keeps_its_keys(run_dir: pathlib.Path, planning: t.Any) -> None:
    act(job_plan, run_dir)
    first = (run_dir / "plan.json").read_text()
    planning.plan = dataclasses.replace(planning.plan, job_key=make_key("another@test"))
    assert not act(job_plan, run_dir)["changed"]
    assert (run_dir / "plan.json").read_text() == first


def test_plan_of_the_same_inputs_is_taken_over(run_dir: pathlib.Path, planning: t.Any) -> None:
    """Whoever made it: nothing is planned a second time."""
    planning.named = True
    act(job_plan, run_dir)
    first = (run_dir / "plan.json").read_text()
    planning.fault = SiteFault("it was planned again")
    again = act(job_plan, run_dir)
    assert (again["changed"], again["nodes"], planning.made) == (False, ["n1"], 1)
    assert (run_dir / "plan.json").read_text() == first


def test_plan_of_other_inputs_is_made_anew(run_dir: pathlib.Path, planning: t.Any) -> None:
    """One that decides the same leaves the keys that guests may have; one that does not takes its place."""
    planning.named = True
    act(job_plan, run_dir)
    first = (run_dir / "plan.json").read_text()
    planning.site.record_days = 7
    assert not act(job_plan, run_dir)["changed"]
    assert planning.made == 2
    assert (run_dir / "plan.json").read_text() == first
    planning.plan = make_plan("n1", ram_mib=512)
    assert act(job_plan, run_dir)["changed"]
    assert planning.made == 3
    assert not act(job_plan, run_dir)["changed"]
    assert planning.made == 3


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[JobPlan]:
    """Every plan whose decision was computed, as often as it was."""
    computed: list[JobPlan] = []
    decision = t.cast(property, vars(JobPlan)["decision"]).fget
    assert decision is not None

    def compute(plan: JobPlan) -> str:
        computed.append(plan)
        return str(decision(plan))

    monkeypatch.setattr(JobPlan, "decision", property(compute))
    return computed


def test_decision_of_a_plan_is_computed_once_whatever_the_number_of_guests(
    run_dir: pathlib.Path, planning: t.Any, decisions: list[JobPlan]
) -> None:
    (part,) = planning.plan.node_parts
    many = tuple(dataclasses.replace(part.guests[0], rank=rank, index=rank) for rank in range(8))
    planning.plan = dataclasses.replace(planning.plan, node_parts=(dataclasses.replace(part, guests=many),))
    result = act(job_plan, run_dir)
    assert {guest["plan"] for guest in result["diff"]["after"]["n1"]} == {planning.plan.decision}
    decisions.clear()
    assert not act(job_plan, run_dir)["changed"]
    assert len(decisions) == 2  # that of the former, and that of the new one


def test_decision_of_a_plan_that_is_taken_over_is_not_computed(
    run_dir: pathlib.Path, planning: t.Any, decisions: list[JobPlan]
) -> None:
    planning.named = True
    act(job_plan, run_dir)
    decisions.clear()
    assert not act(job_plan, run_dir)["changed"]
    assert (planning.made, decisions) == (1, [])


def test_a_plan_that_says_something_else_is_shown(run_dir: pathlib.Path, planning: t.Any) -> None:
    act(job_plan, run_dir)
    planning.plan = make_plan("n1", ram_mib=512)
    again = act(job_plan, run_dir)
    assert [again["diff"][side]["n1"][0]["ram_mib"] for side in ("before", "after")] == [256, 512]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"data_disk": "/home/alice/data"}, id="a disk"),
        pytest.param({"data_disk": "/home/alice/other"}, id="another disk"),
        pytest.param({"fs_type": "local"}, id="where the image is read"),
        pytest.param({"image_digest": "a" * 64}, id="the content of an image of the user"),
        pytest.param({"arch": "aarch64"}, id="the architecture"),
    ],
)
def test_plan_of_other_guests_takes_the_place_of_the_former(
    run_dir: pathlib.Path, planning: t.Any, changes: dict[str, str]
) -> None:
    planning.plan = with_guest(planning.plan, data_disk=changes.get("data_disk", "") and "/home/alice/first")
    act(job_plan, run_dir)
    planning.plan = with_guest(planning.plan, **changes)
    again = act(job_plan, run_dir)
    assert again["changed"]
    assert again["diff"]["before"] != again["diff"]["after"]
    assert "/home/alice" not in repr(again)
    assert JobPlan.from_json((run_dir / "plan.json").read_text()) == planning.plan
    assert not act(job_plan, run_dir)["changed"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"user_shell": "/bin/zsh"}, id="the shell"),
        pytest.param({"additions": messages.Additions((messages.Package("gcc"),))}, id="what the user adds"),
    ],
)
def test_plan_that_differs_beside_its_guests_takes_the_place_of_the_former(
    run_dir: pathlib.Path, planning: t.Any, changes: dict[str, t.Any]
) -> None:
    act(job_plan, run_dir)
    planning.plan = dataclasses.replace(planning.plan, **changes)
    again = act(job_plan, run_dir)
    assert again["changed"]
    assert again["diff"]["before"] != again["diff"]["after"]
    assert JobPlan.from_json((run_dir / "plan.json").read_text()) == planning.plan


def with_guest(plan: JobPlan, **changes: str) -> JobPlan:
    (part,) = plan.node_parts
    guests = tuple(dataclasses.replace(guest, **changes) for guest in part.guests)
    return dataclasses.replace(plan, node_parts=(dataclasses.replace(part, guests=guests),))


def test_check_mode_plans_and_writes_nothing(run_dir: pathlib.Path, planning: t.Any) -> None:
    assert act(job_plan, run_dir, check=True)["changed"]
    assert list(run_dir.iterdir()) == []
    act(job_plan, run_dir)
    assert not act(job_plan, run_dir, check=True)["changed"]


def test_server_must_speak_of_this_start(run_dir: pathlib.Path, planning: t.Any) -> None:
    planning.start = START + 1
    assert "the server speaks of start 3" in act(job_plan, run_dir)["msg"]
    assert not (run_dir / "plan.json").exists()


def test_new_attempt_forgets_the_last_one_s_error(run_dir: pathlib.Path, planning: t.Any) -> None:
    planning.fault = SiteFault("qstat", "no answer")
    assert act(job_plan, run_dir)["fault"] == "site"
    assert error(run_dir)["why"] == "no answer"
    planning.fault = None
    act(job_plan, run_dir)
    assert not list(run_dir.glob("error*"))


def test_directories_let_the_owner_pass_whatever_the_umask_is(tmp_path: pathlib.Path, planning: t.Any) -> None:
    run_dir = tmp_path / "new" / "jobs" / f"{JOB}.{START}"
    former = os.umask(0o077)
    try:
        act(job_plan, run_dir)
    finally:
        os.umask(former)
    assert [path.stat().st_mode & 0o777 for path in (run_dir, *run_dir.parents[:2])] == [0o711] * 3


def test_path_of_the_users_is_in_no_result(run_dir: pathlib.Path, planning: t.Any) -> None:
    planning.plan = make_plan("n1", image="/home/alice/{{ lookup('pipe', 'id') }}.qcow2")
    result = act(job_plan, run_dir)
    assert "lookup" not in repr(result)
    assert [guest["image"] for guest in result["diff"]["after"]["n1"]] == ["an own one"]
    assert (
        planning.plan.node_parts[0].guests[0].image in JobPlan.from_json((run_dir / "plan.json").read_text()).to_json()
    )

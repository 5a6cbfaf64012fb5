# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start begins from a checkpoint of its own job that fits it, or the job is held: never anew in silence."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    CheckpointFault,
    SiteFault,
    error_from_dict,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import IdleNode, JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.spares import replace_node
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict.decide import Action, decide
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import checkpoint_store
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.checkpoints.return_plan import return_from

from .plans import ALICE, JOB, make_plan


@pytest.fixture
def store(tmp_path: pathlib.Path) -> pathlib.Path:
    place = tmp_path / "store"
    place.mkdir(mode=0o700)
    return place


def commit(store: pathlib.Path, plan: JobPlan, generation: int = 1, **more: t.Any) -> None:
    names = [f"v{part.node}-1" for part in plan.parts_by_rank]
    (checkpoint_store.job_dir(store, JOB) / f"{generation}.new").mkdir(parents=True)
    guests = [{"rank": rank, "name": name, "digest": f"{generation:064x}"} for rank, name in enumerate(names)]
    manifest = {"version": 1, "job_id": JOB, "generation": generation, "plan": plan.to_json(), "guests": guests, **more}
    checkpoint_store.commit(store, JOB, generation, manifest)


def test_later_start_has_the_guests_and_the_keys_of_the_newest_checkpoint_on_its_own_nodes(store: pathlib.Path) -> None:
    first = make_plan("cn1", "cn2")
    commit(store, first)
    commit(store, first, 2)
    plan = return_from(make_plan("cn3", "cn4", start=2), store)
    assert plan.job_key == first.job_key
    assert (plan.start, [part.node for part in plan.node_parts]) == (2, ["cn3", "cn4"])
    guests = [guest for part in plan.node_parts for guest in part.guests]
    place = checkpoint_store.job_dir(store, JOB) / "2"
    assert [guest.saved_in for guest in guests] == [str(place / "vcn1-1"), str(place / "vcn2-1")]
    assert {guest.saved_digest for guest in guests} == {f"{2:064x}"}
    assert [guest.host_key for guest in guests] == [part.guests[0].host_key for part in first.node_parts]
    # and a checkpoint of that start serves the next one
    commit(store, plan, 3)
    third = return_from(make_plan("cn1", "cn2", start=3), store)
    assert third.node_parts[0].guests[0].saved_in.startswith(str(checkpoint_store.job_dir(store, JOB) / "3"))


def test_start_returns_by_ranks_where_a_spare_node_had_taken_the_place_of_another(store: pathlib.Path) -> None:
    """Of the start that was saved, and of the one that returns."""
    first, _by = replace_node(with_spare("cn1", "cn2", "cn3"), "cn2")
    commit(store, first)
    plan = return_from(with_spare("cn4", "cn5", "cn6", start=2), store)
    assert [(part.node, [guest.rank for guest in part.guests]) for part in plan.node_parts] == [
        ("cn4", [0]), ("cn5", [1]), ("cn6", [])
    ]  # fmt: skip
    assert [part.guests[0].host_key for part in plan.node_parts[:2]] == [
        part.guests[0].host_key for part in first.parts_by_rank
    ]
    assert plan.spares == ("cn6",)


def with_spare(*nodes: str, start: int = 1) -> JobPlan:
    """A plan whose last node is a spare one."""
    plan = make_plan(*nodes, start=start)
    *used, last = plan.node_parts
    idle = (IdleNode(last.node),)
    return dataclasses.replace(plan, node_parts=(*used, dataclasses.replace(last, guests=())), idle=idle)


def test_start_without_a_checkpoint_or_of_a_job_that_wants_none_begins_anew(store: pathlib.Path) -> None:
    plan = make_plan("cn1")
    assert return_from(plan, None) is plan
    assert return_from(plan, store) is plan
    commit(store, plan)
    parts = tuple(dataclasses.replace(part, checkpoint_min=-1) for part in plan.node_parts)
    without = dataclasses.replace(plan, node_parts=parts)
    assert return_from(without, store) is without


OTHER = dataclasses.replace(ALICE, user="bob")


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (lambda: make_plan("cn1", start=2, image="tiny@2"), "guest 0 was saved with another image"),
        (lambda: make_plan("cn1", start=2, ram_mib=512), "guest 0 was saved with another ram_mib"),
        (lambda: make_plan("cn1", start=2, vcpus=2), "guest 0 was saved with another vcpus"),
        (lambda: make_plan("cn1", "cn2", start=2), "has 1 guests on its nodes, and this start 1, 1"),
        (lambda: make_plan("cn1", start=2, owner=OTHER), "is of another user"),
    ],
)
def test_start_that_the_checkpoint_does_not_fit_holds_the_job(
    store: pathlib.Path, plan: t.Callable[[], JobPlan], why: str
) -> None:
    commit(store, make_plan("cn1"))
    with pytest.raises(CheckpointFault, match=why) as caught:
        return_from(plan(), store)
    assert "--delete" in caught.value.hint
    check_held(caught.value)


def check_held(fault: CheckpointFault) -> None:
    fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(BatchJob)}
    job = BatchJob(**{**fields, "job_id": JOB, "start_count": 2, "interactive": False, "slot_hosts": ("cn1",)})
    verdict = decide(error_from_dict(fault.to_dict()), job=job, nodes=None, policy=Policy(), node="cn1")
    assert verdict.action == Action.HOLD


@pytest.mark.parametrize("what", ["edited", "of another job"])
def test_manifest_that_is_edited_or_of_another_job_holds_the_job(store: pathlib.Path, what: str) -> None:
    commit(store, make_plan("cn1"), **({"job_id": "8.head"} if what == "of another job" else {}))
    path = checkpoint_store.job_dir(store, JOB) / "1" / "manifest.json"
    if what == "edited":
        path.chmod(0o600)
        path.write_text(path.read_text().replace("tiny@1", "tiny@2"))
    with pytest.raises(CheckpointFault, match=r"not what was committed|of job 8\.head") as caught:
        return_from(make_plan("cn1", start=2), store)
    check_held(caught.value)


@pytest.mark.parametrize("bare", [False, True], ids=["missing", "bare mount point"])
def test_job_does_not_begin_anew_while_the_store_is_not_mounted(store: pathlib.Path, bare: bool) -> None:
    commit(store, make_plan("cn1"))
    store.rename(store.with_name("elsewhere"))
    if bare:
        store.mkdir(mode=0o755)
    with pytest.raises(SiteFault, match=r"whether job 7\.head has checkpoints is not known") as caught:
        return_from(make_plan("cn1", start=2), store)
    assert "is it mounted?" in caught.value.hint
    store.rmdir() if bare else None
    store.with_name("elsewhere").rename(store)
    assert return_from(make_plan("cn1", start=2), store).node_parts[0].guests[0].saved_in


def test_start_begins_from_the_older_checkpoint_where_the_newer_is_broken(store: pathlib.Path) -> None:
    plan = make_plan("cn1")
    commit(store, plan)
    commit(store, plan, 2)
    (checkpoint_store.job_dir(store, JOB) / "2" / "manifest.json").unlink()
    returned = return_from(make_plan("cn1", start=2), store)
    assert returned.node_parts[0].guests[0].saved_digest == f"{1:064x}"

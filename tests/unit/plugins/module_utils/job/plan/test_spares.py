# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last nodes of a job are spare ones by its request, and one of them gets what another node was to have."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import (
    ImageFacts,
    Offers,
    ResolvedRequest,
    resolve,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import IdleNode, JobPlan, make_plan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.spares import may_lose, replace_node
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors, parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Owner

ALICE = Owner(user="alice", uid=1001, gid=1001, group="alice", home="/home/alice", shell="/bin/bash")
OFFERS = Offers(images=(ImageFacts("debian12@3", "debian", "x86_64"), ImageFacts("osv@1", "osv", "x86_64")))
FOUR = tuple(f"n{number}" for number in (1, 2, 3, 4) for _slot in range(3))
MEM_MIB = 4 * (1024 + 512)


def planned(keys: str, slots: t.Sequence[str] = FOUR, mem: str = "1tb", **policy: t.Any) -> JobPlan:
    x = parse([(f"img=debian12,vcpus=2,ram=1G{keys}", "command line")]).encode()
    known = dict.fromkeys((f.name for f in dataclasses.fields(BatchJob)), "")
    job = BatchJob(**{
        **known, "job_id": "4711.head", "owner_user": "alice", "euser": "alice", "egroup": "alice", "state": "R",
        "x": x, "slot_hosts": tuple(slots), "start_count": 1, "variables": {}, "resource_list": {"mem": mem},
    })  # fmt: skip
    site = Policy(host_os_core_count=1, host_os_ram_mb=512, **policy)
    return make_plan(job, site, OFFERS, node_file="\n".join(slots), timeout_s=60.0, find_owner=lambda *_: ALICE)


def resolved(keys: str, policy: dict[str, t.Any]) -> ResolvedRequest:
    return resolve(parse([(keys, "command line")]), Policy(**policy), OFFERS)


def ranks(plan: JobPlan) -> dict[str, list[int]]:
    return {part.node: [guest.rank for guest in part.guests] for part in plan.node_parts}


def test_last_nodes_have_no_guests() -> None:
    plan = planned(",spare=2")
    assert ranks(plan) == {"n1": [0], "n2": [1], "n3": [], "n4": []}
    assert (plan.in_use, plan.spares, plan.bare) == (("n1", "n2"), ("n3", "n4"), {})
    assert JobPlan.from_json(plan.to_json()) == plan


def test_spare_node_gets_the_guests_with_their_keys_and_the_one_that_failed_stays_to_be_cleaned() -> None:
    plan = planned(",spare=2,vms_per_node=1")
    after, by = replace_node(plan, "n1")
    assert (by, ranks(after)) == ("n3", {"n1": [], "n2": [1], "n3": [0], "n4": []})
    assert (after.in_use, after.spares) == (("n3", "n2"), ("n4",))
    assert after.idle == (IdleNode("n4"), IdleNode("n1", failed=True))
    assert after.parts["n3"] == dataclasses.replace(plan.parts["n1"], node="n3")
    assert after.parts["n1"].guests == ()
    assert after.mother_superior == "n1"
    last, by = replace_node(after, "n3")
    assert (by, last.in_use, last.spares) == ("n4", ("n4", "n2"), ())
    assert not may_lose(last, "n4")


def test_node_that_leads_a_job_with_checkpoints_is_not_replaced() -> None:
    plan = planned(",spare=1")
    saved = dataclasses.replace(
        plan, node_parts=tuple(dataclasses.replace(part, checkpoint_min=0) for part in plan.node_parts)
    )
    assert [may_lose(plan, node) for node in ("n1", "n2")] == [True, True]
    assert [may_lose(saved, node) for node in ("n1", "n2")] == [False, True]


@pytest.mark.parametrize(("keys", "slots"), [(",spare=4", FOUR), (",spare=1", FOUR[:3]), (",spare=1000", FOUR)])
def test_request_that_leaves_no_node_for_guests_is_the_users_fault(keys: str, slots: t.Sequence[str]) -> None:
    with pytest.raises(UserFault, match="no host is left for its guests"):
        planned(keys, slots)


def test_spare_node_must_have_what_any_other_needs() -> None:
    """Else it could not take its place: slots on each, and memory of the job for all."""
    with pytest.raises(UserFault, match="ppn=2"):
        planned(",spare=1", FOUR[:-1])
    assert planned(",spare=1", mem=f"{MEM_MIB}mb")
    with pytest.raises(UserFault, match="on each of 4 nodes"):
        planned(",spare=1", mem=f"{MEM_MIB - 1}mb")


def test_default_of_the_site_is_in_the_request_or_nowhere() -> None:
    """It may have changed since the submission: the job has the nodes that it asked for then."""
    assert planned("", spare_default=1).spares == ()
    assert planned(",spare=1", spare_default=2).spares == ("n4",)


@pytest.mark.parametrize(
    ("keys", "why", "policy"),
    [
        ("img=debian12,spare=1,nodes=2", "on all of their nodes", {}),
        ("img=osv,spare=1", "OSv", {}),
        ("img=debian12,spare=1", "openpbs", {"batch_system": "openpbs"}),
    ],
)
def test_job_that_cannot_have_spare_nodes_is_refused(keys: str, why: str, policy: dict[str, t.Any]) -> None:
    with pytest.raises(RequestErrors, match=why):
        resolved(keys, policy)


@pytest.mark.parametrize(("img", "policy"), [("osv", {}), ("debian12", {"nodes_default": 2})])
def test_default_of_the_site_gives_way_where_a_job_cannot_have_spare_nodes(img: str, policy: dict[str, t.Any]) -> None:
    assert resolved(f"img={img}", {**policy, "spare_default": 1}).figure("spare") == 0
    assert resolved("img=debian12", {"spare_default": 1}).figure("spare") == 1


@pytest.mark.parametrize(
    "idle", [(), (IdleNode("n3"),), (IdleNode("n3"), IdleNode("n4"), IdleNode("n1")), (IdleNode("n3"),) * 2]
)
def test_plan_whose_idle_nodes_are_others_is_none(idle: tuple[IdleNode, ...]) -> None:
    plan = planned(",spare=2")
    with pytest.raises(FormError, match="those that have nothing"):
        JobPlan.from_json(dataclasses.replace(plan, idle=idle).to_json())

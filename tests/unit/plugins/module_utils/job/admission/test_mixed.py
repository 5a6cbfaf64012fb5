# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mixed requests: of how many hosts, and what root makes of them."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import mixed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import (
    SITE_DEFAULT,
    ImageFacts,
    Offers,
    ResolvedRequest,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_terms
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import job_shell
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan, make_plan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors, parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.environment import guest_variables
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyBare, ReadyGuest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Owner

ALICE = Owner(user="alice", uid=1001, gid=1001, group="alice", home="/home/alice", shell="/bin/bash")
OFFERS = Offers(images=(ImageFacts("debian12@3", "debian", "x86_64"),))


def planned(nodes: str, exec_host: t.Sequence[str], **policy: t.Any) -> JobPlan:
    x = parse([(f"img=debian12,vcpus=2,ram=1G{nodes}", "command line")]).encode()
    known = dict.fromkeys((f.name for f in dataclasses.fields(BatchJob)), "")
    job = BatchJob(**{
        **known, "job_id": "4711.head", "owner_user": "alice", "euser": "alice", "egroup": "alice", "state": "R",
        "x": x, "slot_hosts": tuple(exec_host), "start_count": 1, "variables": {}, "resource_list": {"mem": "1tb"},
    })  # fmt: skip
    site = Policy(host_os_core_count=1, **policy)
    return make_plan(job, site, OFFERS, node_file="\n".join(exec_host), timeout_s=60.0, find_owner=lambda *_: ALICE)


THREE = ("n1", "n1", "n1", "n2", "n2", "n2", "n3", "n3")


def test_first_hosts_have_guests_and_the_others_stay_bare() -> None:
    plan = planned(",nodes=2", THREE)
    assert [(part.node, len(part.guests), part.bare_slots) for part in plan.node_parts] == [
        ("n1", 1, 0), ("n2", 1, 0), ("n3", 0, 2)
    ]  # fmt: skip
    assert plan.bare == {"n3": 2}
    assert [guest.rank for part in plan.node_parts for guest in part.guests] == [0, 1]
    assert JobPlan.from_json(plan.to_json()) == plan


def test_bare_host_needs_no_cores_for_guests() -> None:
    """The host that has fewer slots than guests need is the bare one; without the request it is refused."""
    assert planned(",nodes=2", THREE).bare == {"n3": 2}
    with pytest.raises(UserFault, match="ppn=2"):
        planned("", THREE)


def test_all_hosts_is_as_if_nothing_were_said() -> None:
    all_of_them, silent = (planned(nodes, THREE[:6]) for nodes in (",nodes=2", ""))
    assert [(part.node, part.bare_slots) for part in all_of_them.node_parts] == [("n1", 0), ("n2", 0)]
    assert [(part.node, part.bare_slots) for part in silent.node_parts] == [("n1", 0), ("n2", 0)]


def test_more_vm_nodes_than_distinct_hosts_are_refused_by_root_too() -> None:
    with pytest.raises(UserFault, match=r"nodes=3: more VM nodes than the job has hosts \(2 hosts\)"):
        planned(",nodes=3", THREE[:6])


def test_sites_default_is_for_jobs_of_any_size() -> None:
    assert planned("", THREE, nodes_default=1).bare == {"n2": 3, "n3": 2}
    assert planned("", THREE[:3], nodes_default=2).bare == {}


@pytest.mark.parametrize(("policy", "message"), [({"nodes_max": 1}, "at most 1"), ({"nodes_min": 3}, "at least 3")])
def test_site_bounds_the_number(policy: dict[str, int], message: str) -> None:
    with pytest.raises(RequestErrors, match=message):
        planned(",nodes=2", THREE, **policy)


def test_plan_whose_mother_superior_is_bare_is_none() -> None:
    plan = planned(",nodes=1", THREE)
    first, *rest = plan.node_parts
    bare = dataclasses.replace(first, guests=(), bare_slots=1)
    with pytest.raises(FormError, match="mother superior"):
        JobPlan.from_json(dataclasses.replace(plan, node_parts=(bare, *rest)).to_json())
    neither = dataclasses.replace(rest[0], bare_slots=0)
    with pytest.raises(FormError, match="those that have nothing"):
        JobPlan.from_json(dataclasses.replace(plan, node_parts=(first, neither, *rest[1:])).to_json())


@pytest.mark.parametrize(
    ("wanted", "origin", "hosts", "vm", "message"),
    [
        (None, SITE_DEFAULT, 3, 3, ""),
        (2, "command line", 3, 2, ""),
        (2, SITE_DEFAULT, 1, 1, ""),
        (2, "command line", 1, 2, "more VM nodes than the job has hosts (1 host); ask by -l nodes=2:ppn=N"),
    ],
)
def test_number_and_what_speaks_against_it(
    wanted: int | None, origin: str, hosts: int, vm: int, message: str
) -> None:  # fmt: skip
    resolved = ResolvedRequest({"nodes": wanted}, {"nodes": origin}, "")
    assert (mixed.vm_hosts(resolved, hosts), mixed.objection(resolved, hosts, open_terms("torque"))) == (vm, message)


def test_counts_describe_the_node_file() -> None:
    guests = (ReadyGuest(0, "vn1-1", "n1", "192.0.2.1", 3), ReadyGuest(1, "vn2-1", "n2", "192.0.2.2", 3))
    variables = guest_variables(job_shell, {}, guests, (ReadyBare("n3", 2), ReadyBare("n4", 1)))
    assert [variables[name] for name in (b"PBS_NP", b"PBS_NUM_NODES", b"PBS_NUM_PPN")] == [b"9", b"4", b"3"]

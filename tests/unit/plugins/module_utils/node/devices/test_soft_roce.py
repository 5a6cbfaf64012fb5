# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA by the guest's own kernel: nothing is the host's, and only guests that ask for it are different."""

from __future__ import annotations

import dataclasses
import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import api, leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, from_dict, to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import GuestFacts
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

from ..conftest import Node


def allow(node: Node, kind: str) -> None:
    node.settings = dataclasses.replace(node.settings, rdma_kind=kind)


def xml_of(node: Node) -> str:
    [domain] = node.hypervisor.running.values()
    return re.sub(r"<uuid>.*</uuid>|\bstart='\d+'|7[.]head[.]\d", "", domain.xml)


def test_guest_has_the_device_by_its_seed_and_the_xml_of_one_without(node: Node) -> None:
    node.present()
    without = xml_of(node)
    node.absent()
    allow(node, "rxe")
    [facts] = node.present(node.part(start=2, rdma="rxe"))
    assert facts.devices == "vrdma:rxe"
    assert [seed.rdma for seed in node.seeds] == ["", "rxe"]
    assert xml_of(node) == without
    assert leases.read_leases(node.settings) == ()
    node.absent(2)
    assert present_absent.describe_leftovers(node.settings) == ()


@pytest.mark.parametrize(("kind", "has"), [("", "none"), ("sriov", "sriov")])
def test_node_that_has_another_kind_refuses_the_start_and_makes_nothing(node: Node, kind: str, has: str) -> None:
    allow(node, kind)
    with pytest.raises(UserFault, match=rf"guests of cn1 have no rxe \(RDMA here: {has}\)"):
        node.present(node.part(rdma="rxe"))
    assert node.hypervisor.running == {}
    assert present_absent.describe_leftovers(node.settings) == ()


def test_kind_that_no_module_has_is_refused_and_never_passed_over(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(api.KINDS, "vhostuser")
    allow(node, "vhostuser")
    with pytest.raises(UserFault, match="no node has devices of the kind vhostuser yet"):
        node.present(node.part(rdma="vhostuser"))
    assert node.hypervisor.running == {}


@pytest.mark.parametrize(
    ("policy", "node", "kind"),
    [
        (Policy(vrdma_enabled=True), "gn1", "rxe"),
        (Policy(vrdma_enabled=True, vrdma_nodes="gn[0-9]+"), "GN1.site.org", "rxe"),
        (Policy(vrdma_enabled=True, vrdma_nodes="gn[0-9]+"), "cn1", ""),
        (Policy(), "gn1", ""),
    ],
)
def test_node_has_the_kind_where_the_site_says_so(policy: Policy, node: str, kind: str) -> None:
    assert settings_of(policy, node).rdma_kind == kind


def test_answer_of_a_node_names_the_kind() -> None:
    answer = to_dict(GuestFacts(0, "vcn1-1", "52:54:00:01:02:03", "10.0.0.1", {}))
    for devices in ("vrdma:rxe", "0000:3b:00.0 unclot:64M vrdma:sriov:0000:3b:02.1"):
        assert from_dict(GuestFacts, {**answer, "devices": devices}).devices == devices
    with pytest.raises(FormError):
        from_dict(GuestFacts, {**answer, "devices": "vrdma:other"})

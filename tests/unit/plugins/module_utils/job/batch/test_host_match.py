# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one node that a name means."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.host_match import find_node


class Node(t.NamedTuple):
    """What is looked at of a node."""

    name: str


def find(names: t.Sequence[str], name: str) -> str:
    nodes: t.Any = tuple(map(Node, names))
    return find_node(nodes, name, "the server").name


@pytest.mark.parametrize(
    ("names", "name", "found"),
    [
        (("cn1", "cn10"), "cn1", "cn1"),
        (("CN1",), "cn1.example.org", "CN1"),
        (("cn1.a", "cn1.b"), "cn1.b", "cn1.b"),
        (("cn1", "cn1.a"), "cn1", "cn1"),
    ],
)
def test_node_of_that_spelling_comes_before_one_of_another(names: t.Sequence[str], name: str, found: str) -> None:
    assert find(names, name) == found


@pytest.mark.parametrize(
    ("names", "why"), [(("cn10",), "knows no nodes of that name"), (("cn1.a", "cn1.b"), "knows 2 nodes of that name")]
)
def test_name_of_none_or_of_several_nodes_is_a_fault_of_the_site(names: t.Sequence[str], why: str) -> None:
    with pytest.raises(SiteFault, match=f"node cn1: the server {why}"):
        find(names, "cn1")

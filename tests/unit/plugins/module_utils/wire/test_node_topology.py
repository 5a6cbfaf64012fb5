# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node answers about what it has: read strictly, and without jobs where everybody may read it."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import topologies
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, node_topology

FIXTURE = pathlib.Path(__file__).resolve().parents[4] / "fixtures/topology/gn1.json"


def data() -> dict[str, t.Any]:
    found: dict[str, t.Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"version": 2}, "version"),
        ({"node": "a b"}, "node"),
        ({"node": "../../etc/passwd"}, "node"),
        ({"guests": [{**data()["guests"][0], "vcpu_cores": "0-99999"}]}, "vcpu_cores"),
        ({"guests": [{**data()["guests"][0], "name": "<b>"}]}, "name"),
        ({"devices": [{**data()["devices"][0], "state": "mine"}]}, "state"),
        ({"cells": [{**data()["cells"][0], "memory_mib": -1}]}, "memory_mib"),
        ({"more": 1}, "more"),
    ],
)
def test_topology_of_another_form_is_refused(change: dict[str, t.Any], where: str) -> None:
    with pytest.raises(form.FormError, match=where):
        node_topology.topology_from_dict({**data(), **change})


@pytest.mark.parametrize("request_", [{}, {"version": 2, "do": "topology"}, {"version": 1, "do": "topology", "x": 1}])
def test_request_of_another_form_is_refused(request_: dict[str, t.Any]) -> None:
    with pytest.raises(VTorqueError, match="another version"):
        node_topology.request_from_dict(request_)


def test_remembered_topology_has_nothing_of_jobs_and_is_for_everybody(tmp_path: pathlib.Path) -> None:
    path = topologies.write_topology(node_topology.topology_from_dict(data()), tmp_path)
    assert path.stat().st_mode & 0o777 == 0o444
    text = path.read_text(encoding="utf-8")
    assert "head" not in text
    assert "vgn1" not in text
    found = topologies.read_topology("GN1.cluster.example", tmp_path)
    assert found is not None
    assert [one.state for one in found.devices] == ["free", "free", "quarantine", "unusable"]
    assert topologies.read_topology("gn2", tmp_path) is None
    assert topologies.read_topology("../gn1", tmp_path) is None
    path.chmod(0o600)
    path.write_text("{}")
    path.chmod(0o444)
    assert topologies.read_topology("gn1", tmp_path) is None

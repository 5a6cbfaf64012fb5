# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where guests would be: the pages of their memory (the rest is seen by `vsub --dry-run`, test_vsub_placement.py)."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_topology
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import preview

FIXTURE = pathlib.Path(__file__).resolve().parents[4] / "fixtures/topology/gn1.json"


@pytest.mark.parametrize(
    ("pages", "cells", "found"),
    [
        ("none", (0,), "4G in ordinary pages"),
        ("2M", (0, 1), "4G in huge pages (2M; set apart: 4096 of 2M in cell 0, 4096 of 2M in cell 1)"),
        ("auto", (1,), "4G in huge pages (auto; set apart: 4096 of 2M in cell 1)"),
        ("1G", (0,), "4G in huge pages (1G; set apart: none)"),
    ],
)
def test_memory_of_a_guest_says_which_pages_its_cells_have(pages: str, cells: tuple[int, ...], found: str) -> None:
    node = node_topology.topology_from_dict(json.loads(FIXTURE.read_text(encoding="utf-8")))
    values = {"vcpu_pinning": True, "numa": "auto", "hugepages": pages}
    resolved = types.SimpleNamespace(values=values, origins=dict.fromkeys(values, "-vm"), figure=lambda _key: 4096)
    submission = t.cast("t.Any", types.SimpleNamespace(resolved=resolved))
    assert preview._memory(submission, node, cells) == found

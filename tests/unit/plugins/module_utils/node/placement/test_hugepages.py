# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools of huge pages: raised for a start, and as before when it is over, whoever was killed in between."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import hugepages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.ledger import Pool
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id

from .pools import Pools

KEY, OTHER = "7.head.1", "8.head.1"
FIRST, SECOND = (0, 2048), (1, 2048)


@pytest.fixture
def pools(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Pools:
    monkeypatch.setattr(files, "read_json", lambda path: json.loads(path.read_text()))
    return Pools(tmp_path / "sys", monkeypatch)


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    return NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path / "state", run_dir=tmp_path / "run")


def raised(settings: NodeSettings, key: str, *counts: int) -> tuple[dict[tuple[int, int], int], str]:
    hugepages.announce(dict(zip((FIRST, SECOND), counts, strict=False)), key, settings)
    return hugepages.raise_pools(key, settings)


def test_pools_are_read_by_cell_and_size(pools: Pools) -> None:
    pools.set(1, 30, 10)
    found = hugepages.read_pools()
    assert found[1, 2048] == Pool(30, 20)
    assert set(found) == {(cell, kib) for cell in (0, 1) for kib in (2048, 1048576)}


def test_kernel_without_pools_has_none(tmp_path: pathlib.Path) -> None:
    assert hugepages.read_pools(tmp_path) == {}
    assert hugepages.read_spoken_for([2048], tmp_path) == {2048: 0}


def test_pools_are_as_before_when_a_start_is_over(pools: Pools, settings: NodeSettings) -> None:
    pools.set(0, 5)
    assert raised(settings, KEY, 40, 7) == ({FIRST: 40, SECOND: 7}, "")
    assert (pools.total(0), pools.total(1)) == (45, 7)
    assert hugepages.give_back(KEY, settings) == ("40 pages of 2M in NUMA cell 0", "7 pages of 2M in NUMA cell 1")
    assert (pools.total(0), pools.total(1)) == (5, 0)
    assert hugepages.give_back(KEY, settings) == ()
    assert list(settings.pages_dir.iterdir()) == []


def test_pools_of_two_starts_are_as_before_in_whatever_order_they_end(pools: Pools, settings: NodeSettings) -> None:
    raised(settings, KEY, 40)
    raised(settings, OTHER, 20)
    hugepages.give_back(KEY, settings)
    assert pools.total(0) == 20
    hugepages.give_back(OTHER, settings)
    assert pools.total(0) == 0


def test_pool_that_is_raised_in_part_is_lowered_by_that_part(pools: Pools, settings: NodeSettings) -> None:
    pools.most = 25
    assert raised(settings, KEY, 40)[0] == {FIRST: 25}
    hugepages.give_back(KEY, settings)
    assert pools.total(0) == 0


@pytest.mark.parametrize("done", [0, 13, 40], ids=["before the kernel was asked", "in between", "after it"])
def test_who_is_killed_while_pools_are_raised_leaves_what_is_needed_to_lower_them(
    pools: Pools, settings: NodeSettings, done: int
) -> None:
    pools.set(0, 5)
    hugepages.announce({FIRST: 40}, KEY, settings)
    pools.set(0, 5 + done)
    raised(settings, OTHER, 20)  # the next start comes before anybody has cleaned up
    assert pools.total(0) == 25 + done
    hugepages.give_back(KEY, settings)
    assert pools.total(0) == 25
    hugepages.give_back(OTHER, settings)
    assert pools.total(0) == 5


def test_memory_in_pools_counts_what_is_about_to_be_raised(pools: Pools, settings: NodeSettings) -> None:
    pools.set(1, 10)
    assert hugepages.pools_mib(settings) == 20
    hugepages.announce({FIRST: 40}, KEY, settings)
    assert hugepages.pools_mib(settings) == 100
    hugepages.raise_pools(KEY, settings)
    assert hugepages.pools_mib(settings) == 100


def test_what_was_raised_before_a_reboot_is_not_taken_from_the_site(
    pools: Pools, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised(settings, KEY, 40)
    monkeypatch.setattr(process_id, "boot_id", lambda: "00000000-0000-4000-8000-000000000000")
    pools.set(0, 60)  # as the site has it at boot
    assert hugepages.give_back(KEY, settings) == ()
    assert pools.total(0) == 60
    assert list(settings.pages_dir.iterdir()) == []


def test_pool_that_cannot_be_lowered_stays_written_down(pools: Pools, settings: NodeSettings) -> None:
    raised(settings, KEY, 40)
    pools.refuses = "Read-only file system"
    with pytest.raises(VTorqueError, match="40 pages of 2M in NUMA cell 0 were not given back: Read-only"):
        hugepages.give_back(KEY, settings)
    pools.refuses = ""
    assert hugepages.give_back(KEY, settings)


def test_kernel_that_refuses_says_why(settings: NodeSettings, pools: Pools) -> None:
    pools.refuses = "Operation not permitted"
    assert raised(settings, KEY, 40) == ({FIRST: 0}, "Operation not permitted")


@pytest.mark.parametrize("content", ["", "[]", '{"boot": 1}', '{"boot": "", "due": [[1]], "raised": []}'])
def test_file_that_says_nothing_takes_nothing_from_the_site(pools: Pools, settings: NodeSettings, content: str) -> None:
    pools.set(0, 60)
    files.make_directory(settings.pages_dir)
    (settings.pages_dir / KEY).write_text(content)
    assert hugepages.give_back(KEY, settings) == ()
    assert pools.total(0) == 60

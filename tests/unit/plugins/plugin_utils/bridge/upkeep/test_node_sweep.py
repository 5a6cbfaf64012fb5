# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sweep gives the orders of suspensions that nobody else has given, by the batch server's word."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import types

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import pause_order, saved_memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import node_sweep

KEY = "7.head.2"
LIVING = (sweep.StartReport(KEY, "the batch server says so"),)


class Batch:
    """What the batch server says of the job."""

    def __init__(self, word: str | SiteFault, start: int = 2) -> None:
        self.word, self.start = word, start

    def job(self, _job_id: str) -> types.SimpleNamespace:
        if isinstance(self.word, SiteFault):
            raise self.word
        return types.SimpleNamespace(job_id="7.head", state=self.word, start_count=self.start, nodes=("cn1",))


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    found = NodeSettings(node_name="cn1", node_number=1, run_dir=tmp_path / "run", state_dir=tmp_path / "state")
    found.start_dir("7.head", 2).mkdir(parents=True)
    return found


def follow(settings: NodeSettings, batch: Batch) -> list[str]:
    return list(node_sweep._follow_suspensions(settings, batch, LIVING))  # type: ignore[arg-type]


def test_suspended_job_that_nobody_paused_is_paused(settings: NodeSettings) -> None:
    assert follow(settings, Batch("S")) == []
    assert pause_order.is_ordered(settings, KEY)


@pytest.mark.parametrize("batch", [Batch("R"), Batch("S", 3)])
def test_pause_of_a_job_that_is_not_suspended_ends(settings: NodeSettings, batch: Batch) -> None:
    pause_order.order_pause(settings, KEY)
    assert follow(settings, batch) == []
    assert not pause_order.is_ordered(settings, KEY)


@pytest.mark.parametrize(("before", "now"), [("S", "R"), ("R", "S")])
def test_order_follows_the_word_after_the_removals_and_not_the_one_before(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, before: str, now: str
) -> None:
    """Which may have taken minutes."""
    batch = Batch(before)
    if before == "S":
        pause_order.order_pause(settings, KEY)

    def remove(_settings: object, lives: sweep.IsAlive, *_more: object, **_how: object) -> sweep.SweepReport:
        assert lives("7.head", 2)
        batch.word = now
        if now == "R":
            pause_order.take_back(settings, KEY)
        return sweep.SweepReport(living=LIVING)

    def nothing(*_words: object, **_more: object) -> tuple[()]:
        return ()

    for place, name, value in (
        (node_sweep, "settings_of", lambda *_words: settings),
        (node_sweep, "open_node", lambda _name: types.SimpleNamespace(alive_here=nothing, remove_notes=nothing)),
        (sweep, "sweep", remove),
        (node_sweep.evacuate, "finish_moves", nothing),
        (node_sweep.templates_ahead, "want_default_template", nothing),
        (node_sweep.event_log, "configure", nothing),
    ):
        monkeypatch.setattr(place, name, value)
    policy = Policy(log_rotate=False)
    node_sweep._swept(policy, "cn1", batch, Deadline.after(60.0), False)  # type: ignore[arg-type]
    assert pause_order.is_ordered(settings, KEY) is (now == "S")


def test_pause_for_a_checkpoint_is_left_alone_until_its_time_is_over(settings: NodeSettings) -> None:
    assert pause_order.order_checkpoint(settings, KEY, time.time() + 60)
    assert follow(settings, Batch("R")) == []
    assert pause_order.is_ordered(settings, KEY)
    pause_order.take_back(settings, KEY)
    pause_order.order_checkpoint(settings, KEY, time.time() - 1)
    assert not pause_order.is_ordered(settings, KEY)
    follow(settings, Batch("R"))
    assert pause_order.checkpoint_until(settings, KEY) is None
    pause_order.order_checkpoint(settings, KEY, time.time() + 60)
    follow(settings, Batch("S"))
    assert pause_order.checkpoint_until(settings, KEY) == 0.0
    assert not pause_order.order_checkpoint(settings, KEY, time.time() + 60)


@pytest.mark.parametrize("ordered", [False, True])
def test_server_that_is_silent_changes_nothing(settings: NodeSettings, ordered: bool) -> None:
    if ordered:
        pause_order.order_pause(settings, KEY)
    assert len(follow(settings, Batch(SiteFault("the server", "is silent")))) == 1
    assert pause_order.is_ordered(settings, KEY) is ordered


def test_node_without_guests_has_nothing_to_pause(settings: NodeSettings) -> None:
    settings.start_dir("7.head", 2).rmdir()
    assert follow(settings, Batch("S")) == []
    assert not pause_order.is_ordered(settings, KEY)


def test_site_that_pauses_no_guests_has_none_paused_by_the_sweep(settings: NodeSettings) -> None:
    assert follow(dataclasses.replace(settings, suspend_guests="session"), Batch("S")) == []
    assert not pause_order.is_ordered(settings, KEY)


def test_saved_guests_whose_node_has_no_room_are_not_called_back(settings: NodeSettings) -> None:
    pause_order.order_pause(settings, KEY)
    guest = settings.start_dir("7.head", 2) / "vcn1-1"
    guest.mkdir()
    saved_memory.order_save(guest, 1 << 20)
    saved_memory.memory_file(guest).write_bytes(saved_memory.COMPLETE)
    (problem,) = follow(dataclasses.replace(settings, libvirt_uri="test:///default"), Batch("R"))
    assert "nobody watches over its guests" in problem
    assert pause_order.is_ordered(settings, KEY)

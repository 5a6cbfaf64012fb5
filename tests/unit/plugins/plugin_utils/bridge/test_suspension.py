# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who follows a suspension gives orders by the batch server's word alone, on all nodes of the job, and ends with it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shlex
import time
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import (
    pause_order,
    saved_memory,
    start_lock,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import SavedRequest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import SavedStart
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import suspension
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.moves import connection
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import Configuration

KEY = "7.head.2"


class World:
    """A batch server that says one state after the other, a second node, and what was ordered at each question."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.says: list[str | Exception] = []
        self.start = 2
        self.ordered: list[bool] = []
        self.sister_orders = settings.run_dir / "orders"
        self.rings: list[bool | None] = []
        self.exclusive = False
        self.others: dict[str, str] = {}
        self.did: list[str] = []
        self.slots = 2
        self.sister = f"cat >>{shlex.quote(str(self.sister_orders))}; echo '{{\"ok\":true}}'"

    def job(self, job_id: str) -> BatchJob:
        self.ordered.append(pause_order.is_ordered(self.settings, KEY))
        word = self.others[job_id] if job_id in self.others else self.says.pop(0)
        if isinstance(word, Exception):
            raise word
        fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(BatchJob)}
        fields |= {"job_id": job_id, "state": word, "start_count": self.start, "slot_hosts": ("cn1", "cn2")}
        return BatchJob(**{**fields, "node_exclusive": self.exclusive})

    def jobs(self, node: str) -> frozenset[str]:
        return frozenset({"7.head", *self.others}) if node == "cn2" else frozenset()

    def node(self, _name: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(slots=self.slots)

    def suspend(self, job_id: str) -> None:
        self.did.append(f"suspend {job_id}")

    def comment(self, job_id: str, text: str) -> None:
        self.did.append(text)

    @property
    def orders(self) -> list[str]:
        lines = self.sister_orders.read_text().splitlines() if self.sister_orders.exists() else []
        return [json.loads(line)["do"] for line in lines]

    def follow(self, *says: str | Exception) -> None:
        self.says = list(says)
        suspension.follow("7.head", 2, Policy, "cn1")
        assert self.says == []


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> World:
    settings = NodeSettings(node_name="cn1", node_number=1, run_dir=tmp_path, state_dir=tmp_path / "state")
    here = World(settings)
    monkeypatch.setattr(suspension, "open_batch", lambda _policy: here)
    monkeypatch.setattr(suspension, "read_usable_configuration", lambda _load: Configuration(Policy(), settings))
    monkeypatch.setattr(connection, "ssh_command", lambda *_words: ["/bin/sh", "-c", here.sister])
    monkeypatch.setattr(
        suspension, "_rung", lambda _s: {True: b".", False: b"", None: None}[here.rings.pop(0) if here.rings else False]
    )
    return here


def test_suspended_job_stands_still_on_all_nodes_until_it_is_resumed(world: World) -> None:
    world.follow("R", "S", "S", "R")
    assert world.ordered == [False, False, True, True]
    assert not pause_order.is_ordered(world.settings, KEY)
    assert world.orders == ["suspend", "resume"]


@pytest.mark.parametrize("ends", [True, False])
def test_wish_for_a_suspension_ends_who_follows_where_the_job_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, ends: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guests of a job that rests in its checkpoint do not go on, whatever the server says next."""

    def take(job: BatchJob, *_words: object) -> None:
        pause_order.order_checkpoint(world.settings, KEY, time.time() + 60)
        t.cast("t.Callable[[], None]", _words[-1])()

    def park(job_id: str) -> None:
        if not ends:
            pause_order.take_back(world.settings, KEY)
            raise SiteFault(f"job {job_id}", "qrerun: not allowed")
        world.did.append(f"park {job_id}")

    monkeypatch.setattr(suspension.coordinate, "take_checkpoint", take)
    rings = iter((b"cp", None))
    monkeypatch.setattr(suspension, "_rung", lambda _s: next(rings))
    monkeypatch.setattr(world, "park", park, raising=False)
    monkeypatch.setattr(world, "release_command", lambda job_id: f"qrls {job_id}", raising=False)
    world.follow("R", "R", *([] if ends else ["R"]))
    output = "vtorque: suspended by its owner; qrls 7.head lets it go on"
    assert world.did == [output, *(["park 7.head"] if ends else [])]
    assert pause_order.is_ordered(world.settings, KEY) == ends
    assert ("not suspended: job 7.head: qrerun: not allowed" in capfd.readouterr().err) == (not ends)


def test_ring_that_comes_before_the_server_knows_of_it_is_asked_for_a_few_times_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    looks = suspension.LOOKS
    rings = iter((b"", b".", *[b""] * (looks + 1)))

    def rung(seconds: float) -> bytes:
        waits.append(seconds)
        return next(rings)

    monkeypatch.setattr(suspension, "_rung", rung)
    world.follow("S", "S", "S", *["S"] * looks, "R")
    paused_s, look_s = suspension.PAUSED_LOOK_S, suspension.LOOK_S
    assert waits == [paused_s, paused_s, *[look_s] * looks, paused_s]


def test_ring_after_a_long_silence_is_answered_at_once_and_rings_in_a_row_once_a_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    questions: list[float] = []

    def rung(_seconds: float) -> bytes:
        clock[0] += waits.pop(0)
        return b"."

    def job(job_id: str) -> BatchJob:
        questions.append(clock[0])
        clock[0] += 3.0  # a slow server
        return World.job(world, job_id)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    waits = [10.0, 0.0]
    monkeypatch.setattr(suspension, "_rung", rung)
    monkeypatch.setattr(world, "job", job)
    monkeypatch.setattr(suspension, "time", types.SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    world.follow("S", "S", "R")
    assert questions == [100.0, 113.0, 117.0]


def test_stop_by_the_user_pauses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "SUSPENSION_PATIENCE_S", 0.0)
    world.follow("R")
    assert not pause_order.is_ordered(world.settings, KEY)
    assert world.orders == []


def test_server_that_is_silent_proves_nothing(world: World) -> None:
    world.follow("S", SiteFault("the server", "is silent"), "S", "R")
    assert world.ordered == [False, True, True, True]


@pytest.mark.parametrize("end", ["E", "C", "Q", UnknownJob("job 7.head", "is gone")])
def test_job_that_ends_while_suspended_is_not_paused_any_more(world: World, end: str | Exception) -> None:
    world.follow("S", end)
    assert not pause_order.is_ordered(world.settings, KEY)


def test_another_start_is_not_paused(world: World) -> None:
    world.start = 3
    world.follow("S")
    assert not pause_order.is_ordered(world.settings, KEY)


def test_sister_that_does_not_answer_is_told_again(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    works = world.sister
    once = f"{world.sister_orders}.2"
    world.sister = f"[ -e {once} ] || {{ touch {once}; echo broken; exit 1; }}; {works}"
    world.follow("S", "S", "R")
    assert world.orders == ["suspend", "resume"]
    assert "cn2 was not told to suspend, it is tried again: broken" in capfd.readouterr().err


def test_who_follows_anew_ends_what_another_has_ordered(world: World) -> None:
    pause_order.order_pause(world.settings, KEY)
    world.follow("R")
    assert not pause_order.is_ordered(world.settings, KEY)
    assert world.orders == ["resume"]


def test_ring_while_a_job_ends_with_its_checkpoint_lets_no_guest_go_on(world: World) -> None:
    """A batch system lets go on whatever it ends."""
    pause_order.order_checkpoint(world.settings, KEY, time.time() + 60)
    directory = layout.run_directory("7.head", 2, world.settings.run_dir)
    directory.mkdir(parents=True)
    (directory / layout.PARKED).touch()
    world.follow()
    assert pause_order.is_ordered(world.settings, KEY)


def test_start_that_is_over_is_not_asked_for(world: World) -> None:
    start_lock.bury(world.settings, KEY)
    world.follow()
    assert world.ordered == []
    assert world.orders == []


def test_end_of_the_worker_is_the_end(world: World) -> None:
    world.rings = [None]
    world.follow("S")
    assert pause_order.is_ordered(world.settings, KEY)


def test_ring_is_heard_and_its_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(suspension.sys, "stdin", stream)
        assert suspension._rung(0.0) == b""
        os.write(writing, b"..")
        assert suspension._rung(60.0) == b".."
        os.close(writing)
        assert suspension._rung(60.0) is None


def test_sister_that_is_silent_is_not_waited_for(world: World) -> None:
    world.sister = "exec sleep 600"
    call = suspension._Suspension("7.head", 2, world.settings, "cn1")._call("cn2", "suspend")
    assert "no answer within" in suspension._answer(call, Deadline.after(0.1))


@pytest.fixture
def saves(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The site saves guests of suspended jobs, and there are some here."""
    world.settings = dataclasses.replace(world.settings, suspend_guests="save")
    configuration = Configuration(Policy(suspend_guests="save"), world.settings)
    monkeypatch.setattr(suspension, "read_usable_configuration", lambda _load: configuration)
    return world


def test_saved_guests_are_ordered_back_when_every_node_has_room(saves: World) -> None:
    saves.follow("S", "R")
    assert saves.orders == ["suspend", "fit", "resume"]
    assert not pause_order.is_ordered(saves.settings, KEY)
    assert saves.did == []


def test_job_without_room_on_another_node_is_suspended_again_with_the_reason(saves: World) -> None:
    works, lacks = saves.sister, json.dumps({"ok": True, "lack": ["cn2 has 5 MiB of memory for guests now"]})
    saves.sister = f"read l; case $l in *fit*) echo '{lacks}' ;; *) echo $l | {{ {works}; }} ;; esac"
    saves.rings = [False, False, None]
    saves.follow("S", "R", "S")
    assert pause_order.is_ordered(saves.settings, KEY)
    assert saves.did == [
        "suspend 7.head",
        "vtorque: still suspended: cn2 has 5 MiB of memory for guests now; resume it later",
    ]
    assert saves.orders == ["suspend"]


def test_job_whose_exclusive_node_another_has_is_suspended_again(saves: World) -> None:
    saves.exclusive, saves.others = True, {"8.head": "R"}
    saves.rings = [False, None]
    saves.follow("S", "R")
    assert saves.did == ["suspend 7.head", "vtorque: still suspended: job 8.head runs on cn2; resume it later"]
    assert pause_order.is_ordered(saves.settings, KEY)


@pytest.mark.parametrize(("slots", "goes_on"), [(1, False), (2, True)])
def test_job_on_a_shared_node_goes_on_if_its_slots_are_free(saves: World, slots: int, goes_on: bool) -> None:
    saves.slots, saves.others = slots, {"8.head": "R"}
    saves.rings = [False, None]
    saves.follow("S", "R")
    assert pause_order.is_ordered(saves.settings, KEY) is not goes_on


def test_job_beside_one_that_is_suspended_itself_goes_on(saves: World) -> None:
    saves.exclusive, saves.others = True, {"8.head": "S"}
    saves.follow("S", "R")
    assert saves.did == []
    assert not pause_order.is_ordered(saves.settings, KEY)


@pytest.mark.parametrize("level", ["off", "exclusive"])
def test_paused_job_waits_for_the_other_on_its_node_where_the_site_promises_so(
    world: World, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    world.settings = dataclasses.replace(world.settings, side_channels=level)
    configuration = Configuration(Policy(side_channels=level), world.settings)
    monkeypatch.setattr(suspension, "read_usable_configuration", lambda _load: configuration)
    world.exclusive, world.others = True, {"8.head": "R"}
    if level == "off":
        world.follow("S", "R")
        assert world.did == []
        return
    world.follow("S", "R", "E")
    assert world.did[0] == "suspend 7.head"


def test_node_that_does_not_say_whether_it_has_room_is_asked_again(saves: World) -> None:
    works, once = saves.sister, f"{saves.sister_orders}.2"
    broken = f"case $l in *fit*) [ -e {once} ] || {{ touch {once}; echo broken; exit 1; }} ;; esac"
    saves.sister = f"read l; {broken}; echo $l | {{ {works}; }}"
    saves.follow("S", "R", "R")
    assert saves.did == []
    assert saves.orders == ["suspend", "fit", "resume"]


@pytest.fixture
def on_disk(world: World) -> NodeSettings:
    """A node with a saved guest of a start, and another start's that runs."""
    guest = world.settings.start_dir("7.head", 2) / "vcn1-1"
    for directory in (guest, world.settings.start_dir("8.head", 1) / "vcn1-2"):
        directory.mkdir(parents=True)
    write_guest_file(guest, GuestFile(0, 1, "vcn1-1", "52:54:00:00:01:01", "u", "t", 0, "d"))
    saved_memory.order_save(guest, 1 << 20)
    saved_memory.memory_file(guest).write_bytes(saved_memory.COMPLETE + bytes(8192))
    return world.settings


def test_saved_guests_of_a_node_are_listed_by_job(on_disk: NodeSettings) -> None:
    (row,) = suspension.list_saved(on_disk)
    assert {key: row[key] for key in ("job_id", "start", "user", "node", "guests")} == {
        "job_id": "7.head", "start": 2, "user": "root", "node": "cn1", "guests": 1,
    }  # fmt: skip
    assert row["bytes"] > 8192
    assert row["since"] > 1e9
    assert form.to_dict(form.from_dict(SavedStart, row)) == row, "what the front end accepts"


@pytest.mark.parametrize("state", ["S", "R", "E"])
def test_saved_guests_of_a_job_that_may_go_on_are_not_removed(world: World, on_disk: NodeSettings, state: str) -> None:
    world.says = [state]
    with pytest.raises(UserFault, match=f"is in state {state}"):
        suspension.forget_saved(SavedRequest(1, "forget", "7.head"), Policy(), on_disk)
    assert on_disk.start_dir("7.head", 2).exists()


@pytest.mark.parametrize("state", ["H", UnknownJob("job 7.head", "is gone")])
def test_saved_guests_of_a_job_that_is_over_are_removed_and_no_others(
    world: World, on_disk: NodeSettings, monkeypatch: pytest.MonkeyPatch, state: str | Exception
) -> None:
    removed: list[tuple[str, int]] = []

    def absent(job_id: str, start: int, *_more: object) -> tuple[str, ...]:
        removed.append((job_id, start))
        return (f"directory {job_id}.{start}",)

    monkeypatch.setattr(suspension.present_absent, "absent", absent)
    world.says = [state]
    assert suspension.forget_saved(SavedRequest(1, "forget", "7.head"), Policy(), on_disk) == ["directory 7.head.2"]
    assert suspension.forget_saved(SavedRequest(1, "forget", "8.head"), Policy(), on_disk) == []
    assert removed == [("7.head", 2)]

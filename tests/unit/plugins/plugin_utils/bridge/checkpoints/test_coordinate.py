# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint of a whole job: all or nothing, and whatever fails lets all guests go on."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import checkpoint_store, saved_memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import CheckpointStep
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.checkpoints import coordinate

from .plans import JOB, make_plan

STEPS = ("can_save", "hold", "held", "store")


class Nodes:
    """Two nodes, and what each was asked; one of them may fail at a step, or not be done with it."""

    def __init__(self, store: pathlib.Path, guests: pathlib.Path) -> None:
        self.store, self.guests = store, guests
        self.asked: list[tuple[str, str]] = []
        self.fails = self.objects = ""
        self.waits = 1
        self.held_s = 0.0

    def step(self, host: str, step: CheckpointStep) -> tuple[str, ...]:
        self.asked.append((host, step.do))
        self.held_s = step.seconds if step.do == "hold" else self.held_s
        if host == "cn2" and step.do == self.fails:
            raise VTorqueError("cn2 was not reached", "no route")
        if host == "cn2" and step.do == self.objects:
            return ("guest vcn2-1 will not",)
        if step.do == "held" and host == "cn2" and self.waits:
            self.waits -= 1
            return ("vcn2-1",)
        if step.do == "store":
            name = f"v{host}-1"
            place = checkpoint_store.job_dir(self.store, JOB) / f"{step.generation}.new" / name
            checkpoint_store.save_guest(self.guests / name, place, Deadline.after(60.0))
        return ()

    def dos(self, host: str) -> list[str]:
        return [do for one, do in self.asked if one == host]


class World(t.NamedTuple):
    settings: NodeSettings
    nodes: Nodes
    store: pathlib.Path
    log: list[str]

    def take(
        self, *, park: t.Callable[[], None] | None = None, rerunnable: bool = True, start: int = 1, **policy: t.Any
    ) -> int:
        fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(BatchJob)}
        fields |= {"job_id": JOB, "state": "R", "start_count": start, "slot_hosts": ("cn1", "cn2"), "euser": "alice"}
        job = BatchJob(**{**fields, "rerunnable": rerunnable})
        return coordinate.take_checkpoint(
            job,
            Policy(checkpoint_dir=str(self.store), **{"checkpoint_min": 0, **policy}),
            self.settings,
            lambda host, step, _seconds: self.nodes.step(host, step),
            self.log.append,
            park,
        )

    def names(self) -> list[str]:
        place = checkpoint_store.job_dir(self.store, JOB)
        return sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []

    @property
    def parked_here(self) -> bool:
        """Whether the epilogue reads that the guests are not to go on."""
        return (layout.run_directory(JOB, 1, self.settings.run_dir) / layout.PARKED).exists()


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> World:
    store, guests = tmp_path / "store", tmp_path / "guests"
    store.mkdir(mode=0o700)
    for rank, name in enumerate(("vcn1-1", "vcn2-1")):
        (guests / name).mkdir(parents=True)
        saved_memory.order_save(guests / name, 10)
        saved_memory.memory_file(guests / name).write_bytes(saved_memory.COMPLETE)
        (guests / name / "facts.json").write_text(json.dumps({"rank": rank}))
    settings = NodeSettings(node_name="cn1", node_number=1, run_dir=tmp_path, checkpoint_dir=store)
    run = layout.run_directory(JOB, 1, tmp_path)
    run.mkdir(parents=True)
    (run / layout.PLAN).write_text(make_plan("cn1", "cn2").to_json())
    nodes = Nodes(store, guests)
    monkeypatch.setattr(coordinate, "take_step", lambda step, _settings: nodes.step("cn1", step))
    monkeypatch.setattr(coordinate, "LOOK_S", 0.01)
    return World(settings, nodes, store, [])


def test_checkpoint_is_committed_when_all_nodes_have_stored_theirs(world: World) -> None:
    assert world.take() == 1
    assert world.names() == ["1"]
    manifest = checkpoint_store.read_manifest(world.store, JOB, 1)
    assert [(one["rank"], one["name"]) for one in manifest["guests"]] == [(0, "vcn1-1"), (1, "vcn2-1")]
    assert world.nodes.dos("cn2") == ["can_save", "hold", "held", "held", "store", "let_go"]
    assert "its guests stood still for" in world.log[0]
    assert world.take() == 2


@pytest.mark.parametrize("attribute", ["fails", "objects"])
@pytest.mark.parametrize("do", STEPS)
def test_node_that_fails_at_a_step_leaves_the_former_checkpoint_and_lets_all_go_on(
    world: World, attribute: str, do: str
) -> None:
    world.take()
    world.nodes.asked.clear()
    setattr(world.nodes, attribute, do)
    with pytest.raises(VTorqueError, match=r"no route|will not|vcn2-1 not on the disk"):
        world.take(checkpoint_pause=5 if do != "held" else 0)
    assert world.names() == ["1"]
    assert checkpoint_store.read_manifest(world.store, JOB, 1)["generation"] == 1
    for host in ("cn1", "cn2"):
        assert ("let_go" in world.nodes.dos(host)) == (do != "can_save")
        assert "store" not in world.nodes.dos(host) or do == "store"


def test_guests_that_are_not_on_the_disk_in_time_go_on_without_a_checkpoint(world: World) -> None:
    world.nodes.waits = 10**6
    with pytest.raises(VTorqueError, match=r"vcn2-1 not on the disk within checkpoint_pause \(0 s\)"):
        world.take(checkpoint_pause=0)
    assert world.names() == []
    assert world.nodes.dos("cn1")[-1] == world.nodes.dos("cn2")[-1] == "let_go"


def test_checkpoint_without_one_of_its_guests_is_not_committed(world: World) -> None:
    run = layout.run_directory(JOB, 1, world.settings.run_dir)
    (run / layout.PLAN).write_text(make_plan("cn1", "cn2", "cn3").to_json())
    with pytest.raises(VTorqueError, match="not all of its guests are in it"):
        world.take()
    assert world.names() == []
    assert world.nodes.dos("cn2")[-1] == "let_go"


def test_commit_that_fails_lets_all_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_store, "commit", fail)
    with pytest.raises(VTorqueError, match="No space left"):
        world.take()
    assert world.names() == []
    assert world.nodes.dos("cn1")[-1] == "let_go"


def test_checkpoint_too_soon_after_another_touches_no_guest(world: World) -> None:
    """Whoever rings is the job's user."""
    world.take()
    world.nodes.asked.clear()
    with pytest.raises(coordinate.CheckpointRefused, match="the next one may begin in"):
        world.take(checkpoint_min=10)
    assert world.nodes.asked == []
    os.utime(checkpoint_store.job_dir(world.store, JOB) / "1", (time.time() - 601,) * 2)
    assert world.take(checkpoint_min=10) == 2


def test_site_without_a_place_takes_none(world: World) -> None:
    without = world._replace(settings=dataclasses.replace(world.settings, checkpoint_dir=None))
    with pytest.raises(coordinate.CheckpointRefused, match="no checkpoint_dir"):
        without.take()


def test_what_an_attempt_left_that_was_killed_goes_with_the_next(world: World) -> None:
    left = checkpoint_store.job_dir(world.store, JOB) / "7.new" / "vcn1-1"
    left.mkdir(parents=True)
    assert world.take() == 1
    assert world.names() == ["1"]


def test_job_that_is_suspended_ends_with_its_checkpoint_and_no_guest_goes_on(world: World) -> None:
    ended: list[tuple[list[str], bool]] = []
    assert world.take(park=lambda: ended.append((world.names(), world.parked_here)), checkpoint_pause=60) == 1
    assert ended == [(["1"], True)]
    assert world.nodes.dos("cn1")[-1] == world.nodes.dos("cn2")[-1] == "store"
    assert world.nodes.held_s == 60 + coordinate.PARK_S
    parked = checkpoint_store.read_parked(world.store, JOB)
    assert (parked["start"], parked["user"], parked["failed"]) == (1, "alice", False)
    assert "it rests there" in world.log[0]
    checkpoint_store.forget_parked(world.store, JOB)
    assert checkpoint_store.read_parked(world.store, JOB) == {}


def test_job_that_the_batch_system_does_not_end_goes_on_with_its_checkpoint(world: World) -> None:
    def refuse() -> None:
        raise SiteFault("job 7.head", "qrerun: Unauthorized Request")

    with pytest.raises(SiteFault, match="Unauthorized"):
        world.take(park=refuse)
    assert world.names() == ["1"]
    assert world.nodes.dos("cn1")[-1] == world.nodes.dos("cn2")[-1] == "let_go"
    assert not world.parked_here
    assert checkpoint_store.read_parked(world.store, JOB)["failed"] is True
    with pytest.raises(coordinate.CheckpointRefused, match="may begin in"):  # it could be asked for ever
        world.take(park=refuse, checkpoint_min=10)


@pytest.mark.parametrize("do", STEPS)
def test_job_that_cannot_be_saved_is_not_ended(world: World, do: str) -> None:
    world.nodes.fails = do
    ended: list[str] = []
    with pytest.raises(VTorqueError):
        world.take(park=lambda: ended.append("ended"))
    assert (ended, world.parked_here, world.names()) == ([], False, [])
    assert checkpoint_store.read_parked(world.store, JOB) == {}


def test_suspension_right_after_a_checkpoint_is_made_and_one_of_a_job_that_may_not_run_again_is_not(
    world: World,
) -> None:
    world.take()
    with pytest.raises(coordinate.CheckpointRefused, match="may not run again"):
        world.take(park=lambda: None, rerunnable=False)
    assert world.take(park=lambda: None, checkpoint_min=10) == 2
    assert world.names() == ["1", "2"]


def test_nodes_of_a_job_are_those_in_use_where_its_plan_can_be_read(world: World) -> None:
    """A spare node has nothing to hold or to save; without a plan all are asked."""
    fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(BatchJob)}
    job = BatchJob(**{**fields, "job_id": JOB, "start_count": 1, "slot_hosts": ("cn1", "cn1", "cn2", "cn3")})
    assert coordinate.nodes_in_use(job, world.settings.run_dir) == ("cn1", "cn2")
    for content in ("{", "{}"):
        (layout.run_directory(JOB, 1, world.settings.run_dir) / layout.PLAN).write_text(content)
        assert coordinate.nodes_in_use(job, world.settings.run_dir) == ("cn1", "cn2", "cn3")
    later = dataclasses.replace(job, start_count=2)
    assert coordinate.nodes_in_use(later, world.settings.run_dir) == ("cn1", "cn2", "cn3")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spare nodes: who may have one, until when, and what goes on to it."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.liveness import JobAnswers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import degrading
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import suspects
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import moves, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import LostGuest, NodePart, Suspension
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import Evacuation, MovedGuest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.moves import (
    evacuate,
    forward,
    send,
    spares,
    survey,
)

POLICY = dataclasses.replace(Policy(), spare_nodes=("cn3", "cn4"))
JOB = "7.head"
ROW = MovedGuest("vcn1-1", "52:54:00:00:01:01", "cn1", "cn3", 1.5, 1.25, 0.2)


class Job(t.NamedTuple):
    job_id: str = JOB
    state: str = "R"
    start_count: int = 1
    nodes: tuple[str, ...] = ("cn1",)


class Batch:
    """A batch system with spare nodes; each of its notes can be another's by the time it is read back."""

    def __init__(self, **notes: str) -> None:
        self.notes, self.busy, self.known, self.thief = notes, {}, {JOB: Job()}, ""

    def node(self, name: str) -> BatchNode:
        if name not in self.notes:
            raise SiteFault(f"node {name}", "is not known")
        note = self.notes[name]
        return BatchNode(
            name,
            frozenset({"offline"} if note else {"free"}),
            8,
            0,
            frozenset(),
            note,
        )

    def jobs(self, name: str) -> frozenset[str]:
        return self.busy.get(name, frozenset())

    def offline(self, name: str, note: str) -> BatchNode:
        self.notes[name] = self.thief or note
        return self.node(name)

    def job(self, job_id: str) -> Job:
        if job_id not in self.known:
            raise UnknownJob(job_id, "is not known")
        return self.known[job_id]

    def nodes(self) -> tuple[BatchNode, ...]:
        return tuple(map(self.node, self.notes))


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    (tmp_path / "run").mkdir()
    return NodeSettings(node_name="cn3", node_number=3, run_dir=tmp_path / "run", state_dir=tmp_path / "state")


def test_spare_is_claimed_for_one_job_and_given_back() -> None:
    batch = Batch(cn3="vtorque: spare", cn4="vtorque: spare for 8.head")
    free, reasons = spares.find_free(POLICY, batch)  # type: ignore[arg-type]
    assert free == ("cn3",)
    assert reasons == "cn4 is not offline with the note 'vtorque: spare', but with 'vtorque: spare for 8.head'"
    spares.claim(batch, "cn3", JOB)  # type: ignore[arg-type]
    assert batch.notes["cn3"] == "vtorque: spare for 7.head"
    spares.check_claim(batch, "cn3", JOB)  # type: ignore[arg-type]
    with pytest.raises(SiteFault, match="is not offline with the note"):
        spares.claim(batch, "cn3", "9.head")  # type: ignore[arg-type]
    assert not spares.give_back(batch, "cn3", "9.head")  # type: ignore[arg-type]
    assert spares.give_back(batch, "cn3", JOB)  # type: ignore[arg-type]
    assert batch.notes["cn3"] == "vtorque: spare"


def test_spare_that_another_job_takes_at_the_same_moment_goes_to_one_of_both() -> None:
    batch = Batch(cn3="vtorque: spare")
    batch.thief = "vtorque: spare for 9.head"
    with pytest.raises(SiteFault, match="somebody else wrote its note"):
        spares.claim(batch, "cn3", JOB)  # type: ignore[arg-type]
    with pytest.raises(SiteFault, match=r"its note is 'vtorque: spare for 9\.head'"):
        spares.check_claim(batch, "cn3", JOB)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("note", "why"),
    [("", "but without one"), ("fan broken", "but with 'fan broken'"), ("vtorque: disk: full", "disk: full")],
)
def test_node_with_another_note_or_none_is_no_spare(note: str, why: str) -> None:
    batch = Batch(cn3=note, cn4="vtorque: spare")
    batch.busy["cn4"] = frozenset({"8.head"})
    free, reasons = spares.find_free(POLICY, batch)  # type: ignore[arg-type]
    assert free == ()
    assert why in reasons
    assert "cn4 has job 8.head" in reasons


def test_spare_node_that_the_batch_server_does_not_know_is_named() -> None:
    free, reasons = spares.find_free(POLICY, Batch(cn4="vtorque: spare"))  # type: ignore[arg-type]
    assert (free, reasons) == (("cn4",), "cn3 is not known to the batch server")


def test_spare_node_that_is_degrading_takes_no_guest(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evacuate, "open_batch", lambda _policy: Batch(cn3="vtorque: spare for 7.head"))
    source = degrading.SourceHealth("nhc", degrading=True, since=1.0, why="a fan is slow")
    monkeypatch.setattr(degrading, "read_health", lambda _settings: degrading.NodeHealth((source,)))
    with pytest.raises(SiteFault, match="cn3 is degrading: nhc: a fan is slow"):
        evacuate.check_spare(part(), "cn1", POLICY, settings)


def test_site_without_spare_nodes_says_so() -> None:
    assert spares.find_free(Policy(), Batch()) == (  # type: ignore[arg-type]
        (),
        "the site has no other spare nodes (spare_nodes)",
    )


def part(node: str = "cn3") -> NodePart:
    return NodePart.removal(JOB, 1, node, 30.0)


@pytest.mark.parametrize(
    ("note", "policy", "other", "why"),
    [
        ("vtorque: spare", POLICY, "", "its note is 'vtorque: spare', not 'vtorque: spare for 7.head'"),
        ("vtorque: spare for 8.head", POLICY, "", "its note is 'vtorque: spare for 8.head'"),
        ("vtorque: spare for 7.head", Policy(), "", "is no spare node"),
        ("vtorque: spare for 7.head", POLICY, "8.head.1", "guests of 8.head.1 are here"),
        ("vtorque: spare for 7.head", POLICY, "", ""),
    ],
)
def test_spare_takes_guests_in_of_the_one_job_that_its_note_names(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, note: str, policy: Policy, other: str, why: str
) -> None:
    monkeypatch.setattr(evacuate, "open_batch", lambda _policy: Batch(cn3=note))
    if other:
        (settings.guests_dir / other).mkdir(parents=True)
    if not why:
        evacuate.check_spare(part(), "cn1", policy, settings)
        return
    with pytest.raises(SiteFault, match=why):
        evacuate.check_spare(part(), "cn1", policy, settings)


@pytest.mark.parametrize(
    ("state", "guests", "named", "given"),
    [
        ("R", False, "", False),
        ("C", False, "", True),
        ("", False, "", True),
        ("C", True, "", False),
        ("R", False, JOB, True),
        ("C", False, "8.head", False),
    ],
)
def test_spare_is_free_again_when_its_job_has_ended_and_nothing_is_left(
    settings: NodeSettings, state: str, guests: bool, named: str, given: bool
) -> None:
    batch = Batch(cn3="vtorque: spare for 7.head")
    batch.known = {JOB: Job(state=state)} if state else {}
    if guests:
        (settings.guests_dir / "7.head.1").mkdir(parents=True)
    assert evacuate.give_back_spare(POLICY, settings, batch, job_id=named) is given  # type: ignore[arg-type]
    assert batch.notes["cn3"] == ("vtorque: spare" if given else "vtorque: spare for 7.head")


def test_spare_to_which_the_guest_of_a_running_job_never_comes_is_free_again(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever claimed it was killed, or did not hear of it."""
    batch, now = Batch(cn3="vtorque: spare for 7.head"), [1000.0]
    batch.known = {JOB: Job(state="R")}
    monkeypatch.setattr(suspects.time, "clock_gettime", lambda _clock: now[0])

    def look(seconds: float) -> bool:
        now[0] += seconds
        return evacuate.give_back_spare(POLICY, settings, batch)  # type: ignore[arg-type]

    assert not look(0)
    assert not look(evacuate.UNUSED_S)
    batch.notes["cn3"] = "vtorque: spare for 8.head"
    batch.known["8.head"] = Job(state="R")
    assert not look(10), "it is another job's now"
    guest = settings.guests_dir / "8.head.1"
    guest.mkdir(parents=True)
    assert not look(evacuate.UNUSED_S + 10)
    guest.rmdir()
    assert not look(10), "its guest was here"
    assert look(evacuate.UNUSED_S + 10)
    assert batch.notes["cn3"] == "vtorque: spare"


@pytest.mark.parametrize(
    ("came", "job", "lives"),
    [
        (True, Job(), True),
        (False, Job(), False),
        (True, Job(state="C"), False),
        (True, Job(start_count=2), False),
        (True, Job(nodes=("cn2",)), False),
    ],
)
def test_start_whose_guest_has_come_lives_as_long_as_on_its_former_node(
    settings: NodeSettings, came: bool, job: Job, lives: bool
) -> None:
    guest = settings.start_dir(JOB, 1) / "vcn1-1"
    guest.mkdir(parents=True)
    if came:
        moves.note_arrival(guest, "cn1")
    batch = Batch()
    batch.known = {JOB: job}
    asked = JobAnswers(batch)  # type: ignore[arg-type]
    assert evacuate.came_and_lives(settings, asked, JOB, 1) is lives


def test_node_of_the_cluster_cannot_have_another_one_evacuated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evacuate, "open_batch", lambda _policy: Batch(cn3="", localhost=""))
    request = Evacuation(1, "evacuate", "cn3", dry_run=True)
    with pytest.raises(VTorqueError, match="localhost asks for it"):
        evacuate.evacuate(request, dataclasses.replace(POLICY, node_number=3), "cn3", "127.0.0.1")
    with pytest.raises(VTorqueError, match="this is cn1"):
        evacuate.evacuate(request, dataclasses.replace(POLICY, node_number=3), "cn1", "")


class Mover:
    """Moves guests to spare nodes, of which some do not take one, and some lose it on the way."""

    def __init__(self, *, refuses: t.Collection[str] = (), breaks: t.Collection[str] = ()) -> None:
        self.refuses, self.breaks, self.calls = refuses, breaks, []

    def __call__(self, resident: survey.Resident, target: str, *_more: object) -> MovedGuest:
        self.calls.append((resident.guest.name, target))
        if target in self.refuses:
            raise send.GuestRejected(f"vtorque-node on {target}", "is degrading")
        if target in self.breaks:
            raise VTorqueError(f"guest {resident.guest.name}", "was not there after 60 s")
        return dataclasses.replace(ROW, guest=resident.guest.name, target=target)


def evacuate_all(
    mover: Mover, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool = False
) -> list[tuple[str, str, str]]:
    """Return guest, target and reason of each of two guests of a start on cn1, which has two spare nodes."""
    here = dataclasses.replace(settings, node_name="cn1", node_number=1)
    guests = [survey.Resident("7.head.1", JOB, 1, here.start_dir(JOB, 1) / f"vcn1-{n}", part()) for n in (1, 2)]
    batch = Batch(cn1="", cn3="vtorque: spare", cn4="vtorque: spare")
    monkeypatch.setattr(evacuate, "open_batch", lambda _policy: batch)
    monkeypatch.setattr(evacuate, "settings_of", lambda _policy, _node: here)
    monkeypatch.setattr(evacuate, "Domains", lambda _uri: contextlib.nullcontext())
    monkeypatch.setattr(evacuate, "list_residents", lambda *_arguments: guests)
    monkeypatch.setattr(evacuate, "move", mover)
    rows = evacuate.evacuate(Evacuation(1, "evacuate", "cn1", dry_run), POLICY, "cn1", "")
    return [(row.guest, row.target, row.why) for row in rows]


def test_guest_whose_move_is_not_at_its_end_is_sent_nowhere_else(settings: NodeSettings) -> None:
    """It may run on the first spare node, which is silent."""
    guest = settings.start_dir(JOB, 1) / "vcn1-1"
    guest.mkdir(parents=True)
    moves.order_move(guest, "cn4")
    lock = start_lock.Lock(start_lock.start_lock(settings, "7.head.1"))
    assert lock.take_now()
    with contextlib.closing(lock):
        (found,) = survey.list_residents(POLICY, settings, Batch(), None)  # type: ignore[arg-type]
    assert found.why == "whether vcn1-1 has moved to cn4 is not known yet"


def test_guest_has_arrived_when_it_is_watched(settings: NodeSettings) -> None:
    guest = settings.start_dir(JOB, 1) / "vcn1-1"
    guest.mkdir(parents=True)
    moves.save_part(guest.parent, part())
    assert not moves.has_arrived(guest), "it began here"
    moves.note_arrival(guest, "cn1")
    assert moves.has_arrived(guest)
    moves.order_move(guest, "cn4")
    assert not moves.has_arrived(guest)


@pytest.mark.parametrize("dry_run", [False, True])
def test_each_guest_of_a_start_goes_to_a_spare_node_of_its_own(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    mover = Mover()
    rows = evacuate_all(mover, settings, monkeypatch, dry_run=dry_run)
    assert rows == [("vcn1-1", "cn3", ""), ("vcn1-2", "cn4", "")]
    assert mover.calls == ([] if dry_run else [("vcn1-1", "cn3"), ("vcn1-2", "cn4")])


def test_guest_that_a_spare_node_does_not_take_goes_to_the_next_one_and_the_other_guest_stays(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = evacuate_all(Mover(refuses=["cn3"]), settings, monkeypatch)
    assert rows[0] == ("vcn1-1", "cn4", "")
    assert rows[1][:2] == ("vcn1-2", "")
    assert "no spare node is free" in rows[1][2]


def test_guest_that_no_spare_node_takes_stays_with_all_reasons(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, target, why = evacuate_all(Mover(refuses=["cn3", "cn4"]), settings, monkeypatch)[0]
    assert (guest, target) == ("vcn1-1", "")
    assert "vtorque-node on cn3: is degrading" in why
    assert "vtorque-node on cn4: is degrading" in why


def test_guest_whose_move_was_broken_off_is_not_sent_to_another_node(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover = Mover(breaks=["cn3"])
    rows = evacuate_all(mover, settings, monkeypatch)
    assert mover.calls == [("vcn1-1", "cn3"), ("vcn1-2", "cn4")]
    assert rows == [("vcn1-1", "", "guest vcn1-1: was not there after 60 s"), ("vcn1-2", "cn4", "")]


# -- what a node passes on


class Asked:
    """Other nodes, and what they were asked."""

    def __init__(self, answer: dict[str, t.Any] | VTorqueError) -> None:
        self.answer, self.heard = answer, []

    def __call__(self, host: str, message: t.Any, _timeout_s: float = 0) -> dict[str, t.Any]:
        self.heard.append((host, message))
        if isinstance(self.answer, VTorqueError):
            raise self.answer
        return self.answer


@pytest.fixture
def former(tmp_path: pathlib.Path) -> NodeSettings:
    """A node from which a guest has moved."""
    found = NodeSettings(node_name="cn1", node_number=1, run_dir=tmp_path / "run", state_dir=tmp_path / "state")
    moves.note_moved(found.record_dir(JOB, 1), ROW, None)
    return found


def test_removal_goes_on_to_the_spare_and_its_answer_comes_back(
    former: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"ok": True, "removed": ["domain vcn1-1"], "left": [], "used": [{"name": "vcn1-1"}], "series": [2]}
    asked = Asked(there)
    monkeypatch.setattr(forward, "send_request", asked)
    answer = {"removed": ["slot 1"], "left": [], "series": [1]}
    answer = forward.remove_moved(part("cn1"), answer, former, Deadline.after(60))
    assert answer["removed"] == ["slot 1", "domain vcn1-1"]
    assert (answer["used"], answer["series"], answer["moves"][0]["target"]) == ([{"name": "vcn1-1"}], [1], "cn3")
    ((host, message),) = asked.heard
    assert (host, message.do, message.node, message.job_id) == ("cn3", "absent", "cn3", JOB)


def test_spare_that_is_silent_leaves_its_guest_in_the_answer(
    former: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "send_request", Asked(VTorqueError("vtorque-node on cn3", "gave no answer in time")))
    answer = forward.remove_moved(part("cn1"), {"removed": [], "left": []}, former, Deadline.after(60))
    assert answer["left"] == ["guests that have moved to cn3: vtorque-node on cn3: gave no answer in time"]


def test_spares_are_asked_at_once_and_for_no_longer_than_this_node_has(
    former: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, two that are dead took more than the hook of a job's end has."""
    moves.note_moved(former.record_dir(JOB, 1), dataclasses.replace(ROW, guest="vcn1-2", target="cn4"), None)
    both, given = threading.Barrier(2), []

    def send_request(host: str, message: NodePart, timeout_s: float) -> dict[str, t.Any]:
        given.append((timeout_s, message.timeout_s))
        both.wait(60)
        raise VTorqueError(f"vtorque-node on {host}", "gave no answer in time")

    monkeypatch.setattr(forward, "send_request", send_request)
    removal = dataclasses.replace(part("cn1"), timeout_s=300.0)
    answer = forward.remove_moved(removal, {"removed": [], "left": []}, former, Deadline.after(20))
    assert [left.partition(":")[0] for left in answer["left"]] == [
        "guests that have moved to cn3", "guests that have moved to cn4",
    ]  # fmt: skip
    assert all(forward.LEAST_S <= seconds < 20 for pair in given for seconds in pair)


def test_suspension_goes_on_to_the_spare(former: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked({"ok": True, "lack": ["no memory"]})
    monkeypatch.setattr(forward, "send_request", asked)
    assert forward.forward_suspension(Suspension(1, "fit", JOB, 1, "cn1"), former) == ("no memory",)
    assert asked.heard == [("cn3", Suspension(1, "fit", JOB, 1, "cn3"))]
    assert forward.forward_suspension(Suspension(1, "fit", "8.head", 1, "cn1"), former) == ()


def test_loss_of_a_guest_that_has_moved_reaches_the_mother_superior_in_the_name_of_its_former_node(
    former: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked({"ok": True})
    monkeypatch.setattr(forward, "send_request", asked)
    lost = LostGuest(1, "lost", JOB, 1, "cn3", "vcn1-1", "it crashed", "")
    assert not forward.pass_loss(lost, former)  # it leads the job itself
    forward.superior.save_superior("cn2", former.record_dir(JOB, 1), reader_uid=0)
    assert forward.pass_loss(lost, former)
    assert asked.heard == [("cn2", dataclasses.replace(lost, node="cn1"))]
    assert not forward.pass_loss(dataclasses.replace(lost, node="cn4"), former)
    assert not forward.pass_loss(dataclasses.replace(lost, guest="vcn1-2"), former)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How faults of checkpoints share guests (tests/e2e/faults/shared_guests.py): none of them hides another."""

from __future__ import annotations

import importlib
import itertools
import typing as t

import pytest

from tests.e2e.faults import shared_guests, strike_saving
from tests.e2e.faults.shared_guests import Fault, Seen, SharedGuests, find_problems

RIGHT: Seen = {
    "struck": True, "goes_on": True, "again": {"answer": 1}, "failed": {}, "store": [], "left": [], "beside": True,
}  # fmt: skip
"""What `Node.attempt` returns of a fault after which all is as it should be."""


def fault_at(place: str, kind: str = "killed") -> Fault:
    """A fault before a step."""
    return place, "before", kind


class FakeNode:
    """A node without guests.

    Args:
        wrong: what is seen otherwise than `RIGHT`, by the place of the fault.
        later: the same where another fault of the guest has the place of the key, and came before.
        remains: what is left at the end of a guest that has had a fault at the place.
        not_made: jobs whose guests cannot be made.
    """

    def __init__(
        self,
        wrong: dict[str, Seen] | None = None,
        later: dict[str, Seen] | None = None,
        remains: dict[str, list[str]] | None = None,
        not_made: tuple[str, ...] = (),
    ) -> None:
        self.wrong, self.later, self.remains, self.not_made = wrong or {}, later or {}, remains or {}, not_made
        self.done: list[str] = []
        self.had: dict[str, list[str]] = {}

    def prepare_job(self, job_id: str, who: str, fault: Fault) -> Seen:
        """Note the job."""
        self.done.append(f"{job_id} begins for {who} {fault[0]}")
        self.had[job_id] = []
        return {"error": "no room"} if job_id in self.not_made else {"answer": ["guest"]}

    def attempt(self, job_id: str, who: str, fault: Fault, number: int) -> Seen:
        """Note the fault."""
        assert number == len(self.had[job_id])
        seen = {**RIGHT, **self.wrong.get(fault[0], {})}
        for before in self.had[job_id]:
            seen |= self.later.get(before, {})
        self.had[job_id].append(fault[0])
        self.done.append(f"{job_id} has {fault[0]}")
        return seen

    def finish_job(self, job_id: str) -> Seen:
        """Note the end."""
        self.done.append(f"{job_id} ends")
        left = [thing for place in self.had[job_id] for thing in self.remains.get(place, [])]
        return {"absent": {"answer": []}, "left": left}


def reports_of(node: FakeNode, *tried: tuple[str, Fault], most: int = 9) -> list[Seen]:
    """What is reported of faults."""
    reports: list[Seen] = []
    guests = SharedGuests(node, itertools.count(1), reports.append, most)
    for who, fault in tried:
        guests.try_fault(who, fault)
    guests.finish()
    assert [one for one in node.done if one.endswith(" ends")] == [f"{job_id} ends" for job_id in node.had]
    return reports


def saves(*places: str) -> list[tuple[str, Fault]]:
    """Faults of whoever takes a checkpoint."""
    return [("save", fault_at(place)) for place in places]


def test_faults_of_a_checkpoint_share_a_guest_as_long_as_all_is_right() -> None:
    """Each is reported by itself, with what its guest had before, and the guest when it has ended."""
    node = FakeNode()
    reports = reports_of(node, *saves("a", "b", "c"))
    assert list(node.had) == ["1.fe"]
    assert [(one["place"], one["guest_had"]) for one in reports[:3]] == [
        ("a", []), ("b", ["save killed before a"]), ("c", ["save killed before a", "save killed before b"])
    ]  # fmt: skip
    assert reports[3]["served"] == [f"save killed before {place}" for place in "abc"]
    assert [find_problems(one) for one in reports[:3]] == [[], [], []]


def test_guest_serves_no_more_faults_than_are_tried_again() -> None:
    """Nor faults of another program."""
    node = FakeNode()
    reports_of(node, *saves("a", "b", "c"), ("return", fault_at("d")), ("return", fault_at("e")), most=2)
    assert list(node.had.values()) == [["a", "b"], ["c"], ["d", "e"]]


@pytest.mark.parametrize("who", ["park", "worker"])
def test_guest_of_a_job_that_ends_or_of_a_worker_with_a_fault_is_used_once(who: str) -> None:
    """The next one is made when its fault is tried, which its worker bears."""
    node = FakeNode()
    reports_of(node, (who, fault_at("a")), (who, fault_at("b")))
    assert node.done == [
        f"1.fe begins for {who} a", "1.fe has a", "1.fe ends", f"2.fe begins for {who} b", "2.fe has b", "2.fe ends"
    ]  # fmt: skip


def test_fault_that_fails_by_itself_is_tried_again_alone() -> None:
    """Its guest is not used again."""
    node = FakeNode(wrong={"b": {"goes_on": False}})
    reports = reports_of(node, *saves("a", "b", "c"))
    assert list(node.had.values()) == [["a", "b"], ["b"], ["c"]]
    (failed,) = (one for one in reports if one.get("place") == "b")
    assert find_problems(failed) == ["the guest did not go on"]
    assert failed["guest_had"] == ["save killed before a"]
    assert failed["alone"] == ["the guest did not go on"]


def test_fault_that_fails_only_behind_another_says_so() -> None:
    """It fails all the same."""
    node = FakeNode(later={"a": {"left": ["slot 1"]}})
    reports = reports_of(node, *saves("a", "b"))
    (failed,) = (one for one in reports if one.get("place") == "b")
    assert find_problems(failed) == ["left: slot 1"]
    assert failed["alone"] == []


def test_first_fault_of_a_guest_was_alone_already() -> None:
    """So it is tried once."""
    node = FakeNode(wrong={"a": {"struck": False}})
    reports = reports_of(node, *saves("a", "b"))
    assert list(node.had.values()) == [["a"], ["b"]]
    assert "alone" not in reports[0]


def test_faults_of_a_guest_that_leaves_something_are_named_and_tried_alone() -> None:
    """So that it is known whose it is."""
    node = FakeNode(remains={"b": ["directory 1.fe.1"]})
    reports = reports_of(node, *saves("a", "b"))
    assert list(node.had.values()) == [["a", "b"], ["a"], ["b"]]
    end = reports[-1]
    assert shared_guests.find_problems_around(end) == ["left: directory 1.fe.1"]
    assert end["served"] == ["save killed before a", "save killed before b"]
    assert end["alone"] == {"save killed before a": [], "save killed before b": ["at its end: left: directory 1.fe.1"]}


def test_guest_that_is_not_made_fails_its_fault() -> None:
    """Nothing is tried in it, and it is removed."""
    node = FakeNode(not_made=("1.fe",))
    reports = reports_of(node, *saves("a", "b"))
    assert node.had == {"1.fe": [], "2.fe": ["b"]}
    assert find_problems(reports[0]) == ["no guest was made before the fault: {'error': 'no room'}"]


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ({"struck": False}, "the fault did not strike"),
        ({"goes_on": False}, "the guest did not go on"),
        ({"again": {}}, "what comes next failed: {}"),
        ({"failed": {"error": "Traceback (most recent"}, "kind": "raises"}, "the error has a traceback"),
        ({"failed": {"answer": 1}}, "who is killed answered: {'answer': 1}"),
        ({"store": ["3 checkpoints"]}, "in the store: 3 checkpoints"),
        ({"undone": ["slot 1"]}, "left of the start that failed: slot 1"),
        ({"absent": {"error": "no"}}, "the removal failed: {'error': 'no'}"),
        ({"left": ["slot 1"]}, "left: slot 1"),
        ({"beside": False}, "the guest of another job is gone"),
    ],
)
def test_whatever_is_wrong_is_found(seen: Seen, problem: str) -> None:
    """In what was seen of a fault."""
    begun: dict[str, t.Any] = {"who": "save", "kind": "killed", "begun": {"answer": ["guest"]}}
    assert find_problems({**begun, **RIGHT}) == []
    assert find_problems({**begun, **RIGHT, **seen}) == [problem]


def test_guest_that_has_returned_has_another_process_and_nothing_else() -> None:
    """Two processes are one too many."""
    before = ["domain a", "process 12 of 1.fe.1"]
    assert strike_saving.differences(before, ["process 99 of 1.fe.1", "domain a"]) == []
    assert strike_saving.differences(before, [*before, "process 99 of 1.fe.1"]) == ["process of 1.fe.1"]
    assert strike_saving.differences(before, ["process 12 of 1.fe.1", "slot 2"]) == ["slot 2", "no domain a"]


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, waits in strike_saving.SHORT.items() for name in waits]
)
def test_wait_that_is_shortened_is_one_of_the_product(module: str, name: str) -> None:
    """One with another name would be waited for."""
    found = vars(importlib.import_module(f"{strike_saving.NODE}.{module}"))[name]
    assert found > strike_saving.SHORT[module][name]

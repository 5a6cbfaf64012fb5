# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""job_guests: a node is asked for its part, and its answer is not believed as it comes."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import socket
import time
import types
import typing as t

import pytest
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible_collections.mikelangelo.vtorque.plugins.action import job_guests, job_plan, job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import IdleNode, JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import node_socket
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions import node_connection

from .task import FACTS, JOB, JOB_KEY, KEYS, START, Gone, Node, act, error, good, make_plan

SHOWN = {"rank": 0, "name": "vn1-3", "mac": "52:54:00:00:01:03", "address": "192.0.2.17"}
SECOND = {**FACTS, "rank": 1, "name": "vn2-1", "mac": "52:54:00:00:02:01", "address": "192.0.2.18"}


def test_node_is_asked_once_for_its_own_part(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(good(FACTS))
    result = act(job_guests, run_dir, node, timeout=77)
    assert form.from_dict(messages.NodePart, node.requests[0]) == dataclasses.replace(plan.parts["n1"], timeout_s=77.0)
    assert result["changed"]
    assert result["guests"] == {"n1": [SHOWN]}
    assert result["diff"] == {"before": {"n1": []}, "after": {"n1": [SHOWN]}}


def test_all_nodes_are_asked_and_then_told_of_each_other(run_dir: pathlib.Path) -> None:
    """In the order of the ranks, one slot for each vCPU, with the key that each was given."""
    files.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    node = Node(good(FACTS), others={"n2": Node(good(SECOND))})
    act(job_guests, run_dir, node, hosts=["n1", "n2"], timeout=77)
    assert node.asked("present") == node.asked("join") == ["n1", "n2"]
    maps = [form.from_dict(messages.JobMap, one) for one in node.requests if one["do"] == "join"]
    assert [[(host.name, host.address, host.slots) for host in one.hosts] for one in maps] == [
        [("vn1-3", "192.0.2.17", 1), ("vn2-1", "192.0.2.18", 1)]
    ] * 2
    assert [host.host_key for host in maps[0].hosts] == [" ".join(KEYS[rank].public.split()[:2]) for rank in (0, 1)]
    assert maps[0].job_key == JOB_KEY


def test_one_node_after_the_other_where_the_site_wants_it(
    run_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DEFAULT_FORKS", 1)
    files.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    node = Node(good(FACTS), others={"n2": Node(good(SECOND))})
    act(job_guests, run_dir, node, hosts=["n1", "n2"], timeout=77)
    assert [(one["do"], one["node"]) for one in node.requests][:2] == [("present", "n1"), ("present", "n2")]
    assert node.asked("join") == ["n1", "n2"]


@pytest.mark.parametrize("at_once", [2, 4])
def test_nodes_that_had_their_turn_speak_for_the_image(
    run_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """That two others fail alike is then no evidence against it."""
    monkeypatch.setattr(constants, "DEFAULT_FORKS", at_once)
    nodes = ["n1", "n2", "n3", "n4"]
    files.write(run_dir / "plan.json", make_plan(*nodes).to_json())
    report = {"fault": "unclear", "what": "a guest", "why": "panicked", "hint": "", "cause": "", "symptom": "panicked"}
    bad = Node({"version": 1, "ok": False, "error": report, "left": []})
    node = Node(good(FACTS), others={"n2": Node(good(SECOND)), "n3": bad, "n4": bad})
    act(job_guests, run_dir, node, hosts=nodes, timeout=77)
    assert error(run_dir)["fault"] == "unclear"


def with_spares(*nodes: str, spare: int) -> JobPlan:
    """A plan whose last nodes are spare ones."""
    plan = make_plan(*nodes)
    idle = nodes[len(nodes) - spare :]
    parts = tuple(dataclasses.replace(part, guests=()) if part.node in idle else part for part in plan.node_parts)
    return dataclasses.replace(plan, node_parts=parts, idle=tuple(map(IdleNode, idle)))


FAILED = {"fault": "node", "what": "bridge br0", "why": "not there", "hint": "", "cause": "bridge"}
PANIC = {"fault": "unclear", "what": "a guest", "why": "panicked", "hint": "", "cause": "", "symptom": "panicked"}


def bad(report: dict[str, str] = FAILED) -> Node:
    return Node({"version": 1, "ok": False, "error": report, "left": []})


def test_spare_node_takes_the_place_of_one_that_fails_in_the_same_start(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", with_spares("n1", "n2", "n3", spare=1).to_json())
    third = Node(good({**FACTS, "name": "vn3-1"}))
    node = Node(
        {"version": 1, "ok": False, "error": FAILED, "left": []}, others={"n2": Node(good(SECOND)), "n3": third}
    )
    result = act(job_guests, run_dir, node, hosts=["n1", "n2", "n3"], timeout=77)
    assert node.asked("present") == ["n1", "n2", "n3"]
    assert node.asked("join") == ["n2", "n3"]
    assert [guest["rank"] for guest in result["guests"]["n3"]] == [0]
    assert "n1" not in result["guests"]
    plan = JobPlan.from_json((run_dir / "plan.json").read_text("utf-8"))
    assert (plan.in_use, plan.spares) == (("n3", "n2"), ())
    assert files.read_json(run_dir / "replaced.n1.json") == {
        **FAILED, "what": "n1: bridge br0", "host": "n1", "by": "n3"
    }  # fmt: skip
    assert not (run_dir / "error.json").exists()
    (asked,) = [one for one in node.requests if (one["do"], one["node"]) == ("present", "n3")]
    assert [guest["rank"] for guest in asked["guests"]] == [0]
    assert 0 < asked["timeout_s"] < 77


def test_spare_node_is_not_asked_until_it_is_used_and_is_cleaned_as_all_others(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", with_spares("n1", "n2", "n3", spare=1).to_json())
    node = Node(good(FACTS), others={"n2": Node(good(SECOND)), "n3": bad()})
    act(job_guests, run_dir, node, hosts=["n1", "n2", "n3"], timeout=77)
    assert node.asked("present") == node.asked("join") == ["n1", "n2"]
    clean = Node(good(), others={"n2": Node(good()), "n3": Node(good())})
    act(job_guests, run_dir, clean, hosts=["n1", "n2", "n3"], state="absent", timeout=60)
    assert clean.asked("absent") == ["n1", "n2", "n3"]


def test_node_that_is_not_reached_is_replaced(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", with_spares("n1", "n2", "n3", spare=1).to_json())
    third = Node(good({**SECOND, "name": "vn3-1"}))
    node = Node(good(FACTS), others={"n2": Gone(), "n3": third})
    assert not act(job_guests, run_dir, node, hosts=["n1", "n2", "n3"], timeout=77).get("failed")
    assert node.asked("join") == ["n1", "n3"]


def test_without_a_spare_node_left_the_first_proof_of_a_node_decides(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", with_spares("n1", "n2", "n3", spare=1).to_json())
    node = Node(
        {"version": 1, "ok": False, "error": FAILED, "left": []},
        others={"n2": Node(good(SECOND)), "n3": Gone()},
    )
    result = act(job_guests, run_dir, node, hosts=["n1", "n2", "n3"], timeout=77)
    assert result["failed"]
    assert (error(run_dir)["fault"], error(run_dir)["host"]) == ("node", "n1")
    assert "also failed: n3: n3 was not reached" in result["msg"]


def test_image_that_boots_on_no_node_uses_up_no_more_than_one_spare(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", with_spares("n1", "n2", "n3", spare=2).to_json())
    node = Node({"version": 1, "ok": False, "error": PANIC, "left": []}, others={"n2": bad(PANIC), "n3": bad(PANIC)})
    assert act(job_guests, run_dir, node, hosts=["n1", "n2", "n3"], timeout=77)["failed"]
    assert node.asked("present") == ["n1", "n2"]
    assert error(run_dir)["fault"] == "image"


def test_two_nodes_that_name_the_same_guest_are_not_believed(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    node = Node(good(FACTS), others={"n2": Node(good({**SECOND, "address": FACTS["address"]}))})
    result = act(job_guests, run_dir, node, hosts=["n1", "n2"], timeout=77)
    assert "2 guests have the address" in result["msg"]
    assert node.asked("join") == []


def test_guest_that_cannot_be_told_fails_the_start(run_dir: pathlib.Path, plan: JobPlan) -> None:
    report = {"fault": "unclear", "what": "guest vn1-3", "why": "did not answer", "hint": "", "cause": ""}
    node = Node(good(FACTS), join={"version": 1, "ok": False, "error": report, "left": []})
    assert "guest vn1-3: did not answer" in act(job_guests, run_dir, node, timeout=77)["msg"]


def test_absent_reaches_the_others_when_one_is_gone(run_dir: pathlib.Path) -> None:
    node = Node(good(removed=["slot 3"]), others={"n2": Gone()})
    result = act(job_guests, run_dir, node, hosts=["n2", "n1"], state="absent", timeout=60)
    assert "n2 was not reached" in result["msg"]
    assert node.asked("absent") == ["n1", "n2"]


def test_guests_that_are_there_are_no_change(run_dir: pathlib.Path, plan: JobPlan) -> None:
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)
    again = act(job_guests, run_dir, Node(good({**FACTS, "timings_s": {"ready": 0.1}})), timeout=77)
    assert not again["changed"]
    assert again["diff"]["before"] == again["diff"]["after"]


def test_check_mode_asks_nobody(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(good(FACTS))
    result = act(job_guests, run_dir, node, check=True, timeout=77)
    assert node.requests == []
    assert result["changed"]
    assert result["diff"] == {"before": {"n1": []}, "after": {"n1": [{"rank": 0}]}}
    assert [path.name for path in run_dir.iterdir()] == ["plan.json"]
    act(job_guests, run_dir, node, timeout=77)
    assert not act(job_guests, run_dir, node, check=True, timeout=77)["changed"]
    assert act(job_guests, run_dir, node, check=True, timeout=77, state="absent")["changed"]


HOOK_ASKED_S = 100.0
"""So long ago the hook has asked."""


@contextlib.contextmanager
def begun_by_the_hook(
    run_dir: pathlib.Path, patch: pytest.MonkeyPatch, node: Node, part: messages.NodePart | None, *answers: object
) -> t.Iterator[socket.socket]:
    """A program that the hook has asked for a part, or for nothing, and that has ended with these answers.

    Yields:
        Its end of the conversation.  Another one that is begun is `node`.
    """
    ours, theirs = socket.socketpair()
    complaint = os.memfd_create("complaint")
    patch.setenv(node_socket.VARIABLE, f"{ours.fileno()}.{complaint}")
    if part is not None:
        asked = {"digest": node_socket.digest(part), "asked_s": time.monotonic() - HOOK_ASKED_S}
        files.write(run_dir / layout.ASKED, json.dumps(asked))
    place = run_dir.parents[1] / "prefix"
    node.put(place)
    patch.setattr(job_guests, "node_program", lambda _prefix: place / "bin/vtorque-node")
    with ours, theirs:
        theirs.sendall("".join(f"{json.dumps(answer)}\n" for answer in answers).encode())
        theirs.shutdown(socket.SHUT_WR)
        yield theirs
    os.close(complaint)


@pytest.mark.parametrize(
    ("ram_mib", "answers", "asked"),
    [(256, True, []), (512, True, ["n1"]), (256, False, ["n1"])],
    ids=["the plan's part", "another part", "no answer"],
)
def test_conversation_that_the_hook_began_goes_on_when_it_asked_what_the_plan_says(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch, ram_mib: int, answers: bool,
    asked: list[str],
) -> None:  # fmt: skip
    node = Node(good(FACTS))
    part = make_plan("n1", ram_mib=ram_mib).parts["n1"]
    with begun_by_the_hook(run_dir, monkeypatch, node, part, *([good(FACTS), good()] if answers else [])) as hook:
        result = act(job_guests, run_dir, node, timeout=77, prefix=None)
        output = hook.recv(1 << 20) if not asked else b""
    assert [guest["name"] for guest in result["guests"]["n1"]] == ["vn1-3"]
    assert node.asked("present") == asked
    assert not output or json.loads(output)["do"] == "join"
    assert bool(output) == (not asked)


def test_whole_playbook_can_be_checked_before_there_is_a_plan(run_dir: pathlib.Path) -> None:
    assert act(job_guests, run_dir, check=True, timeout=77)["changed"]
    assert act(job_record, run_dir, check=True)["changed"]
    assert list(run_dir.iterdir()) == []


def test_absent_needs_no_plan(run_dir: pathlib.Path) -> None:
    node = Node(good(removed=["domain vn1-3", "slot 3"]))
    result = act(job_guests, run_dir, node, state="absent", timeout=60)
    assert node.requests[0]["do"] == "absent"
    assert node.requests[0]["guests"] == []
    assert result["changed"]
    assert result["removed"] == 2
    assert not act(job_guests, run_dir, Node(good()), state="absent", timeout=60)["changed"]


@pytest.mark.parametrize(
    ("job_id", "answers", "asked"),
    [(JOB, True, []), ("1.other", True, ["n1"]), (JOB, False, ["n1"]), ("", True, ["n1"])],
    ids=["this removal", "another", "no answer", "nothing was asked"],
)
def test_removal_that_the_hook_began_is_not_asked_for_again(
    run_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, job_id: str, answers: bool, asked: list[str]
) -> None:
    node = Node(good(removed=["slot 3"]))
    part = messages.NodePart.removal(job_id, START, "n1", 0.0) if job_id else None
    answer = [good(removed=["domain vn1-3", "slot 3"])] if answers else []
    with begun_by_the_hook(run_dir, monkeypatch, node, part, *answer):
        result = act(job_guests, run_dir, node, state="absent", timeout=60, prefix=None)
    assert node.asked("absent") == asked
    assert result["removed"] == (1 if asked else 2)
    # the record tells how long it took, and not how long the playbook waited for it
    seconds = files.read_json(run_dir / layout.StepFile.PHASE.of("absent.n1"))["seconds"]
    assert (seconds >= HOOK_ASKED_S) == (job_id == JOB)


USED = {
    "name": "vn1-3", "cpu_s": 1.5, "ram_peak_bytes": -1, "read_bytes": 1, "written_bytes": 2, "received_bytes": 3,
    "sent_bytes": 4, "wait_s": 0.5, "io_cores_most": 2, "io_changes": 4,
}  # fmt: skip
MEASURED: dict[str, t.Any] = {
    "node": "n1", "began": 1.8e9, "every_s": 30, "energy_j": 12.5, "energy_how": "measured",
    "guests": [{"name": "vn1-3", "rank": 0, "tag": "t", "points": "0 1 - 1024 1 2 3 4;30 2 0.5 2048 1 2 3 4"}],
}  # fmt: skip


TOLD = {"name": "vn1-3", "end": "one\ntwo\n"}


@pytest.mark.parametrize(("what", "facts"), [("used", USED), ("consoles", TOLD), ("series", MEASURED)])
def test_guest_facts_of_a_node_are_stored_for_the_record(
    run_dir: pathlib.Path, what: str, facts: dict[str, t.Any]
) -> None:
    act(job_guests, run_dir, Node(good(**{what: [facts]})), state="absent", timeout=60)
    assert json.loads((run_dir / f"{what}.n1.json").read_text()) == {what: [facts]}
    act(job_guests, run_dir, Node(good()), state="absent", timeout=60)  # asked again, it may know less
    assert json.loads((run_dir / f"{what}.n1.json").read_text()) == {what: [facts]}


@pytest.mark.parametrize(
    "change",
    [
        {"guests": [{**MEASURED["guests"][0], "name": "vn2-3"}]},
        {"guests": MEASURED["guests"] * 2},
        {"began": -1},
        {"energy_how": "guessed"},
        {"guests": [{**MEASURED["guests"][0], "points": "0 1"}]},
    ],
)
def test_series_of_another_form_is_refused(run_dir: pathlib.Path, change: dict[str, t.Any]) -> None:
    assert act(job_guests, run_dir, Node(good(series=[{**MEASURED, **change}])), state="absent", timeout=60)["failed"]
    assert not (run_dir / "series.n1.json").exists()


@pytest.mark.parametrize(
    "used",
    [
        [{**USED, "name": "vn2-3"}],
        [USED, USED],
        [{**USED, "cpu_s": -3}],
        [{"name": "vn1-3"}],
        {"a": 1},
        [USED] * 10_001,
    ],
)
def test_usage_of_another_form_is_refused(run_dir: pathlib.Path, used: t.Any) -> None:
    assert act(job_guests, run_dir, Node(good(used=used)), state="absent", timeout=60)["failed"]
    assert not (run_dir / "used.n1.json").exists()


@pytest.mark.parametrize(
    "report",
    [
        [{**TOLD, "name": "vn2-3"}],
        [TOLD, TOLD],
        [{**TOLD, "end": "x" * 65_537}],
        [{**TOLD, "end": ""}],
        [{"name": "vn1-3"}],
    ],
)
def test_consoles_of_another_form_are_not_believed(run_dir: pathlib.Path, report: list[dict[str, str]]) -> None:
    assert act(job_guests, run_dir, Node(good(consoles=report)), state="absent", timeout=60)["failed"]
    assert not (run_dir / "consoles.n1.json").exists()


def test_leftovers_of_a_start_are_an_error(run_dir: pathlib.Path) -> None:
    result = act(job_guests, run_dir, Node(good(left=["domain vn1-3"])), state="absent", timeout=60)
    assert result["failed"]
    assert "domain vn1-3" in result["msg"]
    assert error(run_dir)["fault"] == "node"


def test_nodes_own_error_keeps_its_class(run_dir: pathlib.Path, plan: JobPlan) -> None:
    report = {"fault": "node", "what": "bridge br0", "why": "not there", "hint": "ip link add", "cause": "bridge"}
    result = act(job_guests, run_dir, Node({"version": 1, "ok": False, "error": report, "left": []}), timeout=9)
    assert result["failed"]
    assert result["fault"] == "node"
    assert result["msg"] == "n1: bridge br0: not there (ip link add)"
    assert error(run_dir) == {**report, "what": "n1: bridge br0", "host": "n1"}


BAD_ANSWERS: dict[str, t.Any] = {
    "nothing": b"",
    "no JSON": b"Welcome to n1!\n{}",
    "a list": [],
    "no version": {"ok": True},
    "a later version": {**good(FACTS), "version": 2},
    "ok is a word": {**good(FACTS), "ok": "yes"},
    "no guest": good(),
    "a guest too many": good(FACTS, {**FACTS, "rank": 1, "name": "vn1-4"}),
    "another's rank": good({**FACTS, "rank": 1}),
    "the same rank twice": good(FACTS, FACTS),
    "another node's name": good({**FACTS, "name": "vn2-3"}),
    "a name with a suffix": good({**FACTS, "name": "vn1-3.evil"}),
    "a key too many": good({**FACTS, "ansible_facts": {}}),
    "the loopback address": good({**FACTS, "address": "127.0.0.1"}),
    "a multicast address": good({**FACTS, "address": "224.0.0.1"}),
    "no address": good({**FACTS, "address": "0.0.0.0"}),
    "half an address": good({**FACTS, "address": "1.2"}),
    "an address with a command": good({**FACTS, "address": "1.1.1.1;id"}),
    "guests is a word": {**good(FACTS), "guests": "vn1-3"},
    "too long": b"[" + b" " * (1 << 20) + b"]",
    "an error without words": {"version": 1, "ok": False},
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_answer_out_of_form_is_not_believed(run_dir: pathlib.Path, plan: JobPlan, answer: t.Any) -> None:
    result = act(job_guests, run_dir, Node(answer, status=1, complaint=b"trouble\x1b[31m\n"), timeout=9)
    assert result["failed"]
    assert "\x1b" not in result["msg"]
    assert error(run_dir)["fault"] == "unclear"
    assert not list(run_dir.glob("guests.*"))


def test_silent_program_is_said_with_its_last_line(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(b"", status=127, complaint=b"sh: 1: /opt/vtorque/bin/vtorque-node: not found\n")
    result = act(job_guests, run_dir, node, timeout=9)
    assert "not found" in result["msg"]
    assert "is vTorque installed on the node" in result["msg"]


def test_node_that_is_not_reached_blames_nobody(run_dir: pathlib.Path, plan: JobPlan) -> None:
    result = act(job_guests, run_dir, Gone(), timeout=9)
    assert "n1 was not reached: ssh: connect to host n1 port 22: Connection timed out" in result["msg"]
    assert error(run_dir)["fault"] == "unclear"


def test_node_that_falls_silent_is_told_of_though_ssh_says_nothing(run_dir: pathlib.Path, plan: JobPlan) -> None:
    result = act(job_guests, run_dir, Node(b"", status=255), timeout=9)
    assert "n1 was not reached: the connection broke off: the node stopped answering, or went down" in result["msg"]
    assert error(run_dir)["fault"] == "unclear"


def test_every_error_of_a_start_stays(run_dir: pathlib.Path) -> None:
    files.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    report = {"fault": "node", "what": "bridge br0", "why": "not there", "hint": "", "cause": "bridge"}
    bad = Node({"version": 1, "ok": False, "error": report, "left": []})
    act(job_guests, run_dir, Node(b"", others={"n2": bad}), hosts=["n1", "n2"], timeout=9)
    assert files.read_json(run_dir / "error.n2.json")["what"] == "n2: bridge br0"
    assert files.read_json(run_dir / "error.n1.json")["host"] == "n1"
    assert error(run_dir)["host"] in ("n1", "n2")


def test_host_without_a_part_is_refused(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(good(FACTS))
    assert "has no part" in act(job_guests, run_dir, node, host="n9", timeout=9)["msg"]
    assert node.requests == []


def test_no_plan_no_guests(run_dir: pathlib.Path) -> None:
    assert "there is no plan" in act(job_guests, run_dir, Node(good(FACTS)), timeout=9)["msg"]


def test_directory_must_be_this_starts(tmp_path: pathlib.Path) -> None:
    result = act(job_guests, tmp_path, Node(good(FACTS)), timeout=9)
    assert "is called 4711.head.2" in result["msg"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [({"VTORQUE_DEADLINE": "1060"}, 58.0), ({"VTORQUE_DEADLINE": "1060.5"}, 58.5)],
)
def test_wire_carries_seconds_that_are_left(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], seconds: float
) -> None:
    monkeypatch.setattr(job_guests.time, "monotonic", lambda: 1000.0)
    assert job_guests.remaining_s(None, environment) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0.5", "1e9", "nan"])
def test_without_time_nothing_is_asked(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("VTORQUE_DEADLINE", text)
    node = Node(good(FACTS))
    assert act(job_guests, run_dir, node)["failed"]
    assert node.requests == []


def test_peer_that_stays_silent_is_given_up(run_dir: pathlib.Path, plan: JobPlan, monkeypatch: t.Any) -> None:
    monkeypatch.setattr(job_guests, "NODE_ANSWER_MARGIN_S", 0.0)
    assert "gave no answer in time" in act(job_guests, run_dir, Node(good(FACTS), sleep=600), timeout=0.1)["msg"]


PR_GET_PDEATHSIG = 2
"""linux/prctl.h"""


def death_signal() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return number.value


def test_call_dies_with_ansible_and_nothing_else_does(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[int] = []
    really = node_connection.read_replies

    def heard(*args: t.Any, **more: t.Any) -> t.Any:
        during.append(death_signal())
        return really(*args, **more)

    monkeypatch.setattr(job_guests, "read_replies", heard)
    act(job_guests, run_dir, Node(good(FACTS)), timeout=9)
    assert during == [signal.SIGKILL] * 2
    assert death_signal() == 0


def test_call_is_not_begun_when_ansible_is_gone(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_guests.multiprocessing, "parent_process", lambda: types.SimpleNamespace(pid=os.getpid()))
    node = Node(good(FACTS))
    assert "ansible-playbook has ended" in act(job_guests, run_dir, node, timeout=9)["msg"]
    assert node.requests == []
    assert death_signal() == 0


@pytest.mark.parametrize("module", [job_guests, job_plan, job_record])
@pytest.mark.parametrize("args", [{"state": "nonsense"}, {"start": "one"}, {"unknown": 1}])
def test_arguments_are_checked_as_a_modules_are(
    run_dir: pathlib.Path, module: types.ModuleType, args: dict[str, t.Any]
) -> None:
    with pytest.raises(AnsibleActionFail):
        act(module, run_dir, **args)


HOST = {"address": "192.0.2.9", "host_key": KEYS[1].public}


def mixed(run_dir: pathlib.Path) -> JobPlan:
    """A plan of which n2 stays bare."""
    plan = make_plan("n1", "n2")
    bare = dataclasses.replace(plan.node_parts[1], guests=(), bare_slots=2)
    plan = dataclasses.replace(plan, node_parts=(plan.node_parts[0], bare))
    files.write(run_dir / "plan.json", plan.to_json())
    return plan


def test_bare_host_is_told_and_guests_are_told_of_it(run_dir: pathlib.Path) -> None:
    """After the guests, as often as the node file names it, with the key that it said."""
    mixed(run_dir)
    node = Node(good(FACTS), others={"n2": Node(good(bare=[HOST]))})
    result = act(job_guests, run_dir, node, hosts=["n1", "n2"], timeout=77)
    assert result["guests"] == {"n1": [SHOWN], "n2": []}
    assert node.asked("join") == ["n1", "n2"]
    maps = [form.from_dict(messages.JobMap, one) for one in node.requests if one["do"] == "join"]
    key = " ".join(KEYS[1].public.split()[:2])
    assert [one.hosts[1] for one in maps] == [messages.JobHost("n2", "192.0.2.9", 2, key, bare=True)] * 2
    gone = Node(good())
    act(job_guests, run_dir, gone, hosts=["n1", "n2"], state="absent", timeout=60)
    assert {one["node"]: one["bare_slots"] for one in gone.requests} == {"n1": 0, "n2": 2}
    assert not list(run_dir.glob("bare.*"))


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ([], "spoke of 0 bare hosts"),
        ([HOST, HOST], "spoke of 2 bare hosts"),
        ([{**HOST, "address": "127.0.0.1"}], "not the address of a bare host"),
        ([{**HOST, "address": FACTS["address"]}], "another's address"),
        ([{**HOST, "host_key": "AAAA\nvn1-3 ssh-rsa AAAA"}], "not of the form"),
        ([{**HOST, "surplus": 1}], "unknown key"),
    ],
)
def test_bare_host_answer_of_another_form_is_refused(
    run_dir: pathlib.Path, report: list[t.Any], message: str
) -> None:  # fmt: skip
    mixed(run_dir)
    node = Node(good(FACTS), others={"n2": Node(good(bare=report))})
    result = act(job_guests, run_dir, node, hosts=["n1", "n2"], timeout=77)
    assert message in result["msg"]
    assert node.asked("join") == []


def test_node_with_guests_says_nothing_of_a_bare_host(run_dir: pathlib.Path, plan: JobPlan) -> None:
    result = act(job_guests, run_dir, Node(good(FACTS, bare=[HOST])), timeout=77)
    assert "spoke of 1 bare hosts, where 0 was asked for" in result["msg"]


def test_bare_host_does_not_speak_for_the_image(run_dir: pathlib.Path) -> None:
    """It has booted none: two others that end alike are evidence all the same."""
    plan = make_plan("n1", "n2", "n3")
    bare = dataclasses.replace(plan.node_parts[2], guests=(), bare_slots=2)
    files.write(run_dir / "plan.json", dataclasses.replace(plan, node_parts=(*plan.node_parts[:2], bare)).to_json())
    report = {"fault": "unclear", "what": "a guest", "why": "panicked", "hint": "", "cause": "", "symptom": "panicked"}
    bad = {"version": 1, "ok": False, "error": report, "left": []}
    node = Node(bad, others={"n2": Node(bad), "n3": Node(good(bare=[HOST]))})
    act(job_guests, run_dir, node, hosts=["n1", "n2", "n3"], timeout=77)
    assert error(run_dir)["fault"] == "image"

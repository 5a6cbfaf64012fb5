# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of symptoms: what becomes of the job, and of the node."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict.decide import (
    LOOP_STARTS,
    LoopFault,
    Verdict,
    advice,
    another_may_do,
    decide,
    find_loop,
    gather,
    judge_replaced,
    may_be_braked,
    names_node,
    note_of,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from hypothesis import given, settings
from hypothesis import strategies as st

BRIDGE = errors.NodeFault("t1: bridge br0", "is missing on this node", cause="bridge", node="t1")


def job_at(start: int, *, interactive: bool = False, hosts: tuple[str, ...] = ("t1",)) -> BatchJob:
    """A job at a start."""
    return BatchJob(
        "7.th", "name", "alice", "fe", "alice", "alice", "R", "batch", hosts, start, "vtorque:abc", "", "/home/alice",
        0, 41, interactive, 3600, {}, "", {}, "",
    )  # fmt: skip


def node(name: str, states: str = "free", note: str = "", *, slots: int = 4, properties: str = "") -> BatchNode:
    """A node as the server tells of it."""
    return BatchNode(name, frozenset(states.split(",")), slots, 0, frozenset(filter(None, [properties])), note)


FREE = tuple(node(f"t{number}") for number in range(1, 6))


def verdict_on(error: errors.VTorqueError, start: int = 1, **changes: t.Any) -> Verdict:
    """A verdict on a batch job of t1, where all nodes are free."""
    known: dict[str, t.Any] = {"job": job_at(start), "nodes": FREE, "policy": Policy(), "node": "t1", **changes}
    return decide(error, **known)


@pytest.mark.parametrize(
    ("error", "start", "action", "offline"),
    [
        (errors.UserFault("img=x"), 1, "refuse", ""),
        (errors.UserFault("img=x"), 3, "refuse", ""),
        (errors.ImageFault("img=x"), 1, "refuse", ""),
        *((errors.NodeFault("x", cause=cause), 1, "requeue", "t1") for cause in errors.CAUSES),
        (BRIDGE, 2, "requeue", "t1"),
        (BRIDGE, 3, "hold", "t1"),
        (BRIDGE, 4, "requeue", "t1"),
        (BRIDGE, 6, "hold", "t1"),
        (errors.NodeFault("x"), 1, "requeue", ""),
        (errors.NodeFault("x"), 3, "hold", ""),
        (errors.NodeFault("x", cause="disk", node="inventory"), 1, "requeue", ""),
        (errors.NodeFault("x", cause="disk", node="t2"), 1, "requeue", ""),
        (errors.SiteFault("DHCP"), 1, "requeue", ""),
        (errors.SiteFault("DHCP"), 3, "hold", ""),
        (errors.VTorqueError("guest"), 2, "requeue", ""),
        (errors.VTorqueError("guest"), 3, "hold", ""),
        (errors.VTorqueError("guest"), 0, "hold", ""),
        (errors.ImpostorFault("guest"), 1, "hold", ""),
        (LoopFault("it"), 20, "hold", ""),
    ],
)
def test_batch_job(error: errors.VTorqueError, start: int, action: str, offline: str) -> None:
    verdict = verdict_on(error, start)
    assert (verdict.fault, verdict.action, verdict.offline) == (error.fault, action, offline)
    assert bool(verdict.note) == bool(offline)
    assert verdict.grave == isinstance(error, errors.ImpostorFault)


@pytest.mark.parametrize(
    ("error", "offline"),
    [
        (errors.UserFault("img=x"), ""), (errors.ImageFault("img=x"), ""), (BRIDGE, "t1"),
        (errors.SiteFault("DHCP"), ""), (errors.VTorqueError("guest"), ""), (errors.ImpostorFault("guest"), ""),
        (LoopFault("it"), ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("start", [1, 3])
def test_interactive_job_is_always_refused(error: errors.VTorqueError, offline: str, start: int) -> None:
    """A status other than 0 aborts it; its node may go offline all the same."""
    verdict = verdict_on(error, job=job_at(start, interactive=True))
    assert (verdict.action, verdict.offline) == ("refuse", offline)


@pytest.mark.parametrize(
    "error", [BRIDGE, errors.SiteFault("DHCP"), errors.VTorqueError("guest"), errors.ImpostorFault("guest")]
)
def test_silent_server_means_a_refusal_and_no_blame(error: errors.VTorqueError) -> None:
    assert verdict_on(error, job=None) == Verdict(error.fault, "refuse")


@pytest.mark.parametrize(("retries", "actions"), [(1, "hhhh"), (2, "rhrh"), (3, "rrhr")])
def test_bound_is_the_sites(retries: int, actions: str) -> None:
    policy = Policy(node_fault_retries=retries)
    verdicts = [verdict_on(errors.SiteFault("DHCP"), start, policy=policy) for start in (1, 2, 3, 4)]
    assert "".join(verdict.action[0] for verdict in verdicts) == actions
    assert {verdict.of for verdict in verdicts} == {retries}
    assert verdicts[3].tried == (1 if retries == 3 else retries)


OURS = "vtorque: disk: full (job 1.th)"
SPARE = "vtorque: spare"


@pytest.mark.parametrize(
    ("nodes", "changes", "action", "offline", "message", "grave"),
    [
        ((node("t1"), node("t2")), {}, "requeue", "t1", "", False),
        ((node("t1"), node("t2", note=OURS), *FREE[2:]), {}, "requeue", "t1", "", False),
        # the brake
        ((node("t1"), node("t2", note=OURS), node("t3", note=OURS), *FREE[3:]), {}, "hold", "", "2 of 5 nodes", True),
        ((node("t1"), node("t2", note=OURS), *FREE[2:]), {"offline_brake": "1"}, "hold", "", "1 of 5", True),
        ((node("t1"), node("t2", note=SPARE), *FREE[2:]), {"offline_brake": "1"}, "requeue", "t1", "", False),
        (FREE, {"offline_brake": "0"}, "hold", "", "sets no node offline", True),
        ((node("t1"), node("t2", note=OURS), *FREE[2:]), {"offline_brake": "40 %"}, "requeue", "t1", "", False),
        # the last one
        ((node("t1"), node("t2", "down")), {}, "hold", "", "last node", True),
        ((node("t1"), node("t2", "offline", "fan")), {}, "hold", "", "last node", True),
        ((node("t1"), node("t2", slots=0)), {}, "hold", "", "last node", True),
        ((node("t1"), node("t2", "job-exclusive")), {}, "requeue", "t1", "", False),
        ((node("t1"), node("t2")), {"vm_node_property": "vm"}, "hold", "", "last node", True),
        ((node("t1"), node("t2", properties="vm")), {"vm_node_property": "vm"}, "requeue", "t1", "", False),
        ((node("t1"),), {}, "hold", "", "last node", True),
        # what somebody else said
        ((node("t1", note="fan is loud"), node("t2")), {}, "hold", "", "fan is loud", True),
        ((node("t1", "down", "ERROR: prolog/epilog failed"), node("t2")), {}, "hold", "", "administrator", True),
        ((node("t1", "offline"), node("t2")), {}, "requeue", "", "by an administrator", False),
        ((node("t1", "offline", "fan"), node("t2")), {}, "requeue", "", "by an administrator", False),
        # what we said before
        ((node("t1", "offline", OURS), node("t2")), {}, "requeue", "", "offline already, by vTorque", False),
        ((node("t1", "free", OURS), node("t2", note=OURS), node("t3")), {}, "requeue", "t1", "", False),
        # names
        ((node("t1.site"), node("t2.site")), {}, "requeue", "t1.site", "", False),
        ((node("t10"), node("t2")), {}, "hold", "", "no nodes of that name", False),
        ((node("t1.a"), node("t1.b")), {}, "hold", "", "2 nodes of that name", False),
        (None, {}, "hold", "", "does not tell of its nodes", False),
    ],
)  # fmt: skip
def test_node_with_a_proved_fault(
    nodes: tuple[BatchNode, ...] | None, changes: dict[str, t.Any], action: str, offline: str, message: str, grave: bool
) -> None:
    """A job that would come back to it is held."""
    verdict = verdict_on(BRIDGE, nodes=nodes, policy=Policy(**changes))
    assert (verdict.action, verdict.offline, verdict.grave) == (action, offline, grave)
    assert message in " ".join(verdict.lines)
    assert bool(verdict.lines) == bool(message)


def test_sister_goes_offline_for_what_it_proved_itself() -> None:
    job = job_at(1, hosts=("t1", "t1", "t3.site"))
    fault = errors.NodeFault("t3: libvirt", "is dead", cause="libvirt", node="t3")
    assert verdict_on(fault, job=job).offline == "t3"
    assert verdict_on(errors.NodeFault("disk", "is full", cause="disk"), job=job).offline == "t1"


@pytest.mark.parametrize(
    ("error", "named"),
    [(BRIDGE, True), (errors.NodeFault("x"), False), (errors.SiteFault("x"), False), (errors.VTorqueError("x"), False)],
)
def test_only_a_cause_names_a_node(error: errors.VTorqueError, named: bool) -> None:
    assert names_node(error) is named
    if not named:
        assert verdict_on(error, nodes=None).action == "requeue"


@pytest.mark.parametrize(("start", "loop"), [(0, False), (1, False), (19, False), (20, True), (21, False), (40, True)])
def test_loop_that_is_not_ours_is_found_on_entry(start: int, loop: bool) -> None:
    found = find_loop(job_at(start))
    assert (found is not None) is loop
    assert found is None or f"{start} times" in found.what
    assert LOOP_STARTS == 20


LIBVIRT = errors.NodeFault("t2: libvirt", "is dead", cause="libvirt", node="t2")
PANIC = errors.GuestFault("the kernel of guest v panicked", "no root", "last lines", symptom="panicked")
ENDED = errors.GuestFault("guest v ended", "off", symptom="ended")
SILENT = errors.GuestFault("guest v was not ready within 120 s", "silence", symptom="silent")
UNREACHED = errors.VTorqueError("t2 was not reached", "No route to host")
STOPPED = errors.VTorqueError(f"t3: {errors.CANCELLED}", "by SIGTERM")


@pytest.mark.parametrize(
    ("by_node", "more", "fault", "what", "node"),
    [
        # one node alone is what it says
        ({"t1": BRIDGE}, {}, "node", "t1: bridge br0", "t1"),
        ({"t2": UNREACHED}, {}, "unclear", "t2 was not reached", ""),
        # what ends the job whatever its nodes are
        ({"t1": BRIDGE, "t2": errors.UserFault("quota")}, {}, "user", "quota", ""),
        ({"t1": BRIDGE, "t2": errors.ImageFault("digest")}, {}, "image", "digest", ""),
        ({"t1": errors.UserFault("quota"), "t2": errors.ImpostorFault("guest")}, {}, "impostor", "guest", ""),
        # a node's own proof before the site and what is unclear
        ({"t1": errors.SiteFault("DHCP"), "t2": LIBVIRT}, {}, "node", "t2: libvirt", "t2"),
        ({"t1": errors.VTorqueError("odd"), "t2": LIBVIRT}, {}, "node", "t2: libvirt", "t2"),
        ({"t1": errors.NodeFault("x", node="t1"), "t2": errors.SiteFault("DHCP")}, {}, "site", "DHCP", ""),
        ({"t1": errors.NodeFault("x", node="t1"), "t2": errors.VTorqueError("odd")}, {}, "node", "x", "t1"),
        # several proofs: the first that was told, but a sick mother superior blames nobody else
        ({"t2": LIBVIRT, "t1": BRIDGE}, {}, "node", "t2: libvirt", "t2"),
        ({"t2": LIBVIRT, "t1": BRIDGE}, {"superior": "t1.site"}, "node", "t1: bridge br0", "t1"),
        ({"t2": UNREACHED, "t1": BRIDGE}, {"superior": "t1"}, "node", "t1: bridge br0", "t1"),
        ({"t2": UNREACHED, "t3": UNREACHED}, {"superior": "t1"}, "unclear", "t2 was not reached", ""),
        # nobody proves anything of somebody else
        ({"t3": LIBVIRT}, {}, "node", "t2: libvirt", "t3"),
        ({"t1": errors.SiteFault("pool"), "t3": LIBVIRT}, {}, "site", "pool", ""),
        # who was told to stop only follows
        ({"t3": STOPPED, "t2": UNREACHED}, {}, "unclear", "t2 was not reached", ""),
        ({"t3": STOPPED}, {}, "unclear", STOPPED.what, ""),
        # the image
        ({"t1": PANIC, "t2": PANIC}, {}, "image", "the image boots on no node", ""),
        ({"t1": ENDED, "t2": ENDED, "t3": STOPPED}, {}, "image", "the image boots on no node", ""),
        ({"t1": SILENT, "t2": SILENT}, {}, "image", "the image boots on no node", ""),
        ({"t1": PANIC}, {}, "unclear", PANIC.what, ""),
        ({"t1": PANIC, "t2": STOPPED}, {}, "unclear", PANIC.what, ""),
        ({"t1": PANIC, "t2": ENDED}, {}, "unclear", PANIC.what, ""),
        ({"t1": PANIC, "t2": PANIC}, {"made": ("t3",)}, "unclear", PANIC.what, ""),
        ({"t1": PANIC, "t2": PANIC, "t3": UNREACHED}, {}, "unclear", PANIC.what, ""),
        ({"t1": PANIC, "t2": PANIC, "t3": errors.SiteFault("DHCP")}, {}, "site", "DHCP", ""),
        ({"t1": errors.ImageFault("digest")}, {"made": ("t2",)}, "unclear", "digest", ""),
    ],
)  # fmt: skip
def test_several_nodes_make_one_error(
    by_node: dict[str, errors.VTorqueError], more: dict[str, t.Any], fault: str, what: str, node: str
) -> None:
    found = gather(by_node, **more)
    assert (found.fault, getattr(found, "node", "")) == (fault, node)
    assert found.what.startswith(what)


def test_nobody_goes_offline_for_what_another_node_says_of_it() -> None:
    job = job_at(1, hosts=("t1", "t2", "t3"))
    assert verdict_on(gather({"t3": LIBVIRT}), job=job).offline == ""
    assert verdict_on(gather({"t2": LIBVIRT}), job=job).offline == "t2"


def test_one_node_a_start_is_blamed_and_the_others_are_told_of() -> None:
    job = job_at(1, hosts=("t1", "t2", "t3"))
    found = gather({"t2": LIBVIRT, "t1": BRIDGE, "t3": UNREACHED}, superior="t3")
    assert verdict_on(found, job=job).offline == "t2"
    assert (
        found.hint == "also failed: t1: bridge br0: is missing on this node; t3: t2 was not reached: No route to host"
    )
    many = gather({f"t{number}": errors.VTorqueError("x" * 500, hint="look") for number in range(9)})
    assert many.hint.startswith("look; also failed: t1: xxx")
    assert many.hint.endswith("...; t2: " + "x" * 157 + "...; t3: " + "x" * 157 + "... and 5 more")


def test_guests_symptom_crosses_a_connection() -> None:
    there = errors.error_from_dict(PANIC.to_dict())
    assert isinstance(there, errors.GuestFault)
    assert (there.symptom, there.hint) == ("panicked", "last lines")
    assert not isinstance(errors.error_from_dict({**PANIC.to_dict(), "symptom": "bored"}), errors.GuestFault)


REFUSED = errors.ImageFault("image x", "is no image")


@pytest.mark.parametrize(
    ("error", "refused", "changes", "action"),
    [
        (REFUSED, 0, {}, "refuse"),
        (REFUSED, 1, {}, "refuse"),
        (REFUSED, 2, {}, "hold"),
        (REFUSED, 900, {}, "hold"),
        (errors.UserFault("vcpus=99"), 900, {}, "refuse"),
        (errors.SiteFault("DHCP"), 900, {}, "requeue"),
        # a node whose configuration cannot be read knows no start, and refuses the fastest
        (errors.SiteFault("policy"), 1, {"job": None}, "refuse"),
        (errors.SiteFault("policy"), 2, {"job": None}, "hold"),
        (errors.UserFault("x"), 2, {"job": None}, "refuse"),
        (REFUSED, 900, {"job": job_at(1, interactive=True)}, "refuse"),
    ],
)
def test_node_that_refuses_member_after_member_of_an_array_holds_the_rest(
    error: errors.VTorqueError, refused: int, changes: dict[str, t.Any], action: str
) -> None:
    verdict = verdict_on(error, refused=refused, **changes)
    assert (verdict.action, verdict.offline) == (action, "")
    assert verdict.grave is (action == "hold")
    if action == "hold":
        assert verdict.lines == (
            f"t1 has turned {refused} members of this array away within a minute: it shall not eat the others",
        )


@pytest.mark.parametrize(
    ("error", "job", "asked"),
    [(REFUSED, job_at(1), True), (errors.SiteFault("x"), None, True), (errors.SiteFault("x"), job_at(1), False),
     (errors.UserFault("x"), job_at(1), False), (errors.UserFault("x"), None, False)],
)  # fmt: skip
def test_only_a_refusal_that_is_not_the_owners_counts(
    error: errors.VTorqueError, job: BatchJob | None, asked: bool
) -> None:
    assert may_be_braked(error, job) is asked


def test_advice_never_blames_the_job_for_the_site() -> None:
    (line,) = advice(errors.SiteFault("DHCP", "no answer"), "t1")
    assert line == "this is not a fault of the job: tell the administrator that it failed on t1"
    assert advice(errors.UserFault("vcpus=99", "at most 4"), "t1") == ()


def test_note_says_cause_words_and_job() -> None:
    assert note_of(BRIDGE, "t1", "7.th") == "vtorque: bridge: bridge br0: is missing on this node (job 7.th)"


NOTES = st.sampled_from(["", "", OURS, "fan", "vtorque is slow", "ERROR: prolog/epilog failed"])
STATES = st.sampled_from(["free", "free", "job-exclusive", "offline", "down", "down,offline", "unknown"])
NODES = st.lists(st.builds(lambda states, note: (states, note), STATES, NOTES), max_size=6).map(
    lambda facts: tuple(node(f"t{number}", *fact) for number, fact in enumerate(facts, 1))
)
ERRORS = st.one_of(
    st.sampled_from(
        [
            errors.UserFault("x"),
            errors.ImageFault("x"),
            errors.SiteFault("x"),
            errors.VTorqueError("x"),
            errors.ImpostorFault("x"),
        ]
    ),
    st.builds(
        lambda cause, name: errors.NodeFault("x", cause=cause, node=name),
        st.sampled_from([*errors.CAUSES, ""]),
        st.sampled_from(["", "t1", "t2", "t3"]),
    ),
)


@settings(deadline=None, max_examples=500)
@given(ERRORS, NODES, st.integers(0, 40), st.booleans(), st.integers(1, 5), st.sampled_from(["0", "1", "50 %"]))
def test_no_verdict_runs_a_job_in_circles_or_takes_a_site_down(
    error: errors.VTorqueError, nodes: tuple[BatchNode, ...], start: int, interactive: bool, retries: int, brake: str
) -> None:
    job = job_at(start, interactive=interactive, hosts=("t1", "t2"))
    policy = Policy(node_fault_retries=retries, offline_brake=brake)
    verdict = decide(error, job=job, nodes=nodes, policy=policy, node="t1")
    if verdict.action == "requeue":
        assert not interactive
        assert start % retries != 0
    if verdict.offline:
        assert isinstance(error, errors.NodeFault)
        assert error.cause
        (bad,) = [one for one in nodes if one.name == verdict.offline]
        assert bad.name == (error.node or "t1")
        assert not bad.offline
        assert bad.note in ("", OURS)
        others = [one for one in nodes if one is not bad]
        assert any(one.states <= {"free", "job-exclusive"} for one in others)
        assert sum(one.note == OURS for one in others) < (len(nodes) // 2 if brake == "50 %" else int(brake))
    elif isinstance(error, errors.NodeFault) and error.cause and error.node != "t3" and verdict.action == "requeue":
        assert any(one.name == (error.node or "t1") and one.offline for one in nodes)


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["t1", "t2", "t3", "t4"]), st.one_of(ERRORS, st.just(PANIC)), min_size=1),
    st.sampled_from(["", "t1", "t3"]),
    st.lists(st.sampled_from(["t5", "t6"]), max_size=2),
)
def test_whatever_nodes_say_one_is_blamed_at_most_and_by_itself(
    by_node: dict[str, errors.VTorqueError], superior: str, made: list[str]
) -> None:
    found = gather(by_node, superior=superior, made=made)
    if not isinstance(found, errors.NodeFault) or not found.cause:
        return
    output = by_node[found.node]
    assert isinstance(output, errors.NodeFault)
    assert output.cause == found.cause
    assert output.node in ("", found.node)
    assert not any(isinstance(error, (errors.UserFault, errors.ImpostorFault)) for error in by_node.values())
    sick = by_node.get(superior)
    if isinstance(sick, errors.NodeFault) and sick.cause and sick.node in ("", superior):
        assert found.node == superior


PAGE = templates.COLLECTION_DIR.parent / "docs/admin/verdicts.md"


@pytest.mark.parametrize("cause", errors.CAUSES)
def test_administrators_page_explains_the_note_of_each_cause(cause: str) -> None:
    assert note_of(errors.NodeFault("x", cause=cause), "t1", "7.th").startswith(f"vtorque: {cause}: ")
    assert f"| `vtorque: {cause}:` |" in PAGE.read_text(encoding="utf-8")


@settings(deadline=None)
@given(st.text(max_size=400), st.text(max_size=400))
def test_note_is_short_printable_and_whole_at_both_ends(what: str, why: str) -> None:
    note = note_of(errors.NodeFault(what, why, cause="disk"), "t1", "72[1].th")
    assert re.fullmatch(r"vtorque: disk: [A-Za-z0-9 ._:;,/()%+=@\[\]-]* \(job 72\[1\]\.th\)", note)
    assert len(note) <= 200


SILENT = errors.GuestFault("guest vt1-1", "was not ready in time", symptom="silent")
IMAGE = errors.ImageFault("image tiny@3", "is not what its record says")


@pytest.mark.parametrize(
    ("failed", "made", "may"),
    [
        ((BRIDGE,), (), True),
        ((errors.VTorqueError("t1 was not reached", "no route"),), (), True),
        ((errors.SiteFault("the pool", "is not mounted"),), (), True),
        ((SILENT,), (), True),
        ((SILENT, SILENT), (), False),
        ((SILENT, SILENT), ("t9",), True),
        ((IMAGE,), (), True),
        ((IMAGE, IMAGE), (), False),
        ((BRIDGE, IMAGE), (), True),
        ((errors.UserFault("quota"),), (), False),
        ((errors.UserFault("quota"), BRIDGE), (), False),
        ((errors.ImpostorFault("guest"),), (), False),
        ((errors.CheckpointFault("job"),), (), False),
        ((BRIDGE, errors.VTorqueError(f"t2: {errors.CANCELLED}")), (), False),
    ],
)
def test_another_node_is_tried_unless_it_would_meet_the_same(
    failed: tuple[errors.VTorqueError, ...], made: tuple[str, ...], may: bool
) -> None:
    by_node = {f"t{number}": error for number, error in enumerate(failed, 1)}
    assert another_may_do(f"t{len(failed)}", by_node, superior="t1", made=made) == may


@pytest.mark.parametrize(
    ("nodes", "offline", "lines"),
    [
        (FREE, "t1", ()),
        (None, "", ("t1 is not set offline: the batch server does not tell of its nodes",)),
        ((node("t1", note="rack 4"), *FREE[1:]), "", ("t1 is not set offline: it carries a note of an admin",)),
        ((node("t1", "offline", "vtorque: disk: full (job 6.th)"), *FREE[1:]), "", ("t1 is offline already, by vT",)),
        (FREE[:1], "", ("t1 is not set offline: it is the last node that takes jobs",)),
    ],
)
def test_node_that_was_replaced_is_noted_as_if_the_start_had_failed_and_its_job_goes_on(
    nodes: tuple[BatchNode, ...] | None, offline: str, lines: tuple[str, ...]
) -> None:
    error = errors.error_from_dict({**BRIDGE.to_dict(), "host": "t1"})
    verdict = judge_replaced(error, job=job_at(1), nodes=nodes, policy=Policy(offline_brake="9"), node="t1")
    assert verdict.action == "refuse"  # which asks the batch system for nothing
    assert verdict.offline == offline
    assert verdict.note == (note_of(BRIDGE, "t1", "7.th") if offline else "")
    assert [line[: len(begin)] for line, begin in zip(verdict.lines, lines, strict=True)] == list(lines)

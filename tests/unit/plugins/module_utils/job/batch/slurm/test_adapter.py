# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's answers, as recorded on 22.05.8, and what users write in them."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.shared.server_command import CommandRefused
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import adapter, answers, comment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.questions import one_job
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.vm_job import is_marked, vm_job_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.job_signals import CHECKPOINT, PARK

from ..contract import slurm_stand_in

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm"


def recorded(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def changed(file: str, number: int, facts: dict[str, t.Any]) -> bytes:
    """A recorded answer with other facts of one job."""
    answer = json.loads(recorded(file))
    next(form for form in answer["jobs"] if form["job_id"] == number).update(facts)
    return json.dumps(answer).encode()


def job(file: str, number: int, **facts: t.Any) -> BatchJob:
    return Recorder(changed(file, number, facts)).job(f"{number}.lab")


def test_job_that_runs_on_two_nodes_has_a_slot_a_processor() -> None:
    seen = job("squeue-running.json", 4)
    assert seen.slot_hosts == ("cn1", "cn1", "cn2", "cn2")
    assert (seen.state, seen.start_count, seen.resource_list["mem"]) == ("R", 1, "4096mb")
    assert (seen.name, seen.euser, seen.egroup, seen.queue) == ("two", "alice", "alice", "batch")
    assert not seen.interactive
    assert not seen.node_exclusive


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"tres_per_node": "gres:gpu:1,gres:tmp:5", "gres_detail": ["gpu:t4:1(IDX:0),tmp(CNT:5)", "gpu:t4:1(IDX:1)"]},
         {"devices": "gpu:1", "gres": "gpu:t4:1(IDX:0),tmp(CNT:5) gpu:t4:1(IDX:1)"}),
        ({"tres_per_job": "gres:gpu:t4:2"}, {"devices": "gpu:t4:2"}),
        ({"tres_per_node": "gres:tmp:5,gres:mps:50"}, {"devices": "mps:50"}),
        ({"tres_per_node": "gres:tmp:5", "gres_detail": ["tmp:5", "tmp:5"]}, {"gres": "tmp:5 tmp:5"}),
        ({"tres_per_node": "", "gres_detail": []}, {}),
        ({"tres_per_node": None, "gres_detail": None}, {}),
    ],
)  # fmt: skip
def test_devices_of_a_job_are_known_and_what_its_nodes_gave_it(facts: dict[str, t.Any], found: dict[str, str]) -> None:
    known = dict(job("squeue-running.json", 4, **facts).resource_list)
    assert {name: known[name] for name in ("devices", "gres") if name in known} == found


@pytest.mark.parametrize(
    ("gres", "granted"),
    [
        (["gpu:1(IDX:0)", "gpu:1(IDX:1)"], ("cn1/gpu/0", "cn2/gpu/1")),
        (["gpu:t4:3(IDX:0-1,3),nic:1(IDX:0)"], ("cn1/gpu/0", "cn1/gpu/1", "cn1/gpu/3", "cn1/nic/0")),
        (["tmp:5", "gpu:2(CNT:2)"], ()),
        ([], ()),
    ],
)
def test_devices_that_nodes_gave_have_their_indices(gres: list[str], granted: tuple[str, ...]) -> None:
    assert job("squeue-running.json", 4, gres_detail=gres).granted == granted


def test_batch_host_is_the_first_of_the_nodes() -> None:
    assert job("squeue-running.json", 4, batch_host="cn2").nodes == ("cn2", "cn1")


def test_core_with_two_processors_gives_both() -> None:
    assert job("squeue-running.json", 4, cpus=8).slot_hosts == ("cn1",) * 4 + ("cn2",) * 4


def test_job_with_a_node_alone_has_all_of_its_processors() -> None:
    seen = job("squeue-exclusive.json", 5)
    assert (seen.node_exclusive, seen.slot_hosts, seen.walltime_s) == (True, ("cn1", "cn1"), 300)


def test_name_and_comment_with_line_feeds_forge_nothing() -> None:
    seen = job("squeue-hostile.json", 1)
    assert (seen.state, seen.euser, seen.job_id) == ("R", "alice", "1.lab")
    assert seen.name == "n;$(id) b\n   JobId=7", "blanks at its end are not told"
    assert is_marked(seen)
    with pytest.raises(UserFault, match="cannot be read"):
        vm_job_of(seen)


HOSTILE = ('"}],"jobs":[{"job_id":4', "\\", "\n\n", "\x1b[2J", "x\n JobState=COMPLETED ", "\u00e9\u2028")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", ["name", "comment", "account", "command"])
def test_text_of_a_user_changes_nothing_but_itself(key: str, text: str) -> None:
    plain, hostile = job("squeue-running.json", 4), job("squeue-running.json", 4, **{key: text})
    names = ("state", "euser", "slot_hosts", "start_count", "queue", "hold_types")
    assert [getattr(hostile, name) for name in names] == [getattr(plain, name) for name in names]
    assert hostile.resource_list["mem"] == plain.resource_list["mem"]


def test_request_in_the_comment_is_the_jobs() -> None:
    wire = Request({"vcpus": 2}, {}).encode().partition(":")[2]
    data = base64.urlsafe_b64decode(wire + "=" * (-len(wire) % 4))
    seen = job("squeue-running.json", 4, comment=comment.pack(data))
    vm_job = vm_job_of(seen)
    assert vm_job is not None
    assert vm_job.request.values == {"vcpus": 2}
    assert is_marked(seen)


def test_job_without_our_comment_is_no_vm_job() -> None:
    seen = job("squeue-running.json", 4, comment="mine")
    assert vm_job_of(seen) is None
    assert not is_marked(seen)


def test_job_that_its_prolog_held_can_be_released_by_its_owner() -> None:
    seen = job("squeue-held.json", 1)
    assert (seen.state, seen.hold_types) == ("E", "u")
    assert job("squeue-held.json", 2).state == "H"


def test_job_that_its_prolog_queued_again_waits_and_is_at_its_next_start() -> None:
    assert job("squeue-requeued.json", 6).start_count == 2
    assert job("squeue-exclusive.json", 6).state == "Q"


@pytest.mark.parametrize(("code", "status"), [(0, 0), (37 << 8, 37), (9, 137), (15, 143)])
def test_exit_status_is_the_shells(code: int, status: int) -> None:
    assert job("squeue-exclusive.json", 4, exit_code=code).exit_status == status


def test_job_of_another_cluster_is_unknown() -> None:
    with pytest.raises(UnknownJob):
        Recorder(recorded("squeue-running.json")).job("4.other")


@pytest.mark.parametrize("facts", [{"restart_cnt": "x"}, {"cluster": "la b"}, {"priority": "9" * 12}])
def test_answer_of_another_form_is_a_fault(facts: dict[str, t.Any]) -> None:
    with pytest.raises(SiteFault):
        job("squeue-running.json", 4, **facts)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"jobs": 1}', b'{"jobs": [], "errors": [{}]}'])
def test_answer_that_is_none_is_a_fault(data: bytes) -> None:
    with pytest.raises(SiteFault):
        answers.parse_jobs(data)


def with_foreign(*others: t.Any) -> bytes:
    """The recorded answer, and other jobs than 4 of other forms in it."""
    answer = json.loads(recorded("squeue-running.json"))
    (own,) = (form for form in answer["jobs"] if form["job_id"] == 4)
    answer["jobs"] = [own, *(({**own, "job_id": 9} | one) if isinstance(one, dict) else one for one in others)]
    return json.dumps(answer).encode()


ODD: tuple[t.Any, ...] = (
    {"cluster": ""},
    {"cluster": None},
    {"job_id": None},
    {"job_id": "9"},
    {"job_state": 1},
    {"job_resources": 7},
    {"job_resources": {"nodes": "cn[1-"}},
    {"restart_cnt": []},
    {"name": 1},
    {"comment": ["vtorque:x"]},
    7,
    None,
)
"""Jobs of somebody else that are out of form."""


def test_name_with_a_byte_that_is_no_utf_8_concerns_nobody_else() -> None:
    data = with_foreign({"name": "NAME", "comment": "NAME"}).replace(b"NAME", b"a\xffb\x80")
    assert [one.name for one in answers.parse_jobs(data)] == ["two", "a\ufffdb\ufffd"]


@pytest.mark.parametrize("odd", ODD)
def test_job_of_somebody_else_that_is_out_of_form_concerns_nobody(odd: t.Any) -> None:
    data = with_foreign(odd)
    own, other = answers.parse_jobs(data)
    assert own.nodes == ("cn1", "cn2")
    assert other.state == "R"


@pytest.mark.parametrize(
    ("facts", "there"),
    [
        ({}, True),
        ({"nodes": "cn2"}, False),
        ({"nodes": "cn[1-9]"}, True),
        ({"job_state": "SUSPENDED"}, True),
        ({"job_state": "COMPLETING"}, True),
        ({"job_state": "A_STATE_OF_TOMORROW"}, True),
        ({"job_state": "PENDING"}, False),
        ({"job_state": "COMPLETED"}, False),
        ({"name": "a\n9 RUNNING", "comment": "cn1"}, True),
    ],
)
def test_jobs_of_a_node_are_asked_for_without_the_words_of_all_users(facts: dict[str, t.Any], there: bool) -> None:
    slurm = Recorder(with_foreign(facts))
    assert slurm.jobs("cn1") == {"4.lab", *(["9.lab"] if there else [])}
    assert not [command for command in slurm.asked if "--json" in command]


def test_node_that_slurm_spells_otherwise_is_asked_for_by_its_name() -> None:
    class Spells(Recorder):
        def _run(self, *command: str, subject: str = "") -> bytes:
            if "--json" in command:
                return recorded("sinfo-nodes.json")
            if "cn1.example.org" in command:
                raise CommandRefused("squeue", "status 1: Invalid node name cn1.example.org")  # recorded
            return super()._run(*command, subject=subject)

    assert Spells(recorded("squeue-running.json")).jobs("cn1.example.org") == {"4.lab"}


def test_own_cluster_that_cannot_be_read_is_the_sites_fault() -> None:
    with pytest.raises(SiteFault) as caught:
        job("squeue-running.json", 4, cluster="")
    assert not isinstance(caught.value, UnknownJob)


def test_nodes_are_described() -> None:
    one, other = answers.parse_nodes(recorded("sinfo-drained.json"))
    assert (one.name, one.slots, one.states, one.note, one.properties) == ("cn1", 2, {"free"}, "", {"vtorque"})
    assert other.offline
    assert other.states == {"offline"}
    assert other.note == "vtorque: bridge: x (job 7.th)"
    assert answers.parse_nodes(recorded("sinfo-nodes.json"))[0].states == {"job-exclusive"}


def test_nodes_are_asked_of_the_command_that_knows_json() -> None:
    class Older(adapter.Slurm):
        def _run(self, *command: str, subject: str = "") -> bytes:
            if command[0] == "scontrol":
                raise CommandRefused("scontrol", "status 1: scontrol: unrecognized option '--json'")  # 22.05.8
            return recorded("sinfo-nodes.json")

    class Newer(adapter.Slurm):
        def _run(self, *command: str, subject: str = "") -> bytes:
            assert command == ("scontrol", "-a", "show", "nodes", "--json")
            return recorded("24.11/nodes.json")

    assert [node.name for node in Older(pathlib.Path("/nowhere")).nodes()] == ["cn1", "cn2"]
    assert [node.name for node in Newer(pathlib.Path("/nowhere")).nodes()] == ["cn1", "cn2"]


def test_refusal_of_another_kind_is_not_asked_around() -> None:
    class Refusing(adapter.Slurm):
        def _run(self, *command: str, subject: str = "") -> bytes:
            raise CommandRefused("scontrol", "status 1: slurm_load_node error: Access/permission denied")

    with pytest.raises(CommandRefused, match="denied"):
        Refusing(pathlib.Path("/nowhere")).nodes()


class Recorder(adapter.Slurm):
    """Answers with a recorded file, and notes its orders."""

    def __init__(self, data: bytes) -> None:
        super().__init__(pathlib.Path("/nowhere"))
        self.data, self.orders = data, list[tuple[str, ...]]()
        self.asked: list[tuple[str, ...]] = []

    def _run(self, *command: str, subject: str = "") -> bytes:
        if command[0] == "squeue" or command[1] == "-d":
            self.asked.append(command)
            found = slurm_stand_in.answer(self.data, command)
            if found is None:
                raise UnknownJob(f"job {subject}", "Slurm's controller does not know it")
            return found
        self.orders.append(command)
        return b""


def test_job_is_queued_again_without_the_two_minutes_of_slurm() -> None:
    slurm = Recorder(recorded("squeue-running.json"))
    slurm.requeue("4.lab")
    assert slurm.orders == [("scontrol", "requeue", "4"), ("scontrol", "update", "jobid=4", "StartTime=now+30")]


@pytest.mark.parametrize("order", ["requeue", "requeuehold"])
def test_suspended_job_is_resumed_before_it_is_queued_again(order: str) -> None:
    """Slurm would keep its priority of 0 (tests/fixtures/slurm/24.11/one-job: i-14 is held by JobHeldAdmin)."""
    slurm = Recorder(changed("squeue-running.json", 4, {"job_state": "SUSPENDED"}))
    with contextlib.suppress(SiteFault):  # nobody plays the controller's part
        slurm.requeue("4.lab") if order == "requeue" else slurm.hold("4.lab")
    assert slurm.orders[:2] == [("scontrol", "resume", "4"), ("scontrol", order, "4")]


ORDERS: dict[str, t.Callable[[adapter.Slurm, str], object]] = {
    "requeue": adapter.Slurm.requeue,
    "comment": lambda slurm, job_id: slurm.comment(job_id, "vtorque: held"),
    "delete": adapter.Slurm.delete,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("array", "member", "name"), [(4, 3, "4_3"), (4, 0, "4_0"), (2, 1, "2_1"), (0, None, "4")])
def test_order_means_one_member_of_an_array(order: str, array: int, member: int | None, name: str) -> None:
    """The array's own number, which its last member keeps, would mean all of them."""
    slurm = Recorder(changed("squeue-running.json", 4, {"array_job_id": array, "array_task_id": member}))
    ORDERS[order](slurm, "4.lab")
    arguments = {word.removeprefix("jobid=") for command in slurm.orders for word in command}
    assert name in arguments
    assert arguments & {"4", "4_3", "4_0", "2_1"} == {name}
    assert all({name, f"jobid={name}"} & set(command) for command in slurm.orders)
    assert slurm.release_command("4.lab") == f"scontrol release {name}"


def test_hold_means_one_member_of_an_array() -> None:
    slurm = Recorder(changed("squeue-running.json", 4, {"array_job_id": 4, "array_task_id": 3}))
    with pytest.raises(SiteFault, match="is not held"):
        slurm.hold("4.lab")
    assert slurm.orders == [("scontrol", "requeuehold", "4_3")]


def test_owner_asks_for_a_checkpoint_or_a_suspension_by_a_signal_to_the_shell_alone() -> None:
    slurm = Recorder(changed("squeue-running.json", 4, {"array_job_id": 4, "array_task_id": 3}))
    slurm.request_checkpoint("4.lab")
    slurm.request_checkpoint("4.lab", park=True)
    assert slurm.orders == [
        ("scancel", "--batch", f"--signal={CHECKPOINT}", "4_3"),
        ("scancel", "--batch", f"--signal={PARK}", "4_3"),
    ]


def test_job_that_is_parked_is_held_by_the_same_order() -> None:
    slurm = Recorder(changed("squeue-running.json", 4, {}))
    with pytest.raises(SiteFault, match="is not held"):  # nobody plays the controller's part
        slurm.park("4.lab")
    assert slurm.orders == [("scontrol", "requeuehold", "4")]


def test_job_without_room_is_suspended_again() -> None:
    slurm = Recorder(changed("squeue-running.json", 4, {"job_state": "SUSPENDED"}))
    slurm.suspend("4.lab")
    assert slurm.orders == [("scontrol", "suspend", "4")]
    with pytest.raises(SiteFault, match="is not suspended"):
        Recorder(changed("squeue-running.json", 4, {})).suspend("4.lab")


def test_release_is_named_also_where_the_controller_is_silent() -> None:
    assert Recorder(b'{"jobs": []}').release_command("4.lab") == "scontrol release 4"


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING", "COMPLETED"])
def test_job_that_its_owner_has_cancelled_is_neither_queued_again_nor_held(state: str) -> None:
    slurm = Recorder(changed("squeue-running.json", 4, {"job_state": state}))
    for order in (slurm.requeue, slurm.hold):
        with pytest.raises(SiteFault, match="does not run any more"):
            order("4.lab")
    assert slurm.orders == []


def test_settings_of_the_controller_are_read() -> None:
    slurm = Recorder(b"")
    slurm._run = lambda *_command, **_subject: recorded("config.txt")  # type: ignore[method-assign]
    settings = slurm.configuration()
    assert (settings["BatchStartTimeout"], settings["PrologFlags"]) == ("360 sec", "Alloc,Contain")


class Asked(adapter.Slurm):
    """What squeue says of one job, or why it says nothing."""

    def __init__(self, answer: str | SiteFault) -> None:
        super().__init__(pathlib.Path("/nowhere"))
        self.answer = answer

    def _run(self, *command: str, subject: str = "") -> bytes:
        assert command == one_job.question(one_job.WHO, "9")
        if isinstance(self.answer, SiteFault):
            raise self.answer
        found = ""
        for line in self.answer.splitlines():
            known = dict(zip(("JobID", "State", "RestartCnt"), line.split(), strict=True))
            found += "".join(known.get(field, "").ljust(width) for field, width in one_job.WHO.items()) + "\n"
        return found.encode()


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("9                   RUNNING             0           \n", "wanted"),
        ("9                   CONFIGURING         0           \n", "wanted"),
        ("8                   CANCELLED           0           \n9 RUNNING 0\n", "wanted"),
        ("9                   SUSPENDED           0           \n", "suspended"),
        ("9                   SUSPENDED           1           \n", "given up"),
        ("9                   COMPLETING          0           \n", "given up"),
        ("9                   CANCELLED           0           \n", "given up"),
        ("9                   PENDING             1           \n", "given up"),
        ("9                   RUNNING             1           \n", "given up"),
        ("", "wanted"),
        ("9 A_STATE_OF_TOMORROW 0\n", "wanted"),
        ("9 CANCELLED CANCELLED\n", "wanted"),
        (UnknownJob("job 9", "Slurm's controller does not know it"), "given up"),
        (SiteFault("squeue", "Slurm's controller cannot be reached"), "wanted"),
    ],
)
def test_start_is_given_up_only_by_the_controllers_clear_word(answer: str | SiteFault, state: str) -> None:
    assert Asked(answer).start_state("9.lab", 1) == state


@pytest.mark.parametrize(
    ("limit", "seconds", "given_s", "order"),
    [
        (5, 61.0, 120, "TimeLimit=+2"),
        (5, 0.4, 60, "TimeLimit=+1"),
        (5, 1e9, 3600, "TimeLimit=+60"),
        (None, 61.0, 0, ""),
        (365 * 24 * 60, 61.0, 0, ""),
        (0xFFFFFFFF, 61.0, 0, ""),
    ],
)
def test_time_of_a_start_is_given_back_to_a_limit_alone(
    limit: int | None, seconds: float, given_s: int, order: str
) -> None:
    facts = {"time_limit": limit, "array_job_id": 4, "array_task_id": 3}
    slurm = Recorder(changed("squeue-running.json", 4, facts))
    assert slurm.give_back_time(slurm.job("4.lab"), seconds) == given_s
    assert slurm.orders == ([("scontrol", "update", "jobid=4_3", order)] if order else [])


WORDS = ("vtorque: this job did not run: libvirt is away (try 1 of 3)", "  the job is tried again")


@pytest.mark.parametrize(
    ("facts", "held", "order"),
    [
        ({}, False, ("update", "jobid=4", "admincomment=vtorque: this job did not run: libvirt is away (try 1 of 3)")),
        ({"admin_comment": "vtorque: older"}, False, ("update", "jobid=4")),
        ({"admin_comment": "ask Bob before you touch this"}, False, None),
        ({}, True, None),
        ({"batch_flag": False}, False, ("notify", "4", " ".join(" ".join(WORDS).split()))),
    ],
)
def test_owner_reads_why_a_start_ended(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, t.Any], held: bool, order: tuple[str, ...] | None
) -> None:
    """An administrator's own word on the job stays."""
    appended: list[str] = []
    monkeypatch.setattr(adapter.output_file, "append", lambda _job, path, _lines, **_how: appended.append(path))
    slurm = Recorder(changed("squeue-running.json", 4, facts))
    slurm.notify_owner(slurm.job("4.lab"), WORDS, held=held)
    assert [command[1 : len(order or ()) + 1] for command in slurm.orders] == ([order] if order else [])
    assert appended == ([] if "batch_flag" in facts else ["/home/alice/slurm-4.out"])


def test_silent_controller_keeps_nobody_from_the_output_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_silent(self: adapter.Slurm, *command: str, subject: str = "") -> bytes:
        raise SiteFault("squeue", "Slurm's controller cannot be reached")

    appended: list[str] = []
    monkeypatch.setattr(adapter.output_file, "append", lambda _job, path, _lines, **_how: appended.append(path))
    slurm = Recorder(recorded("squeue-running.json"))
    job = slurm.job("4.lab")
    monkeypatch.setattr(Recorder, "_run", is_silent)
    slurm.notify_owner(job, WORDS, held=False)
    assert appended == ["/home/alice/slurm-4.out"]

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions of the job's playbooks, over a connection that answers as a node would."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import sys
import types
import typing as t
from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.mikelangelo.vtorque.plugins.action import job_guests, job_plan, job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import guestspec, records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.kept import keep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils import early_node

JOB = "4711.head"
START = 2
OWNER = guestspec.Owner(user="alice", uid=1234, gid=1234, group="domain users", home="/home/alice", shell="/bin/bash")
FACTS = {"rank": 0, "name": "vn1-3", "mac": "52:54:00:00:01:03", "address": "192.0.2.17", "timings_s": {"ready": 3.2}}
KEYS = {rank: make_key(f"guest-{rank}@test") for rank in range(2)}
JOB_KEY = make_key("job@test")


def guest(rank: int) -> guestspec.GuestSpec:
    return guestspec.GuestSpec(
        rank=rank, index=0, image="tiny@1", distro="debian", arch="x86_64", vcpus=1, ram_mib=256,
        hypervisor="qemu", fs_type="sharedfs", host_key=KEYS[rank], authorized_key=JOB_KEY.public,
    )  # fmt: skip


def make_plan(*nodes: str, ram_mib: int = 256) -> JobPlan:
    parts = tuple(
        guestspec.NodePart(
            version=1,
            do="present",
            job_id=JOB,
            start=START,
            node=node,
            timeout_s=100.0,
            owner=OWNER,
            guests=(dataclasses.replace(guest(rank), ram_mib=ram_mib),),
        )
        for rank, node in enumerate(nodes)
    )
    return JobPlan(
        version=1, job_id=JOB, start=START, mother_superior=nodes[0], owner=OWNER, user_shell="", job_key=JOB_KEY,
        node_parts=parts,
    )  # fmt: skip


class Node:
    """A connection to a node whose `vtorque-node` gives an answer; it remembers what it was asked."""

    transport = "local"

    def __init__(self, answer: t.Any = None, *, status: int = 0, complaint: bytes = b"") -> None:
        self.answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.status = status
        self.complaint = complaint
        self.commands: list[str] = []
        self.requests: list[dict[str, t.Any]] = []
        self._shell = types.SimpleNamespace(tmpdir=None)

    def exec_command(self, cmd: str, in_data: bytes, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        self.commands.append(cmd)
        self.requests.append(json.loads(in_data))
        return self.status, self.answer, self.complaint


class Gone(Node):
    """A node that is not there."""

    def exec_command(self, cmd: str, in_data: bytes, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        raise AnsibleConnectionFailure("Connection timed out")


def good(*guests: dict[str, t.Any], **others: t.Any) -> dict[str, t.Any]:
    return {"version": 1, "ok": True, "guests": list(guests), "removed": [], "left": [], **others}


@pytest.fixture
def run_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "run" / "jobs" / f"{JOB}.{START}"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def plan(run_dir: pathlib.Path) -> JobPlan:
    made = make_plan("n1")
    records.write(run_dir / "plan.json", made.to_json())
    return made


def act(
    module: types.ModuleType, run_dir: pathlib.Path, node: Node | None = None, *, host: str = "n1", check: bool = False,
    **args: t.Any,
) -> dict[str, t.Any]:  # fmt: skip
    """Run an action as Ansible does, and return its result."""
    task = mock.MagicMock(
        args={"job_id": JOB, "start": START, "run_dir": str(run_dir), **args}, check_mode=check, diff=True, async_val=0
    )
    action = module.ActionModule(
        task=task, connection=node or Node(), play_context=mock.MagicMock(), loader=mock.MagicMock(),
        templar=mock.MagicMock(), shared_loader_obj=None,
    )  # fmt: skip
    action._early_needs_tmp_path = lambda: False
    result: dict[str, t.Any] = action.run(task_vars={"inventory_hostname": host})
    assert not any(key in json.dumps(result) for key in ("PRIVATE KEY", KEYS[0].private[60:100], "ssh-ed25519"))
    return result


def error(run_dir: pathlib.Path) -> dict[str, t.Any]:
    return records.read_json(run_dir / "error.json")


def test_a_node_is_asked_once_for_its_own_part(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(good(FACTS))
    result = act(job_guests, run_dir, node, timeout=77)
    assert node.commands == ["/opt/vtorque/bin/vtorque-node"]
    assert guestspec.from_dict(guestspec.NodePart, node.requests[0]) == dataclasses.replace(
        plan.parts["n1"], timeout_s=77.0
    )
    shown = {"rank": 0, "name": "vn1-3", "mac": "52:54:00:00:01:03", "address": "192.0.2.17"}
    assert result["changed"]
    assert result["guests"] == [shown]
    assert result["diff"] == {"before": [], "after": [shown]}


def test_guests_that_are_there_are_no_change(run_dir: pathlib.Path, plan: JobPlan) -> None:
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)
    again = act(job_guests, run_dir, Node(good({**FACTS, "timings_s": {"ready": 0.1}})), timeout=77)
    assert not again["changed"]
    assert again["diff"]["before"] == again["diff"]["after"]


def test_check_mode_asks_nobody(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(good(FACTS))
    result = act(job_guests, run_dir, node, check=True, timeout=77)
    assert node.commands == []
    assert result["changed"]
    assert result["diff"] == {"before": [], "after": [{"rank": 0}]}
    assert [path.name for path in run_dir.iterdir()] == ["plan.json"]
    act(job_guests, run_dir, node, timeout=77)
    assert not act(job_guests, run_dir, node, check=True, timeout=77)["changed"]
    assert act(job_guests, run_dir, node, check=True, timeout=77, state="absent")["changed"]


EARLY = f"import sys; sys.stdin.read(); print({json.dumps({'version': 1, 'ok': True, 'guests': [FACTS]})!r})"


@pytest.mark.parametrize(
    ("program", "transport", "asked"),
    [(EARLY, "local", 0), (EARLY, "ssh", 1), ("", "local", 1)],
    ids=["it is asked", "it is not another node's", "it has ended"],
)
def test_a_node_program_that_was_begun_early_is_asked_instead_of_a_new_one(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch, program: str, transport: str, asked: int
) -> None:
    monkeypatch.setenv(early_node.VARIABLE, "")
    process = early_node.begin([sys.executable, "-c", program])
    begun = early_node.find(os.environ)
    assert begun is not None
    if not program:
        process.wait(timeout=60)
    node = Node(good(FACTS))
    node.transport = transport
    result = act(job_guests, run_dir, node, timeout=77)
    os.close(begun.socket)
    os.close(begun.complaint)
    process.wait(timeout=60)
    assert [guest["name"] for guest in result["guests"]] == ["vn1-3"]
    assert len(node.commands) == asked


def test_a_whole_playbook_can_be_checked_before_there_is_a_plan(run_dir: pathlib.Path) -> None:
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


def test_what_is_left_is_an_error(run_dir: pathlib.Path) -> None:
    result = act(job_guests, run_dir, Node(good(left=["domain vn1-3"])), state="absent", timeout=60)
    assert result["failed"]
    assert "domain vn1-3" in result["msg"]
    assert error(run_dir)["fault"] == "node"


def test_the_nodes_own_error_keeps_its_class(run_dir: pathlib.Path, plan: JobPlan) -> None:
    told = {"fault": "node", "what": "bridge br0", "why": "not there", "hint": "ip link add", "cause": "bridge"}
    result = act(job_guests, run_dir, Node({"version": 1, "ok": False, "error": told, "left": []}), timeout=9)
    assert result["failed"]
    assert result["fault"] == "node"
    assert result["msg"] == "n1: bridge br0: not there (ip link add)"
    assert error(run_dir) == {**told, "what": "n1: bridge br0", "host": "n1"}


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
def test_an_answer_out_of_form_is_not_believed(run_dir: pathlib.Path, plan: JobPlan, answer: t.Any) -> None:
    result = act(job_guests, run_dir, Node(answer, status=1, complaint=b"trouble\x1b[31m\n"), timeout=9)
    assert result["failed"]
    assert "\x1b" not in result["msg"]
    assert error(run_dir)["fault"] == "unclear"
    assert not list(run_dir.glob("guests.*"))


def test_a_silent_program_is_said_with_its_last_line(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(b"", status=127, complaint=b"sh: 1: /opt/vtorque/bin/vtorque-node: not found\n")
    result = act(job_guests, run_dir, node, timeout=9)
    assert "not found" in result["msg"]
    assert "is vTorque installed on the node" in result["msg"]


def test_a_node_that_is_not_reached_blames_nobody(run_dir: pathlib.Path, plan: JobPlan) -> None:
    result = act(job_guests, run_dir, Gone(), timeout=9)
    assert "n1 was not reached" in result["msg"]
    assert error(run_dir)["fault"] == "unclear"


def test_the_first_error_of_a_start_stays(run_dir: pathlib.Path) -> None:
    records.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    act(job_guests, run_dir, Gone(), host="n2", timeout=9)
    act(job_guests, run_dir, Node(b""), host="n1", timeout=9)
    assert error(run_dir)["host"] == "n2"
    assert records.read_json(run_dir / "error.n1.json")["host"] == "n1"


def test_a_host_without_a_part_is_refused(run_dir: pathlib.Path, plan: JobPlan) -> None:
    node = Node(good(FACTS))
    assert "has no part" in act(job_guests, run_dir, node, host="n9", timeout=9)["msg"]
    assert node.commands == []


def test_no_plan_no_guests(run_dir: pathlib.Path) -> None:
    assert "there is no plan" in act(job_guests, run_dir, Node(good(FACTS)), timeout=9)["msg"]


def test_the_directory_must_be_this_starts(tmp_path: pathlib.Path) -> None:
    result = act(job_guests, tmp_path, Node(good(FACTS)), timeout=9)
    assert "is called 4711.head.2" in result["msg"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [({"VTORQUE_DEADLINE": "1060"}, 58.0), ({"VTORQUE_DEADLINE": "1060.5"}, 58.5)],
)
def test_the_wire_carries_seconds_that_are_left(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], seconds: float
) -> None:
    monkeypatch.setattr(job_guests.time, "time", lambda: 1000.0)
    assert job_guests.time_left_s(None, environment) == seconds


@pytest.mark.parametrize("text", ["", "soon", "999", "1e9", "nan"])
def test_without_time_nothing_is_asked(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("VTORQUE_DEADLINE", text)
    node = Node(good(FACTS))
    assert act(job_guests, run_dir, node)["failed"]
    assert node.commands == []


def test_a_peer_that_stays_silent_is_given_up(run_dir: pathlib.Path, plan: JobPlan, monkeypatch: t.Any) -> None:
    class Silent(Node):
        def exec_command(self, cmd: str, in_data: bytes, sudoable: bool = True) -> tuple[int, bytes, bytes]:
            os.read(os.pipe()[0], 1)  # a pipe into which nobody writes: only a signal ends this
            return 0, b"", b""

    monkeypatch.setattr(job_guests, "MARGIN_S", 0.0)
    assert "gave no answer within" in act(job_guests, run_dir, Silent(), timeout=0.1)["msg"]


def death_signal() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(job_guests.PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    return number.value


def test_a_call_dies_with_ansible_and_nothing_else_does(run_dir: pathlib.Path, plan: JobPlan) -> None:
    during: list[int] = []

    class Watched(Node):
        def exec_command(self, cmd: str, in_data: bytes, sudoable: bool = True) -> tuple[int, bytes, bytes]:
            during.append(death_signal())
            return super().exec_command(cmd, in_data, sudoable)

    act(job_guests, run_dir, Watched(good(FACTS)), timeout=9)
    assert during == [signal.SIGKILL]
    assert death_signal() == 0


def test_a_call_is_not_begun_when_ansible_is_gone(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_guests.multiprocessing, "parent_process", lambda: types.SimpleNamespace(pid=os.getpid()))
    node = Node(good(FACTS))
    assert "ansible-playbook has ended" in act(job_guests, run_dir, node, timeout=9)["msg"]
    assert node.commands == []
    assert death_signal() == 0


@pytest.mark.parametrize("module", [job_guests, job_plan, job_record])
@pytest.mark.parametrize("args", [{"state": "nonsense"}, {"start": "one"}, {"unknown": 1}])
def test_arguments_are_checked_as_a_modules_are(
    run_dir: pathlib.Path, module: types.ModuleType, args: dict[str, t.Any]
) -> None:
    with pytest.raises(AnsibleActionFail):
        act(module, run_dir, **args)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> records.ProcessId:
    """The process that becomes the job's shell: this one."""
    me = records.ProcessId.of(os.getpid())
    monkeypatch.setenv("VTORQUE_SHELL", str(me))
    return me


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "records")


@pytest.fixture
def made(run_dir: pathlib.Path, plan: JobPlan) -> None:
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)


@pytest.mark.usefixtures("made")
def test_the_shell_finds_its_record(run_dir: pathlib.Path, plan: JobPlan, shell: t.Any, kept: str) -> None:
    result = act(job_record, run_dir, records_dir=kept)
    assert result["changed"]
    link = run_dir.parents[1] / "shells" / str(shell)
    ready = records.ReadyRecord.from_dict(records.read_json(link.resolve() / "ready.json"))
    assert ready.shell == shell
    assert ready.boot_id == records.boot_id()
    assert ready.user == "alice"
    assert ready.guests == (records.ReadyGuest(0, "vn1-3", "n1", "192.0.2.17", vcpus=1),)
    key = " ".join(KEYS[0].public.split()[:2])
    assert (run_dir / "known_hosts").read_text() == f"192.0.2.17 {key}\nvn1-3 {key}\n"
    assert (run_dir / "job_key").read_text() == plan.job_key.private
    assert (run_dir / "plan.json").stat().st_mode & 0o777 == 0o400


@pytest.mark.usefixtures("made")
def test_the_record_of_the_job_outlives_it(run_dir: pathlib.Path, shell: t.Any, kept: str) -> None:
    act(job_record, run_dir, records_dir=kept)
    act(job_guests, run_dir, Node(good(removed=["domain vn1-3"])), state="absent", timeout=60)
    act(job_record, run_dir, records_dir=kept, state="absent")
    record = records.read_json(pathlib.Path(kept) / f"{JOB}.{START}" / "record.json")
    assert record["guests"][0]["name"] == "vn1-3"
    assert record["guests"][0]["seconds"] == {"ready": 3.2}
    assert list(record["phases"]) == ["present.n1", "record", "absent.n1"]
    assert record["ended"]
    assert "PRIVATE" not in json.dumps(record)


@pytest.mark.usefixtures("made")
def test_ready_twice_is_no_change(run_dir: pathlib.Path, shell: t.Any, kept: str) -> None:
    act(job_record, run_dir, records_dir=kept)
    assert not act(job_record, run_dir, records_dir=kept)["changed"]


@pytest.mark.usefixtures("made")
def test_check_mode_writes_no_record(run_dir: pathlib.Path, shell: t.Any, kept: str) -> None:
    before = sorted(path.name for path in run_dir.iterdir())
    assert act(job_record, run_dir, records_dir=kept, check=True)["changed"]
    assert sorted(path.name for path in run_dir.iterdir()) == before
    assert not pathlib.Path(kept).exists()
    act(job_record, run_dir, records_dir=kept)
    assert not act(job_record, run_dir, records_dir=kept, check=True)["changed"]
    assert act(job_record, run_dir, records_dir=kept, check=True, state="absent")["changed"]
    assert (run_dir / "ready.json").exists()


@pytest.mark.usefixtures("made")
def test_absent_takes_everything_back_once(run_dir: pathlib.Path, shell: t.Any, kept: str) -> None:
    act(job_record, run_dir, records_dir=kept)
    gone = act(job_record, run_dir, records_dir=kept, state="absent")
    assert gone["changed"]
    assert gone["diff"]["after"] == []
    assert list(run_dir.iterdir()) == []
    assert list((run_dir.parents[1] / "shells").iterdir()) == []
    assert not act(job_record, run_dir, records_dir=kept, state="absent")["changed"]


def test_a_job_with_a_guest_missing_is_not_ready(run_dir: pathlib.Path, shell: t.Any, kept: str) -> None:
    records.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)
    assert "1 of 2 guests are known" in act(job_record, run_dir, records_dir=kept)["msg"]
    assert not (run_dir / "job_key").exists()
    assert not (run_dir.parents[1] / "shells").exists()


def test_two_guests_with_one_address_are_refused(run_dir: pathlib.Path, shell: t.Any, kept: str) -> None:
    records.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)
    act(
        job_guests,
        run_dir,
        Node(good({**FACTS, "rank": 1, "name": "vn2-0", "mac": "52:54:00:00:02:00"})),
        host="n2",
        timeout=9,
    )
    assert "2 guests have the address 192.0.2.17" in act(job_record, run_dir, records_dir=kept)["msg"]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("text", ["", "1", "1.2.3", "../../etc/passwd", "4194304.1", "1.1"])
def test_only_a_living_shell_gets_a_record(run_dir: pathlib.Path, kept: str, monkeypatch: t.Any, text: str) -> None:
    monkeypatch.setenv("VTORQUE_SHELL", text)
    assert act(job_record, run_dir, records_dir=kept)["failed"]
    assert not (run_dir / "ready.json").exists()
    assert error(run_dir)["what"]


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> types.SimpleNamespace:
    """What the plan is made from; `.plan` is what `make_plan` gives, `.start` what the server says."""
    world = types.SimpleNamespace(plan=make_plan("n1"), start=START, fault=None)
    aux = tmp_path / "torque" / "aux"
    aux.mkdir(parents=True)
    (aux / JOB).write_text("n1\n")
    site = types.SimpleNamespace(
        torque_home=str(tmp_path / "torque"), vm_img_dir=str(tmp_path), prologue_timeout=270
    )  # fmt: skip

    def plan_it(*_args: t.Any, node_file: str, **_others: t.Any) -> JobPlan:
        assert node_file == "n1\n"
        if world.fault:
            raise world.fault
        return t.cast(JobPlan, world.plan)

    server = types.SimpleNamespace(job=lambda job_id: types.SimpleNamespace(start_count=world.start))
    monkeypatch.setattr(job_plan.site_policy, "load", lambda path: site)
    monkeypatch.setattr(job_plan, "open_batch", lambda policy: server)
    monkeypatch.setattr(job_plan, "offers_of", lambda job, policy: None)
    monkeypatch.setattr(job_plan, "make_plan", plan_it)
    return world


def test_the_plan_is_for_root_alone(run_dir: pathlib.Path, planning: t.Any) -> None:
    result = act(job_plan, run_dir)
    assert result["changed"]
    assert result["nodes"] == ["n1"]
    assert result["guests"] == 1
    assert (run_dir / "plan.json").stat().st_mode & 0o777 == 0o400
    assert JobPlan.from_json((run_dir / "plan.json").read_text()) == planning.plan


def test_what_the_prologue_was_told_is_not_asked_again(
    run_dir: pathlib.Path, planning: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"job_id": JOB, "start_count": START, "exec_host": ("n1",), "variables": {}, "resource_list": {}}
    names = [field.name for field in dataclasses.fields(BatchJob)]
    keep(BatchJob(**{name: told.get(name, "") for name in names}), run_dir)
    monkeypatch.setattr(job_plan, "open_batch", lambda policy: pytest.fail("the server was asked"))
    assert act(job_plan, run_dir)["nodes"] == ["n1"]


def test_a_plan_that_says_the_same_keeps_its_keys(run_dir: pathlib.Path, planning: t.Any) -> None:
    act(job_plan, run_dir)
    first = (run_dir / "plan.json").read_text()
    planning.plan = dataclasses.replace(planning.plan, job_key=make_key("another@test"))
    assert not act(job_plan, run_dir)["changed"]
    assert (run_dir / "plan.json").read_text() == first


def test_a_plan_that_says_something_else_is_shown(run_dir: pathlib.Path, planning: t.Any) -> None:
    act(job_plan, run_dir)
    planning.plan = make_plan("n1", ram_mib=512)
    again = act(job_plan, run_dir)
    assert [again["diff"][side]["n1"][0]["ram_mib"] for side in ("before", "after")] == [256, 512]


def test_check_mode_plans_and_writes_nothing(run_dir: pathlib.Path, planning: t.Any) -> None:
    assert act(job_plan, run_dir, check=True)["changed"]
    assert list(run_dir.iterdir()) == []
    act(job_plan, run_dir)
    assert not act(job_plan, run_dir, check=True)["changed"]


def test_the_server_must_speak_of_this_start(run_dir: pathlib.Path, planning: t.Any) -> None:
    planning.start = START + 1
    assert "the server speaks of start 3" in act(job_plan, run_dir)["msg"]
    assert not (run_dir / "plan.json").exists()


def test_a_new_attempt_forgets_the_last_one_s_error(run_dir: pathlib.Path, planning: t.Any) -> None:
    planning.fault = SiteFault("qstat", "no answer")
    assert act(job_plan, run_dir)["fault"] == "site"
    assert error(run_dir)["why"] == "no answer"
    planning.fault = None
    act(job_plan, run_dir)
    assert not list(run_dir.glob("error*"))


def test_directories_let_the_owner_pass_whatever_the_umask_is(tmp_path: pathlib.Path, planning: t.Any) -> None:
    run_dir = tmp_path / "new" / "jobs" / f"{JOB}.{START}"
    former = os.umask(0o077)
    try:
        act(job_plan, run_dir)
    finally:
        os.umask(former)
    assert [path.stat().st_mode & 0o777 for path in (run_dir, *run_dir.parents[:2])] == [0o711] * 3

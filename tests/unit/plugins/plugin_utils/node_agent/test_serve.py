# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-node`: what it believes, what it refuses, and that it always answers in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import pathlib
import pwd
import subprocess
import sys
import tempfile
import types
import typing as t

import inotify_simple
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import job_snapshot, patience
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.shared.server_command import ServerSilent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import parameters
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import (
    form,
    health_report,
    messages,
    node_answers,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.update_result import GuestUpdates
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import node_settings
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import examine as doctor_call
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vtorque_node
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import (
    authorize,
    handlers,
    preload,
    protocol,
    serve,
    site_requests,
)

SOMEBODY = pwd.getpwnam("nobody")
OWNER = messages.Owner("nobody", SOMEBODY.pw_uid, SOMEBODY.pw_gid, "nogroup", "/nonexistent", "/bin/sh")
KEY = messages.KeyPair(
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "A" * 200 + "\n-----END OPENSSH PRIVATE KEY-----\n",
    "ssh-ed25519 " + "A" * 68,
)
SPEC = messages.GuestSpec(
    rank=0, index=0, image="tiny", distro="debian", arch="x86_64", vcpus=1, ram_mib=64, hypervisor="qemu",
    fs_type="sharedfs", host_key=KEY, authorized_key=KEY.public,
)  # fmt: skip
PART = messages.NodePart(1, "present", "7.head", 2, "cn1", 60.0, OWNER, (SPEC,))
FACTS = node_answers.GuestFacts(0, "vcn1-1", "52:54:00:00:01:01", "10.77.0.100", {"ready": 1.0})
JOB = BatchJob(
    job_id="7.head", name="j", owner_user="nobody", owner_host="fe", euser="nobody", egroup="nogroup", state="R",
    queue="batch", slot_hosts=("cn1", "cn1", "cn2"), start_count=2, x="", jobtype="", init_work_dir="/", session_id=0,
    substate=41, interactive=False, walltime_s=0, variables={}, submit_args="", account="",
    resource_list={"mem": "1tb"},
    **{f.name: "" for f in dataclasses.fields(BatchJob) if f.name == "hold_types"},
)  # fmt: skip


@dataclasses.dataclass
class World:
    """What the node would find: the server's word, and what the packages below do."""

    job: BatchJob | VTorqueError = JOB
    error: Exception | None = None
    cores: dict[tuple[str, str], tuple[int, ...]] = dataclasses.field(
        default_factory=lambda: {("7.head", "cn1"): (1, 2)}
    )
    asked: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    def ask(self, part: messages.NodePart | messages.Suspension | bytes) -> dict[str, t.Any]:
        data = part if isinstance(part, bytes) else json.dumps(form.to_dict(part)).encode()
        answer = serve.respond(io.BytesIO(data), handlers.Call(self.environment, Policy))
        return t.cast("dict[str, t.Any]", json.loads(json.dumps(answer)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> World:
    here = World()
    settings = node_settings.settings_of
    monkeypatch.setattr(
        node_settings,
        "settings_of",
        lambda *arguments: dataclasses.replace(settings(*arguments), state_dir=tmp_path / "state"),
    )

    class Batch:
        def job(self, job_id: str) -> BatchJob:
            here.asked.append(f"qstat {job_id}")
            if isinstance(here.job, VTorqueError):
                raise here.job
            return here.job

    def present(
        part: messages.NodePart, *_more: object, cores: tuple[int, ...], **_caller: object
    ) -> tuple[node_answers.GuestFacts, ...]:
        here.asked.append("present")
        assert cores == (1, 2)
        if here.error:
            raise here.error
        return (FACTS,)

    def absent(job_id: str, start: int, *_more: object, **_how: object) -> tuple[str, ...]:
        here.asked.append(f"absent {job_id} {start}")
        if here.error:
            raise here.error
        return ("domain vcn1-1",)

    monkeypatch.setattr(authorize, "open_batch", lambda _policy, **_more: Batch())
    monkeypatch.setattr(handlers, "cores_of", lambda job, _policy, node, **_how: here.cores[job.job_id, node])
    monkeypatch.setattr(site_requests, "host_name", lambda: "cn1")
    monkeypatch.setattr(node_settings, "host_name", lambda: "cn1")
    monkeypatch.setattr(handlers.client, "request_guests", present)
    monkeypatch.setattr(handlers.present_absent, "absent", absent)
    monkeypatch.setattr(
        handlers.present_absent, "describe_leftovers", lambda *_words, **_how: ("slot 1",) if here.error else ()
    )
    addresses = {"cn1": "10.77.0.11", "cn2": "10.77.0.12"}

    def getaddrinfo(host: str, *_words: object, **_more: object) -> list[t.Any]:
        if host not in addresses:
            raise OSError("unknown host")
        return [(2, 1, 6, "", (addresses[host], 0))]

    monkeypatch.setattr(authorize.socket, "getaddrinfo", getaddrinfo)
    return here


def test_present_answers_with_the_guests(world: World) -> None:
    answer = world.ask(PART)
    assert answer == {"version": 1, "ok": True, "guests": [form.to_dict(FACTS)], "removed": [], "left": []}
    assert world.asked == ["qstat 7.head", "present"]


@pytest.mark.parametrize(("connection", "asked"), [("", []), ("10.77.0.11 1 10.77.0.11 22", ["qstat 7.head"])])
def test_saved_answer_serves_the_nodes_own_root_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, connection: str, asked: list[str]
) -> None:
    """By the node's own root; a caller from elsewhere is held against the server's word of now."""
    directory = tmp_path / "jobs/7.head.2"
    directory.mkdir(parents=True)
    job_snapshot.save_snapshot(JOB, directory)
    real = node_settings.settings_of
    monkeypatch.setattr(node_settings, "settings_of", lambda *a: dataclasses.replace(real(*a), run_dir=tmp_path))
    world.environment = {"SSH_CONNECTION": connection} if connection else {}
    assert world.ask(PART)["ok"]
    assert world.asked == [*asked, "present"]


def test_absent_by_the_nodes_own_root_needs_no_server(world: World) -> None:
    world.job = SiteFault("qstat", "no answer")
    answer = world.ask(dataclasses.replace(PART, do="absent", guests=()))
    assert answer == {
        "version": 1,
        "ok": True,
        "guests": [],
        "removed": ["domain vcn1-1"],
        "left": [],
        "used": [],
        "consoles": [],
        "series": [],
    }
    assert world.asked == ["absent 7.head 2"]


def test_broken_configuration_lets_nothing_be_made_and_everything_be_taken_away(world: World) -> None:
    def broken() -> t.NoReturn:
        raise SiteFault("vtorque.yml", "line 3: no such parameter")

    asked = {
        do: dataclasses.replace(PART, do=do, guests=PART.guests[: do == "present"]) for do in ("present", "absent")
    }
    answers = {
        do: serve.respond(io.BytesIO(json.dumps(form.to_dict(part)).encode()), handlers.Call({}, broken))
        for do, part in asked.items()
    }
    assert (answers["present"]["error"]["fault"], answers["absent"]["removed"]) == ("site", ["domain vcn1-1"])
    assert world.asked == ["absent 7.head 2"]


def test_error_is_answered_with_whose_fault_it_is_and_what_is_left(world: World) -> None:
    world.error = NodeFault("bridge br0", "is missing", "see vtorque.yml")
    answer = world.ask(PART)
    error = {"fault": "node", "what": "bridge br0", "why": "is missing", "hint": "see vtorque.yml", "cause": ""}
    assert answer == {"version": 1, "ok": False, "error": error, "left": ["slot 1"]}


def test_error_of_the_system_is_answered(world: World) -> None:
    world.error = OSError(1, "Operation not permitted")
    assert world.ask(PART)["error"]["why"] == "[Errno 1] Operation not permitted"


@pytest.mark.parametrize("do", ["present", "absent"])
def test_unexpected_error_is_answered_with_the_leftovers(world: World, do: t.Literal["present", "absent"]) -> None:
    world.error = RuntimeError("not ours")
    answer = world.ask(dataclasses.replace(PART, do=do, guests=PART.guests if do == "present" else ()))
    assert answer["error"]["what"] == "a fault in vTorque itself: RuntimeError"
    assert answer["error"]["why"] == "not ours"
    assert answer["left"] == ["slot 1"]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"version": 1}', b"[" * 100_000, b" " * (protocol.LIMIT + 1)],
    ids=["nothing", "half", "list", "null", "no text", "keys missing", "deep", "long"],
)
def test_what_is_not_of_the_form_is_refused_before_anything_is_asked(world: World, data: bytes) -> None:
    answer = world.ask(data)
    assert answer["ok"] is False
    assert world.asked == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("version", 2), ("do", "restart"), ("job_id", "7;reboot"), ("node", "../cn1"), ("start", "2"), ("surplus", 1)],
)
def test_a_value_out_of_form_is_refused(world: World, key: str, value: object) -> None:
    answer = world.ask(json.dumps({**form.to_dict(PART), key: value}).encode())
    assert answer["ok"] is False
    assert world.asked == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "Q"}, "its state is Q"),
        ({"state": "C"}, "its state is C"),
        ({"start_count": 3}, "the server is at 3"),
        ({"slot_hosts": ("cn2", "cn11")}, "it runs on cn2, cn11"),
        ({"slot_hosts": ()}, "it runs on no node"),
        ({"euser": "bob"}, "it is bob's"),
        ({"job_id": "8.head"}, "speaks of 8.head"),
    ],
)
def test_a_job_that_the_server_tells_otherwise_makes_no_guest(
    world: World, changes: dict[str, t.Any], message: str
) -> None:
    world.job = dataclasses.replace(JOB, **changes)
    answer = world.ask(PART)
    assert message in answer["error"]["why"]
    assert "present" not in world.asked


def test_server_that_does_not_answer_is_the_sites_fault(world: World) -> None:
    world.job = SiteFault("qstat", "no answer within 10 s")
    assert world.ask(dataclasses.replace(PART, timeout_s=0.5))["error"]["fault"] == "site"
    assert "present" not in world.asked


def test_server_that_is_away_while_a_part_begins_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def come_back(_seconds: float) -> None:
        world.job = JOB

    world.job = ServerSilent("squeue", "Slurm's controller cannot be reached")
    monkeypatch.setattr(patience, "time", types.SimpleNamespace(sleep=come_back))
    assert world.ask(PART)["ok"]
    assert world.asked.count("present") == 1


def test_job_that_is_suspended_while_its_guests_are_made_gets_them(world: World) -> None:
    world.job = dataclasses.replace(JOB, state="S")
    assert world.ask(PART)["ok"]


def test_long_and_short_names_of_a_node_are_one(world: World) -> None:
    world.job = dataclasses.replace(JOB, slot_hosts=("cn1.site.org",))
    assert world.ask(PART)["ok"] is True


def test_request_for_another_node_is_refused(world: World) -> None:
    answer = world.ask(dataclasses.replace(PART, node="cn10"))
    assert "this is cn1" in answer["error"]["why"]
    assert world.asked == []


@pytest.mark.parametrize("ids", [{"uid": 4242}, {"gid": 4242}])
def test_a_user_who_is_another_here_is_refused(world: World, ids: dict[str, int]) -> None:
    part = dataclasses.replace(PART, owner=dataclasses.replace(OWNER, **ids))
    assert "is asked for" in world.ask(part)["error"]["why"]
    assert "present" not in world.asked


def test_package_that_is_not_on_this_nodes_list_makes_no_guest(world: World) -> None:
    """Whatever the mother superior let pass; files and commands are the user's own matter."""
    asks = messages.Additions((messages.Package("make"),), (), (messages.Command("id"),))
    answer = world.ask(dataclasses.replace(PART, additions=asks))
    assert (answer["error"]["fault"], answer["error"]["what"]) == ("site", "metadata: make")
    assert "present" not in world.asked
    assert world.ask(dataclasses.replace(PART, additions=dataclasses.replace(asks, packages=())))["ok"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("packages", {"name": "--force-yes"}),
        ("packages", {"name": "a b"}),
        ("files", {"path": "x", "mode": "644", "content": ""}),
        ("files", {"path": "/x\n", "mode": "644", "content": ""}),
        ("files", {"path": "/x", "mode": "4755", "content": ""}),
        ("files", {"path": "/x", "mode": "644", "content": "A A="}),
        ("commands", {"line": "a\0b"}),
        ("commands", {"line": "\ud800"}),
    ],
)
def test_additions_out_of_form_are_refused_by_the_node_itself(world: World, kind: str, value: dict[str, str]) -> None:
    part = form.to_dict(PART)
    answer = world.ask(json.dumps({**part, "additions": {**part["additions"], kind: [value]}}).encode())
    assert "not of the form demanded" in answer["error"]["why"]
    assert world.asked == []


def test_a_user_whose_groups_are_others_here_is_refused(world: World) -> None:
    strange = max(os.getgrouplist("nobody", SOMEBODY.pw_gid)) + 1
    owner = dataclasses.replace(OWNER, groups=(messages.Group("chem", strange),))
    assert f"no member of group {strange} (chem)" in world.ask(dataclasses.replace(PART, owner=owner))["error"]["why"]
    assert "present" not in world.asked


@pytest.mark.parametrize("do", ["present", "absent"])
@pytest.mark.parametrize(
    ("connection", "ok"),
    [
        ("10.77.0.11 40000 10.77.0.12 22", True),
        ("::ffff:10.77.0.11 40000 ::ffff:10.77.0.12 22", True),
        ("10.77.0.12 40000 10.77.0.11 22", False),
        ("10.77.0.1 40000 10.77.0.11 22", False),
        ("UNKNOWN 65535 UNKNOWN 65535", False),
        (" ", False),
    ],
)
def test_only_the_jobs_mother_superior_may_ask_by_ssh(world: World, do: str, connection: str, ok: bool) -> None:
    world.environment = {"SSH_CONNECTION": connection}
    assert world.ask(dataclasses.replace(PART, do=do))["ok"] is ok


def test_a_caller_by_ssh_cannot_remove_what_the_server_does_not_answer_for(world: World) -> None:
    world.environment = {"SSH_CONNECTION": "10.77.0.11 40000 10.77.0.12 22"}
    world.job = SiteFault("qstat", "no answer")
    assert world.ask(dataclasses.replace(PART, do="absent"))["ok"] is False
    assert world.asked == ["qstat 7.head"]


@pytest.mark.parametrize("word", [UnknownJob("job 7.head", "unknown"), SiteFault("qstat", "no answer within 10 s")])
@pytest.mark.parametrize(
    ("led_by", "peer", "job_id", "asked"),
    [
        ("10.77.0.11", "10.77.0.11", "7.head", ["absent 7.head 2"]),
        ("10.77.0.11", "10.77.0.99", "7.head", []),  # a node that never led it
        ("10.77.0.11", "10.77.0.11", "8.head", ["qstat 8.head"]),  # a job that never began here
        ("", "10.77.0.11", "7.head", ["qstat 7.head"]),
    ],
)
def test_end_of_a_start_is_asked_for_by_who_led_it_without_the_server(
    world: World, led_by: str, peer: str, job_id: str, asked: list[str], word: VTorqueError
) -> None:
    if led_by:
        world.environment = {"SSH_CONNECTION": f"{led_by} 40000 10.77.0.11 22"}
        assert world.ask(PART)["ok"]
    world.asked.clear()
    world.job = word
    world.environment = {"SSH_CONNECTION": f"{peer} 40000 10.77.0.11 22"}
    answer = world.ask(dataclasses.replace(PART, do="absent", job_id=job_id, guests=()))
    assert answer["ok"] is (asked == ["absent 7.head 2"])
    assert world.asked == asked


def test_note_of_who_leads_serves_only_the_end_of_its_start(world: World) -> None:
    world.environment = {"SSH_CONNECTION": "10.77.0.11 40000 10.77.0.11 22"}
    assert world.ask(PART)["ok"]
    for changes in ({"do": "present"}, {"do": "absent", "guests": (), "start": PART.start + 1}):
        world.asked.clear()
        world.job = UnknownJob("job 7.head", "unknown")
        assert world.ask(dataclasses.replace(PART, **changes))["ok"] is False
        assert world.asked == ["qstat 7.head"]


def test_note_of_who_leads_that_cannot_be_read_leaves_the_word_to_the_server(
    world: World, tmp_path: pathlib.Path
) -> None:
    world.environment = {"SSH_CONNECTION": "10.77.0.11 40000 10.77.0.11 22"}
    assert world.ask(PART)["ok"]
    (noted,) = tmp_path.glob("state/records/*/superior.json")
    noted.write_text("{", encoding="utf-8")
    world.asked.clear()
    assert world.ask(dataclasses.replace(PART, do="absent", guests=()))["ok"]
    assert world.asked == ["qstat 7.head", "absent 7.head 2"]


def test_sister_that_cannot_note_who_leads_for_a_full_disk_is_at_fault_herself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_words: object, **_how: object) -> t.NoReturn:
        raise VTorqueError("superior.json was not written") from OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(authorize.mother_superior, "save_superior", full)
    world.environment = {"SSH_CONNECTION": "10.77.0.11 40000 10.77.0.11 22"}
    error = world.ask(PART)["error"]
    assert (error["fault"], error["cause"]) == ("node", "disk")
    assert world.asked == ["qstat 7.head"]


def test_settings_are_the_policys_word() -> None:
    policy = dataclasses.replace(
        Policy(), bridge="br7", mac_prefix="52:54:01", node_number=5, vm_img_dir="/pool", libvirt_uri="test:///default",
        allow_emulation=True, max_vms_per_node=9, ntp_server_2="10.0.0.9", timeout=99, ssh_timeout=7,
        ip_to_mac_script="/map", hypervisor_default="qemu", arch_default="aarch64",
    )  # fmt: skip
    settings = node_settings.settings_of(policy, "cn1")
    assert (settings.bridge, settings.mac(1), settings.pool) == ("br7", "52:54:01:00:05:01", pathlib.Path("/pool"))
    assert (settings.libvirt_uri, settings.allow_emulation, settings.max_guests) == ("test:///default", True, 9)
    assert (settings.hypervisor_default, settings.arch_default) == ("qemu", "aarch64")
    assert (settings.ntp_servers, settings.ready_timeout_s, settings.ssh_timeout_s) == (("10.0.0.9",), 99.0, 7.0)
    # a script that is named and not switched on is not called
    assert settings.ip_to_mac_script is None
    mapped = node_settings.settings_of(dataclasses.replace(policy, custom_ip_mapping=True), "cn1")
    assert mapped.ip_to_mac_script == pathlib.Path("/map")


@pytest.mark.parametrize("warm", [False, True])
def test_needed_modules_are_loaded_before_a_worker_begins(warm: bool) -> None:
    """Its two processes would each load it else; a guest that starts warm has no seed of its own to write."""
    program = f"""
import dataclasses, json, sys, {serve.__name__} as node, {handlers.__name__} as handlers, {preload.__name__} as preload
from {parameters.__name__} import Policy
def missing():
    return [name for name in (*preload.NEEDED, *wanted) if name not in sys.modules]
def begin(*_words, **_more):
    print(json.dumps([before == [*preload.NEEDED, *wanted], missing(), not set(others) & set(sys.modules)]))
    return ()
import types
handlers.authorize_part = lambda *_words: types.SimpleNamespace(superior="", job=None)
handlers.client.request_guests = begin
wanted, others = preload.OF_BOOTS, preload.OF_WARM_STARTS
if {warm}:
    wanted, others = others, wanted
before = missing()
node.respond(sys.stdin.buffer, handlers.Call({{}}, lambda: dataclasses.replace(Policy(), warm_start={warm})))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(form.to_dict(PART)).encode(), capture_output=True,
        timeout=60, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert json.loads(done.stdout) == [True, [], True]


def test_program_answers_in_one_line_and_exits_0() -> None:
    done = subprocess.run(
        [sys.executable, "-m", vtorque_node.__name__], input=b"{}", capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
    assert json.loads(done.stdout)["ok"] is False


@pytest.mark.parametrize(("report", "word"), [(b"", b""), (b"{}\n", b"told")], ids=["gone", "report"])
def test_guests_are_held_until_the_second_line(report: bytes, word: bytes) -> None:
    """The hold is open while the line is waited for, and let go of when the caller is gone."""
    program = f"""
import os, {serve.__name__} as node, {handlers.__name__} as handlers
holding, held = os.pipe()
def present(_part, call):
    call.hold.take(held, handlers.Deadline.after(60))
    return {{"ok": True, "guests": ["one"]}}
def join(*_words):
    os.write(held, b"told")
    return {{"ok": True}}
handlers.KINDS["present"] = handlers.Kind(dict, present)
handlers.SECOND["join"] = handlers.Kind(dict, join)
node._note_neighbours = lambda *_words: None
node.main()
os.write(2, os.read(holding, 9))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"{}\n" + report, capture_output=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.stdout.count(b"\n"), done.stderr) == (1 + bool(report), word)


def test_join_does_not_wait_for_the_note_of_neighbours() -> None:
    """Their streams end with us although that look has not ended."""
    program = f"""
import json, os, sys, {serve.__name__} as node
from {serve.__name__.rsplit(".", 2)[0]}.bridge import exclusive_note
from {messages.__name__} import JobMap, KeyPair
from {parameters.__name__} import Policy
def look(job_id, start, _policy, _node, directory):
    os.mkfifo(sys.argv[1])
    open(sys.argv[1], "w").write(f"{{job_id}} {{start}} {{directory.name}}")
exclusive_note.note_neighbours = look
told = JobMap(1, "join", "7.head", 2, "cn1", 60.0, (), KeyPair(*{dataclasses.astuple(KEY)!r}))
node.SECOND["join"] = node.Kind(lambda _data: told, None)
node._note_neighbours(b"{{}}", Policy)
"""
    with tempfile.TemporaryDirectory() as place:
        fifo = f"{place}/looks"
        done = subprocess.run(
            [sys.executable, "-c", program, fifo], stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
            check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (b"", b"")
        with contextlib.closing(inotify_simple.INotify()) as watch:
            watch.add_watch(place, inotify_simple.flags.CREATE)
            if not os.path.exists(fifo):
                assert watch.read(timeout=60_000)
        assert pathlib.Path(fifo).read_text() == "7.head 2 7.head.2"


@pytest.mark.parametrize(("ok", "message"), [(True, "['alice', '7.head', '2'] cn1"), (False, "")])
def test_sister_ends_what_is_left_when_its_guests_are_gone(ok: bool, message: str) -> None:
    program = f"""
import {serve.__name__} as node
from {serve.__name__.rsplit(".", 2)[0]}.bridge.upkeep import leftover_processes
node.KINDS["absent"] = node.Kind(dict, lambda _part, _call: {{"ok": {ok}, "guests": []}})
node.host_name = lambda: "cn1"
leftover_processes.end_leftovers_of_sister = lambda arguments, load, name: print(arguments, name)
node.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--end-left", "alice", "7.head", "2"], capture_output=True, timeout=60,
        input='{"do": "absent"}\n',
        check=True, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.splitlines()[1:] == ([message] if message else [])


@pytest.mark.parametrize(
    ("faults", "arguments", "output"),
    [
        pytest.param(0, ["--early"], "br7 br7 br7, read 1 times", id="good"),
        pytest.param(1, ["--early"], "br7 br7 br7, read 2 times", id="mended before the request came"),
        pytest.param(9, ["--early"], "fault fault fault, read 2 times", id="broken"),
        pytest.param(9, [], "fault fault fault, read 1 times", id="broken, and not asked early"),
    ],
)
def test_one_request_is_answered_by_one_reading_of_the_configuration(
    faults: int, arguments: list[str], output: str
) -> None:
    """An administrator may write it meanwhile; what fails before there is a request is tried again for it."""
    program = f"""
import {serve.__name__} as node
import {node_settings.__name__} as node_settings
from {parameters.__name__} import Policy
from {SiteFault.__module__} import SiteFault
readings = []
def load():
    readings.append(0)
    if len(readings) <= {faults}:
        raise SiteFault("vtorque.yml", "half written")
    return Policy(bridge="br7")
def see(load):
    try:
        return load().bridge
    except SiteFault:
        return "fault"
def absent(_part, call):
    seen = " ".join(see(call.load) for _again in range(3))
    return {{"ok": False, "seen": f"{{seen}}, read {{len(readings)}} times"}}
node_settings.policy_file.load = load
node.KINDS["absent"] = node.Kind(dict, absent)
node.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], input=b'{"do": "absent"}\n', capture_output=True, timeout=60,
        check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert json.loads(done.stdout)["seen"] == output


def test_umask_of_the_caller_closes_no_directory() -> None:
    program = f"""
import os, {serve.__name__} as node
node.KINDS["absent"] = node.Kind(dict, lambda _part, _call: {{"umask": os.umask(0), "ok": False}})
node.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], input=b'{"do": "absent"}\n', capture_output=True, timeout=60, check=True,
        umask=0o077,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert json.loads(done.stdout)["umask"] == 0o022


def test_launcher_hands_on_nothing_but_sshs_word(tmp_path: pathlib.Path) -> None:
    prefix = tmp_path / "a prefix"
    (prefix / "venv/bin").mkdir(parents=True)
    python = prefix / "venv/bin/python"
    python.write_text('#!/bin/sh\nenv | sort\nprintf "%s " "$@"\n')
    python.chmod(0o755)
    launcher = tmp_path / "vtorque-node"
    launcher.write_text(templates.render("launchers/vtorque-node.sh.j2", site_dir=None, prefix=str(prefix)))
    launcher.chmod(0o755)
    environment = {
        "PATH": "/evil",
        "LD_PRELOAD": "",
        "PYTHONHOME": "/evil",
        "SSH_CONNECTION": "10.77.0.11 1 10.77.0.12 22",
    }
    done = subprocess.run([launcher], env=environment, capture_output=True, text=True, timeout=60, check=False)
    *lines, arguments = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith(("PWD=", "_=", "SHLVL="))] == [
        "LC_ALL=C.UTF-8",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "SSH_CONNECTION=10.77.0.11 1 10.77.0.12 22",
    ]
    assert arguments.split() == ["-I", "-m", vtorque_node.__name__]
    bare = subprocess.run([launcher], env={}, capture_output=True, text=True, timeout=60, check=False)
    assert "SSH_CONNECTION" not in bare.stdout


def test_mounts_of_the_site_are_told_in_its_order() -> None:
    policy = Policy(vm_nfs_ws="fs:/ws", vm_nfs_opt="fs:/opt", mounts=("/srv/x /x virtiofs ro",), nfs_timeout=7)
    settings = node_settings.settings_of(dataclasses.replace(policy, home_via="virtiofs"), "cn1")
    assert [(one.kind, one.source, one.target, one.options) for one in settings.mounts] == [
        ("nfs", "fs:/ws", "/workspace", ""), ("nfs", "fs:/opt", "/opt-hpc", ""), ("virtiofs", "/srv/x", "/x", "ro"),
    ]  # fmt: skip
    assert (settings.home_via, settings.home_export, settings.mount_s) == ("virtiofs", None, 7)


def test_report_is_answered_to_any_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end has no part in any job: the batch server is not asked for one."""
    asked: list[float] = []

    def examine(_load: object, node: str, timeout_s: float) -> health_report.Report:
        asked.append(timeout_s)
        return health_report.Report(node, (health_report.Finding("libvirt"),), 1.0, 2.0)

    monkeypatch.setattr(doctor_call, "examine_here", examine)
    data = json.dumps(health_report.ReportRequest(7).to_dict()).encode()
    answer = serve.respond(io.BytesIO(data), handlers.Call({"SSH_CONNECTION": "10.0.0.9 1 10.0.0.1 22"}, Policy))
    assert answer["ok"] is True
    assert health_report.report_from_dict("cn1", answer["report"]).well
    assert asked == [7.0]
    refused = serve.respond(io.BytesIO(b'{"version": 2, "do": "report"}'), handlers.Call({}, Policy))
    assert (refused["ok"], refused["error"]["what"]) == (False, "the request for a report")


LOST = messages.LostGuest(1, "lost", "7.head", 2, "cn2", "vcn2-1", "it was destroyed", "the end")
FROM_CN2 = {"SSH_CONNECTION": "10.77.0.12 4711 10.77.0.11 22"}


def tell(lost: messages.LostGuest, environment: dict[str, str]) -> dict[str, t.Any]:
    data = json.dumps(form.to_dict(lost)).encode()
    return serve.respond(io.BytesIO(data), handlers.Call(environment, Policy))


@pytest.fixture
def leading(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """The run directory of a start that cn1 leads."""
    directory = tmp_path / "jobs/7.head.2"
    directory.mkdir(parents=True)
    (directory / "ready.json").write_text("{}")
    job_snapshot.save_snapshot(JOB, directory)
    real = node_settings.settings_of
    monkeypatch.setattr(node_settings, "settings_of", lambda *a: dataclasses.replace(real(*a), run_dir=tmp_path))
    assert world.asked == []
    return directory


def test_sister_tells_of_her_lost_guest(leading: pathlib.Path, world: World) -> None:
    """The job's shell is let know; the server is not asked."""
    assert tell(LOST, FROM_CN2)["ok"]
    lost = json.loads((leading / "lost.json").read_text())
    assert lost.pop("when") > 0
    assert lost == {"guest": "vcn2-1", "node": "cn2", "reason": "it was destroyed", "console": "the end"}
    assert tell(dataclasses.replace(LOST, guest="vcn2-2"), FROM_CN2)["ok"]
    assert json.loads((leading / "lost.json").read_text())["guest"] == "vcn2-1", "the first is the one that is told"
    assert world.asked == []


@pytest.mark.parametrize(
    ("lost", "environment", "why"),
    [
        (LOST, {}, "that is not its sister cn2"),
        (LOST, {"SSH_CONNECTION": "10.77.0.13 1 10.77.0.11 22"}, "that is not its sister cn2"),
        (dataclasses.replace(LOST, node="cn3"), FROM_CN2, "cn3 has no part in it"),
        (dataclasses.replace(LOST, node="cn1"), FROM_CN2, "cn1 has no part in it"),
        (dataclasses.replace(LOST, start=1), FROM_CN2, "does not lead such a start"),
        (dataclasses.replace(LOST, job_id="8.head"), FROM_CN2, "does not lead such a start"),
        (dataclasses.replace(LOST, reason="two\nlines"), FROM_CN2, "not of the form"),
        (dataclasses.replace(LOST, guest="../x"), FROM_CN2, "not of the form"),
    ],
)
def test_loss_report_of_a_foreign_node_ends_no_job(
    leading: pathlib.Path, lost: messages.LostGuest, environment: dict[str, str], why: str
) -> None:
    answer = tell(lost, environment)
    assert not answer["ok"]
    assert why in answer["error"]["why"]
    assert not (leading / "lost.json").exists()


def test_sister_is_no_mother_superior(leading: pathlib.Path) -> None:
    job_snapshot.save_snapshot(dataclasses.replace(JOB, slot_hosts=("cn3", "cn2", "cn1")), leading)
    assert "does not lead" in tell(LOST, FROM_CN2)["error"]["why"]


FROM_CN1 = {"SSH_CONNECTION": "10.77.0.11 4711 10.77.0.11 22"}
SUSPEND = messages.Suspension(1, "suspend", "7.head", 2, "cn1")
Doubt = tuple[dict[str, t.Any], str, dict[str, str], str]
"""What a request says otherwise, the state of the job, who asks, and why that is not believed."""


@pytest.fixture
def with_guests(leading: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """The order that guests of this start stand still, which nobody has given yet."""
    (tmp_path / "state/guests/7.head.2/vcn1-1").mkdir(parents=True)
    return tmp_path / "paused/7.head.2"


def test_guests_of_a_suspended_job_stand_still_and_go_on_again(with_guests: pathlib.Path, world: World) -> None:
    world.job, world.environment = dataclasses.replace(JOB, state="S"), FROM_CN1
    assert world.ask(SUSPEND)["ok"]
    assert with_guests.exists()
    world.job = JOB
    assert world.ask(dataclasses.replace(SUSPEND, do="resume"))["ok"]
    assert not with_guests.exists()


def test_guests_that_are_here_do_not_wait_for_the_spare_node_of_others(
    with_guests: pathlib.Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell_moved(*_words: object) -> tuple[str, ...]:
        raise VTorqueError("vtorque-node on cn3", "gave no answer in time")

    monkeypatch.setattr(handlers.moves, "read_moved", lambda _record: ("one",))
    monkeypatch.setattr(handlers, "_site_requests", lambda: types.SimpleNamespace(tell_moved=tell_moved))
    world.job, world.environment = dataclasses.replace(JOB, state="S"), FROM_CN1
    assert world.ask(SUSPEND)["error"]["why"] == "gave no answer in time"
    assert with_guests.exists()
    world.job = JOB
    assert not world.ask(dataclasses.replace(SUSPEND, do="resume"))["ok"]
    assert not with_guests.exists()


def test_node_says_whether_it_has_room_for_guests_that_it_has_saved(
    with_guests: pathlib.Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.environment = FROM_CN1
    answer = world.ask(dataclasses.replace(SUSPEND, do="fit"))
    assert (answer["ok"], answer["lack"]) == (True, [])
    monkeypatch.setattr(handlers.room, "lack_here", lambda _settings, key: f"no room for {key}")
    assert world.ask(dataclasses.replace(SUSPEND, do="fit"))["lack"] == ["no room for 7.head.2"]
    assert not with_guests.exists()


def check_not_believed(
    with_guests: pathlib.Path, world: World, request: messages.Suspension | messages.CheckpointStep, doubt: Doubt
) -> None:
    change, state, environment, why = doubt
    world.job, world.environment = dataclasses.replace(JOB, state=state), environment
    answer = world.ask(dataclasses.replace(request, **change))
    assert not answer["ok"]
    assert why in answer["error"]["why"]
    assert not with_guests.exists()


@pytest.mark.parametrize(
    "doubt",
    [
        ({"do": "fit"}, "S", FROM_CN1, "the server says state S"),
        ({"do": "fit"}, "R", FROM_CN2, "that is not its mother superior cn1"),
        ({}, "R", FROM_CN1, "the server says state R of start 2"),
        ({"do": "resume"}, "S", FROM_CN1, "the server says state S"),
        ({"start": 1}, "S", FROM_CN1, "of start 2"),
        ({"node": "cn2"}, "S", FROM_CN1, "this is cn1"),
        ({}, "S", FROM_CN2, "that is not its mother superior cn1"),
        ({}, "S", {}, "that is not its mother superior cn1"),
        ({"do": "stop"}, "S", FROM_CN1, ""),
    ],
)
def test_suspension_is_not_believed_against_the_server_or_of_others(
    with_guests: pathlib.Path, world: World, doubt: Doubt
) -> None:
    check_not_believed(with_guests, world, SUSPEND, doubt)


def test_who_is_asked_from_elsewhere_knows_whom_to_tell(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    report: list[t.Any] = []

    def present(*_words: object, tell: t.Sequence[str], **_more: object) -> tuple[node_answers.GuestFacts, ...]:
        report.append(list(tell))
        return (FACTS,)

    monkeypatch.setattr(handlers.client, "request_guests", present)
    assert world.ask(PART)["ok"]
    world.environment = {"SSH_CONNECTION": "10.77.0.11 1 10.77.0.11 22"}
    assert world.ask(PART)["ok"]
    assert report[0] == []
    assert report[1][report[1].index("--") + 1 :] == ["cn1", str(pathlib.Path(sys.prefix).parent / "bin/vtorque-node")]


@pytest.mark.parametrize("report", [(), (GuestUpdates("vcn1-1", "timed out", 2, 60.0, "3 more were not begun"),)])
def test_guests_are_joined_updated_and_only_then_the_users_to_add_to(
    world: World, monkeypatch: pytest.MonkeyPatch, report: tuple[GuestUpdates, ...]
) -> None:
    """After the site's prologue, which may give them package sources; what became of it is answered."""
    done: list[str] = []

    def notes(what: str, result: object = None) -> t.Callable[..., object]:
        return lambda *_words: (done.append(what), result)[1]

    monkeypatch.setattr(handlers.join, "guests_of", lambda *_words: (types.SimpleNamespace(name="vcn1-1"),))
    monkeypatch.setattr(handlers.join, "join", notes("join"))
    monkeypatch.setattr(handlers.data_disk, "mount", notes("disk"))
    monkeypatch.setattr(handlers.site_scripts, "run_prologues", notes("prologues"))
    monkeypatch.setattr(handlers.security_updates, "install", notes("updates", report))
    monkeypatch.setattr(handlers.user_additions, "make", notes("additions"))
    job_map = messages.JobMap(1, "join", "7.head", 2, "cn1", 60.0, (), KEY)
    answer = join(job_map, world.ask(PART))
    assert answer["ok"]
    assert answer["updates"] == [form.to_dict(one) for one in report]
    assert done == ["join", "disk", "prologues", "updates", "additions"]


BARE = dataclasses.replace(PART, node="cn2", guests=(), bare_slots=2)
BARE_HOST = node_answers.BareHost("10.77.0.12", KEY.public)


@pytest.fixture
def bare(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """This is cn2, which stays bare; what the room below is asked."""
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import bare_host

    def present(part: messages.NodePart, _settings: object, _deadline: object, at: str) -> node_answers.BareHost:
        world.asked.append(f"bare present {part.bare_slots} at {at}")
        return BARE_HOST

    def join(job_map: messages.JobMap, *_more: object) -> None:
        world.asked.append(f"bare join {job_map.job_id}")

    monkeypatch.setattr(site_requests, "host_name", lambda: "cn2")
    monkeypatch.setattr(node_settings, "host_name", lambda: "cn2")
    monkeypatch.setattr(bare_host, "ensure_bare_host", present)
    monkeypatch.setattr(bare_host, "join", join)
    world.environment = {"SSH_CONNECTION": "10.77.0.11 40000 ::ffff:10.77.0.12 22"}
    return world


def join(job_map: messages.JobMap, before: dict[str, t.Any]) -> dict[str, t.Any]:
    """The answer to the second line, after the answer to the first one."""
    line = io.BytesIO(json.dumps(form.to_dict(job_map)).encode())
    return serve.respond(line, handlers.Call({}, Policy, before=before), handlers.SECOND)


def joined(world: World, job_id: str, start: int) -> dict[str, t.Any]:
    """The answer to the map of a start, after the part of PART's start."""
    report = messages.JobMap(1, "join", job_id, start, "cn2", 60.0, (), KEY)
    before = world.ask(BARE)
    return join(report, before)


def test_host_that_stays_bare_says_how_it_is_reached_and_is_told_of_the_job(bare: World) -> None:
    answer = bare.ask(BARE)
    assert answer["ok"]
    assert answer["bare"] == [form.to_dict(BARE_HOST)]
    assert answer["guests"] == []
    assert joined(bare, "7.head", 2)["ok"]
    once = ["qstat 7.head", "bare present 2 at 10.77.0.12"]
    assert bare.asked == [*once, *once, "bare join 7.head"]


@pytest.mark.parametrize(("job_id", "start"), [("8.head", 2), ("7.head", 1)])
def test_who_asked_for_one_start_brings_no_keys_of_another(bare: World, job_id: str, start: int) -> None:
    """A mother superior may speak for her own job alone."""
    answer = joined(bare, job_id, start)
    assert not answer["ok"]
    assert "not the start that was just asked for" in answer["error"]["why"]
    assert not [asked for asked in bare.asked if asked.startswith("bare join")]


def test_bare_host_is_checked_like_any(bare: World) -> None:
    bare.environment = {"SSH_CONNECTION": "10.77.0.99 40000 10.77.0.12 22"}
    assert "not its mother superior" in str(bare.ask(BARE)["error"])
    bare.environment = {"SSH_CONNECTION": "10.77.0.11 40000 10.77.0.12 22"}
    assert not bare.ask(dataclasses.replace(BARE, guests=(SPEC,)))["ok"]
    assert not [asked for asked in bare.asked if asked.startswith("bare")]


STEP = messages.CheckpointStep(1, "hold", "7.head", 2, "cn1", 1, 30.0)


def test_guests_of_a_running_job_stand_still_for_a_checkpoint_by_the_word_of_its_superior(
    with_guests: pathlib.Path, world: World
) -> None:
    world.job, world.environment = JOB, FROM_CN1
    assert world.ask(STEP)["ok"]
    assert float(with_guests.read_text()) > 0
    assert world.ask(STEP)["lack"] == ["its guests stand still already"]
    assert world.ask(dataclasses.replace(STEP, do="let_go"))["ok"]
    assert not with_guests.exists()


@pytest.mark.parametrize(
    "doubt",
    [
        ({}, "S", FROM_CN1, "the server says state S of start 2"),
        ({}, "C", FROM_CN1, "the server says state C"),
        ({"start": 1}, "R", FROM_CN1, "of start 2"),
        ({"node": "cn2"}, "R", FROM_CN1, "this is cn1"),
        ({"do": "store"}, "R", FROM_CN2, "that is not its mother superior cn1"),
        ({"do": "can_save"}, "R", FROM_CN2, "that is not its mother superior cn1"),
        ({}, "R", {}, "that is not its mother superior cn1"),
        ({"generation": 0}, "R", FROM_CN1, ""),
        ({"seconds": 1e9}, "R", FROM_CN1, ""),
    ],
)
def test_step_of_a_checkpoint_is_not_believed_against_the_server_or_of_others(
    with_guests: pathlib.Path, world: World, doubt: Doubt
) -> None:
    check_not_believed(with_guests, world, STEP, doubt)

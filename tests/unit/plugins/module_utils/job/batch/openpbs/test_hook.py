# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's hook of OpenPBS, rendered, and the real adapter, driven with recorded events (`driver.py`)."""

from __future__ import annotations

import ast
import concurrent.futures
import copy
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import (
    answers,
    job_shell,
    owner_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_writer import policy_text
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import start_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_message

from ..contract.openpbs_material import OpenPbsMaterial
from .driver import FIXTURES, REQUEST, Mom, Outcome, record, records

NOTE = "vtorque: kvm: no kvm (job 0.p0)"


def render(place: pathlib.Path) -> str:
    return templates.render(
        "batch/openpbs/vtorque_hook.py.j2", site_dir=None, prefix=f"{place}/opt", run_dir=f"{place}/run",
        state_dir=f"{place}/state",
    )  # fmt: skip


@pytest.fixture
def material(tmp_path: pathlib.Path) -> OpenPbsMaterial:
    (tmp_path / "server").mkdir()
    return OpenPbsMaterial(tmp_path / "server")


@pytest.fixture
def mom(tmp_path: pathlib.Path, material: OpenPbsMaterial) -> Mom:
    settings = {
        name: getattr(material.policy, name)
        for name in ("batch_system", "torque_home", "pbs_qsub_on_nodes", "pbs_qsub_on_fe")
    }
    return Mom(tmp_path, render(tmp_path), settings)


def changed(event: dict[str, t.Any], **facts: str) -> dict[str, t.Any]:
    """A recorded event whose job has other facts."""
    event = copy.deepcopy(event)
    event["job"].update(facts)
    return event


def test_events_in_their_order_call_our_program_where_guests_begin_and_end(mom: Mom) -> None:
    outcomes = [(one["event"], one["host"], mom.play(one)) for one in records() if one["job"]["id"] == "0.p0"]
    assert len(outcomes) == 10
    assert all(outcome.accepted and not outcome.message for _event, _host, outcome in outcomes)
    calls = [(call["role"], call["mother_superior"], call["parent"], call["exit_status"]) for call in mom.calls()]
    assert calls == [("begin-first", "p1", 206, None), ("end-other", "p1", 0, None), ("end-first", "p1", 0, 37)]
    assert {(call["job_id"], call["user"], call["start"], *call["nodes"]) for call in mom.calls()} == {
        ("0.p0", "alice", 1, "p1", "p2")
    }
    ((shell, arguments),) = ((found.program, found.argv) for event, _host, found in outcomes if "LAUNCH" in event)
    assert (shell, arguments) == (f"{mom.place}/opt/bin/vtorque-shell", (shell,))
    assert list((mom.place / "run/openpbs").iterdir()) == []


@pytest.mark.parametrize("host", ["p1", "p2"])
def test_hook_notes_as_whom_a_job_runs_on_each_node_until_its_end(
    mom: Mom, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(owner_file, "PLACE", mom.place / "run/openpbs")
    shown = answers.parse_job((FIXTURES / "qstat-f.json").read_bytes(), "0.p0")
    hidden = dataclasses.replace(shown, euser="", egroup="")
    begin, end = record("0.p0", host, "EXECJOB_BEGIN"), record("0.p0", host, "EXECJOB_END")
    mom.play(begin)
    assert owner_file.add_owner(hidden) == shown
    (noted,) = owner_file.PLACE.iterdir()
    assert (noted.stat().st_mode & 0o777, noted.parent.stat().st_mode & 0o777, noted.stat().st_uid) == (0o600, 0o700, 0)
    assert owner_file.add_owner(dataclasses.replace(hidden, start_count=2)).euser == "", "of another start"
    mom.play(changed(begin, run_count="2"))  # and no end of the first came
    assert [path.name for path in owner_file.PLACE.iterdir()] == ["owner.0.p0.2"]
    mom.play(changed(end, id="10.p0"))
    assert len(list(owner_file.PLACE.iterdir())) == 1
    mom.play({**changed(end, run_count="2"), "event": "EXECJOB_ABORT" if host == "p2" else "EXECJOB_END"})
    assert list(owner_file.PLACE.iterdir()) == []


def test_node_that_turns_a_job_away_notes_nothing_of_it(mom: Mom) -> None:
    (mom.place / "opt/bin/vtorque-shell").unlink()
    mom.play(record("0.p0", "p2", "EXECJOB_BEGIN"))
    assert not (mom.place / "run").exists()


def test_program_gets_an_environment_of_the_hooks_making(mom: Mom) -> None:
    mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    seen = set(mom.calls()[0]["environment"]) - {"PWD", "SHLVL", "_", "OLDPWD", "PYTHONPATH", "LC_CTYPE"}
    assert seen == {"PATH", "LC_ALL", "VTORQUE_BATCH_SYSTEM", "VTORQUE_CALL", "VTORQUE_ANSWER"}


@pytest.mark.parametrize("request_of_job", [None, "vtorque", "xvtorque:abc"])
def test_job_without_our_request_is_left_alone_at_each_event(mom: Mom, request_of_job: str | None) -> None:
    for event in records():
        if (event["job"]["id"], event["host"]) != ("0.p0", "p1"):
            continue
        outcome = mom.play(event, request=request_of_job)
        assert outcome.accepted
        assert (outcome.set, outcome.calls, outcome.vnodes) == ({}, (), {})
        assert (outcome.program, list(outcome.argv)) == (event.get("ev_progname", ""), event.get("ev_argv", []))
    assert mom.calls() == []
    assert not (mom.place / "run").exists()


def test_interactive_job_gets_our_shell(mom: Mom) -> None:
    outcome = mom.play(record("34.p0", "p1", "EXECJOB_LAUNCH"))
    assert outcome.accepted
    assert outcome.argv == (f"{mom.place}/opt/bin/vtorque-shell",)


def test_program_instead_of_a_script_is_refused_and_its_output_comes_back(mom: Mom) -> None:
    outcome = mom.play(record("36.p0", "p2", "EXECJOB_LAUNCH"))
    assert (outcome.accepted, outcome.calls) == (False, ("delete",))
    assert "--" in outcome.message


def test_second_task_of_a_job_is_not_started_on_a_node(mom: Mom) -> None:
    event = record("0.p0", "p1", "EXECJOB_LAUNCH")
    second = {**event, "ev_env": event["ev_env"].replace("PBS_TASKNUM=1,", "PBS_TASKNUM=2,")}
    assert second != event
    for other in (second, {**event, "in_ms_mom": False}):
        outcome = mom.play(other)
        assert (outcome.accepted, outcome.calls, outcome.program) == (False, (), "/bin/bash")


@pytest.mark.parametrize("host", ["p1", "p2"])
def test_node_without_our_programs_turns_the_job_away_before_it_begins(mom: Mom, host: str) -> None:
    (mom.place / "opt/bin/vtorque-shell").unlink()
    outcome = mom.play(record("0.p0", host, "EXECJOB_BEGIN"))
    assert (outcome.accepted, outcome.calls) == (False, ())
    assert host in outcome.message
    late = mom.play(record("0.p0", "p1", "EXECJOB_LAUNCH"))
    assert (late.accepted, late.calls) == (False, ("delete",))


def test_job_that_is_held_is_held_by_the_hook_and_queued_again(mom: Mom, material: OpenPbsMaterial) -> None:
    orders = [["hold", "0.p0"], ["comment", "0.p0", "vtorque: held: no pool, \n'x'"]]
    mom.play_scenario({"begin-first": {"orders": orders, "end": "AGAIN"}})
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    assert (outcome.accepted, outcome.calls) == (False, ("rerun",))
    assert outcome.set == {"Hold_Types": "u"}, "a comment of the hook's never reaches the server"
    assert material.read_orders() == ["qalter -W comment=vtorque: held: no pool x 0.p0"]


@pytest.mark.parametrize(("end", "accepted"), [("AGAIN", False), ("DONE", True)])
def test_node_with_a_proved_fault_is_set_offline_by_the_hook(
    mom: Mom, material: OpenPbsMaterial, end: str, accepted: bool
) -> None:
    mom.play_scenario({"begin-first": {"orders": [["offline", "p1", NOTE]], "end": end}})
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    assert outcome.accepted is accepted
    assert outcome.vnodes == {"p1": {"state": "offline", "comment": NOTE}}
    assert material.read_orders() == []
    assert "'offline'" in outcome.errors, "our program saw the node offline"


def test_node_of_another_hook_is_set_offline_by_a_command(mom: Mom, material: OpenPbsMaterial) -> None:
    mom.play_scenario({"begin-first": {"orders": [["offline", "p2", NOTE]], "end": "AGAIN"}})
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    assert outcome.vnodes == {}
    assert material.read_orders() == [f"-o -C {NOTE} p2"]


def test_note_of_an_administrator_stays(mom: Mom, material: OpenPbsMaterial) -> None:
    material.write_note("fan")
    mom.play_scenario({"begin-first": {"orders": [["offline", "p1", NOTE]], "end": "AGAIN"}})
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    assert (outcome.vnodes, outcome.calls) == ({}, ("rerun",))


@pytest.mark.parametrize("end", ["FAILED", "BRAKE"])
def test_program_that_could_not_work_lets_nothing_run(mom: Mom, end: str) -> None:
    mom.play_scenario({"begin-first": {"end": end}})
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    assert (outcome.accepted, outcome.calls) == (False, ())
    alone = mom.play(record("34.p0", "p1", "EXECJOB_PROLOGUE"))
    assert (alone.accepted, alone.calls) == (False, ("delete",)), "an interactive job cannot be queued again"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_program_that_a_signal_killed_lets_nothing_run(mom: Mom, number: int) -> None:
    mom.play_scenario({"begin-first": {"dies": int(number)}})
    assert not mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE")).accepted


def test_hook_that_a_signal_killed_has_accepted_and_the_shell_runs_nothing(mom: Mom) -> None:
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"), dies_of=signal.SIGKILL)
    assert (outcome.killed, outcome.accepted) == (True, True)
    assert mom.calls() == []
    assert mom.play(record("0.p0", "p1", "EXECJOB_LAUNCH")).argv == (f"{mom.place}/opt/bin/vtorque-shell",)
    variables = OpenPbsMaterial.environment
    with pytest.raises(start_record.NoStartRecord, match="no virtual machine was made ready"):
        start_record.read_start_record(job_shell.own_job(variables), job_shell.job_id_of(variables))


@pytest.mark.parametrize(
    "facts",
    [
        {"id": "../7"}, {"id": "0.p0;reboot"}, {"id": "None"}, {"euser": "al ice"}, {"euser": "-x"}, {"euser": "None"},
        {"exec_host2": "None"}, {"exec_host2": "p1"}, {"exec_host2": "p1:15002/0*99999999"}, {"exec_host2": "../x/0"},
        {"exec_host2": "p1;x:15002/0"}, {"run_count": "None"}, {"run_count": "1;2"},
    ],
)  # fmt: skip
def test_event_with_odd_facts_lets_nothing_run_and_asks_for_nothing(mom: Mom, facts: dict[str, str]) -> None:
    outcome = mom.play(changed(record("0.p0", "p1", "EXECJOB_PROLOGUE"), **facts))
    assert (outcome.accepted, outcome.set, outcome.vnodes) == (False, {}, {})
    assert mom.calls() == []
    assert [path.name for path in (mom.place / "run").iterdir()] == ["openpbs"], "no path of a name's making"


@pytest.mark.parametrize(
    "answer",
    [
        "{", "[]\n", '{"order": "reboot"}\n', '{"order": "offline", "note": "fan"}\n', '{"order": "offline"}\n',
        "x" * 100_000, "\udcff".encode(errors="surrogateescape").decode(errors="replace"),
    ],
)  # fmt: skip
def test_answer_of_another_form_lets_nothing_run(mom: Mom, answer: str) -> None:
    mom.play_scenario({"begin-first": {"writes": answer}})
    outcome = mom.play(record("0.p0", "p1", "EXECJOB_PROLOGUE"))
    assert (outcome.accepted, outcome.vnodes, outcome.set) == (False, {}, {})


def test_job_that_is_deleted_while_guests_boot_ends_our_program(mom: Mom) -> None:
    mom.play_scenario({"begin-first": {"waits": True}})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        prologue = pool.submit(mom.play, record("0.p0", "p1", "EXECJOB_PROLOGUE"))
        until = time.monotonic() + 60
        while not mom.calls() and time.monotonic() < until:
            time.sleep(0.02)
        preterm = {**record("0.p0", "p2", "EXECJOB_PRETERM"), "host": "p1", "in_ms_mom": "True"}
        other = changed(preterm, id="1.p0")
        assert mom.play(other).accepted
        assert not prologue.done()
        assert mom.play(preterm).accepted
        assert prologue.result(timeout=60).accepted, "the server ends the job: it is not to come back"
    assert list((mom.place / "run/openpbs").iterdir()) == []
    assert mom.play(preterm).accepted, "nothing is at work any more"


@pytest.mark.parametrize("event", ["EXECJOB_ABORT", "EXECJOB_END"])
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("made", ["run/jobs/4-1.p0.1", "state/guests/4-1.p0.2", "run/jobs/44-1.p0.1", ""])
def test_what_was_made_on_a_node_is_taken_away_without_an_epilogue(
    mom: Mom, event: str, marked: bool, made: str
) -> None:
    if made:
        (mom.place / made).mkdir(parents=True)
    of_sister = changed(record("0.p0", "p2", "EXECJOB_END"), id="4[1].p0")
    request = "vtorque:abc" if marked else None
    assert mom.play({**of_sister, "event": event}, request=request).accepted
    assert [call["role"] for call in mom.calls()] == (["end-other"] if "/4-1." in made else [])


def test_end_that_fails_is_no_reason_to_reject(mom: Mom) -> None:
    mom.play_scenario({"end-first": {"end": "FAILED"}})
    assert mom.play(record("0.p0", "p1", "EXECJOB_EPILOGUE")).accepted
    (mom.place / "opt/venv/bin/python").unlink()
    assert mom.play(record("0.p0", "p1", "EXECJOB_EPILOGUE")).accepted


class RealSite:
    """A job of root's on this host, whose hook calls our program itself.

    Args:
        mom: plays its events.
        material: the server.
    """

    def __init__(self, mom: Mom, material: OpenPbsMaterial) -> None:
        self.mom, self.material = mom, material
        mom.play_scenario({"begin-first": {"real": True}})
        names = ("batch_system", "torque_home", "pbs_qsub_on_nodes")
        settings = {"vm_img_dir": f"{mom.place}/none", **{name: getattr(material.policy, name) for name in names}}
        (mom.place / "vtorque.yml").write_text(policy_text(settings))
        for directory in (mom.place / "run", mom.place / "state"):
            directory.mkdir(mode=0o711)
        hooks = pathlib.Path(material.policy.torque_home) / "mom_priv/hooks"
        hooks.mkdir()
        (hooks / "vtorque.HK").write_text("alarm=600\n")

    def begin(self, **facts: t.Any) -> Outcome:
        """Play the begin and the prologue of a start of which the server says this."""
        answer = json.loads((FIXTURES / "qstat-f.json").read_text())
        job = answer["Jobs"]["0.p0"]
        job.update(job_state="R", euser="root", Job_Owner="root@p0", Resource_List={"vtorque": REQUEST})
        job.update(facts)
        (self.material.place / "job.json").write_text(json.dumps(answer))
        qstat = self.material.place / "bin/qstat"
        qstat.write_text(f"#!/bin/sh\ncat {self.material.place}/job.json\n")
        of_mom = {"euser": "root", "egroup": "root", "run_count": str(job["run_count"])}
        self.mom.play(changed(record("0.p0", "p1", "EXECJOB_BEGIN"), **of_mom))
        return self.mom.play({**changed(record("0.p0", "p1", "EXECJOB_PROLOGUE"), **of_mom), "ppid": os.getpid()})


def test_our_program_holds_a_job_that_runs_in_circles(mom: Mom, material: OpenPbsMaterial) -> None:
    outcome = RealSite(mom, material).begin(run_count=20)
    assert (outcome.accepted, outcome.calls) == (False, ("rerun",))
    assert outcome.set == {"Hold_Types": "u"}
    assert "qrls 0.p0 releases it" in outcome.errors
    (order,) = material.read_orders()
    assert order.startswith("qalter -W comment=vtorque: held: it was started 20 times")


def test_job_is_held_where_root_of_the_node_may_not_say_why(mom: Mom, material: OpenPbsMaterial) -> None:
    qalter = material.place / "bin/qalter"
    qalter.write_text('#!/bin/sh\necho "qalter: Unauthorized Request  0.p0" >&2\nexit 159\n')
    outcome = RealSite(mom, material).begin(run_count=20)
    assert (outcome.calls, outcome.set) == (("rerun",), {"Hold_Types": "u"})


@pytest.mark.parametrize("event", ["EXECJOB_POSTSUSPEND", "EXECJOB_PRERESUME"])
@pytest.mark.parametrize("request_of_job", [REQUEST, None])
def test_worker_of_a_job_hears_that_it_is_suspended_or_goes_on(
    mom: Mom, event: str, request_of_job: str | None
) -> None:
    """The MOM stops the job's shell by SIGSTOP, which no process hears."""
    suspended = {**record("0.p0", "p1", "EXECJOB_LAUNCH"), "event": event}
    assert mom.play(suspended, request=request_of_job).accepted, "nothing of it is here"
    directory = mom.place / "run/jobs/0.p0.1"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "bell")
    assert mom.play(suspended, request=request_of_job).accepted, "nobody listens"
    bell = shell_message.NotificationFifo(directory)
    assert mom.play(suspended, request=request_of_job).accepted
    assert bell.read_all() == (b"." if request_of_job else b"")
    assert mom.calls() == []
    bell.close()


def test_refusal_of_our_program_is_for_the_shell_to_tell(mom: Mom, material: OpenPbsMaterial) -> None:
    outcome = RealSite(mom, material).begin(exec_host="p2/0*2+p1/0*2")
    assert (outcome.accepted, outcome.calls, outcome.set) == (True, (), {})
    refusal = json.loads((mom.place / "run/jobs/0.p0.1/refusal.json").read_text())
    assert refusal["what"] == "the script of job 0.p0 is to run on p2"
    (link,) = (mom.place / "run/shells").iterdir()
    assert link.name.startswith(f"{os.getpid()}."), "by the process that becomes the job's shell"
    assert link.readlink().name == "0.p0.1"


def test_job_of_somebody_else_is_tried_again_and_gets_no_guest(mom: Mom, material: OpenPbsMaterial) -> None:
    outcome = RealSite(mom, material).begin(euser="alice", Job_Owner="alice@p0")
    assert (outcome.accepted, outcome.calls, outcome.set) == (False, ("rerun",), {})
    assert "root's for the batch system on this node" in outcome.errors


def test_user_whom_the_server_hides_is_the_moms_for_our_program(mom: Mom, material: OpenPbsMaterial) -> None:
    """Root of a node is an operator and no manager, to whom alone OpenPBS 23.06.06 shows `euser` and `egroup`."""
    outcome = RealSite(mom, material).begin(euser="", egroup="")
    snapshot = json.loads((mom.place / "run/jobs/0.p0.1/job.json").read_text())
    assert (snapshot["euser"], snapshot["egroup"]) == ("root", "root")
    assert "as whom it runs" not in outcome.errors


def test_hook_is_short_and_needs_nothing_but_python_and_pbs() -> None:
    text = render(pathlib.Path("/nowhere"))
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"contextlib", "fcntl", "json", "os", "pbs", "signal", "subprocess", "tempfile"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert len(text.splitlines()) <= 255
    assert text.isascii()


def test_bare_job_pays_for_no_import_but_of_what_is_there_already(tmp_path: pathlib.Path) -> None:
    """Python itself has loaded os; subprocess and json would cost each event of each job ten times that of the rest."""
    stand_in = "EXECJOB_BEGIN = EXECJOB_PROLOGUE = EXECJOB_LAUNCH = EXECJOB_PRETERM = EXECJOB_ABORT = EXECJOB_END = 1\n"
    stand_in += "EXECJOB_EPILOGUE, EXECJOB_POSTSUSPEND, EXECJOB_PRERESUME = 2, 3, 4\n"
    stand_in += "class UnsetResourceNameError(Exception): pass\n"
    stand_in += "class Job:\n id, Resource_List = '7.p0', {}\n"
    stand_in += "class Event:\n job = Job()\n type = TYPE\n def accept(self): print('accepted')\n"
    stand_in += "def event(): return Event()\n"
    (tmp_path / "hook.py").write_text(render(tmp_path))
    for kind in (1, 2, 3, 4):
        (tmp_path / "pbs.py").write_text(stand_in.replace("TYPE", str(kind)))
        program = f"import os, sys; sys.path.insert(0, {str(tmp_path)!r}); former = set(sys.modules); import hook; "
        program += "print(*sorted(set(sys.modules) - former))"
        done = subprocess.run([sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True)
        assert done.stdout.splitlines() == ["accepted", "hook pbs"]

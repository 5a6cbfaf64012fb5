# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The adapter against what TORQUE 6.1.3 wrote (tests/fixtures/torque), and against what it might."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import NOTE_PREFIX, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import adapter, answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.job_signals import CHECKPOINT, PARK
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/torque"
COMPLETE = (FIXTURES / "qstat-x-f-complete-2-nodes.xml").read_bytes()


# the commands: a recorder stands in for each, and plays back what is asked of it

PROGRAM = """#!/usr/bin/python3 -I
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
tool = pathlib.Path(sys.argv[0]).name
with open(here / "calls", "a") as calls:
    calls.write(json.dumps([tool, *sys.argv[1:], dict(os.environ)]) + "\\n")
state = json.loads((here / "state").read_text())
if tool == "pbsnodes" and sys.argv[1] in ("-o", "-c") and not state.get("deaf"):
    state.update(note=sys.argv[3], state="offline" if sys.argv[1] == "-o" else "free")
    (here / "state").write_text(json.dumps(state))
if tool in state.get("fails", ()):
    state["state"] = state.get("then", "R")
    (here / "state").write_text(json.dumps(state))
    sys.exit(f"{tool}: Unauthorized Request 7.s")
if tool == "qhold" and not state.get("deaf"):
    state["holds"] = "u"
    (here / "state").write_text(json.dumps(state))
if tool == "pbsnodes" and sys.argv[1] == "-x":
    if sys.argv[2:] and sys.argv[2:] != ["n1.site"]:
        sys.exit("pbsnodes: Error (15064 - Unknown node) MSG=cannot locate specified node")
    note = f"<note>{state['note']}</note>" if state["note"] else ""
    print(f"<Data><Node><name>n1.site</name><state>{state['state']}</state><np>4</np>{note}</Node></Data>")
if tool == "qstat":
    if state.get("hang"):
        os.read(os.open(here / "never", os.O_RDONLY), 1)
    if state.get("status"):
        sys.exit(state["status"])
    print(f"<Data><Job><Job_Id>7.s</Job_Id><Hold_Types>{state['holds']}</Hold_Types>"
          f"<job_state>{state['state']}</job_state></Job></Data>")
"""


class Recorder:
    """The commands of a batch system that does as it is told, and writes down what that was."""

    def __init__(self, here: pathlib.Path, **state: object) -> None:
        self.here = here
        for tool in ("qstat", "pbsnodes", "qhold", "qrls", "qrerun", "qalter", "qsig"):
            (here / tool).write_text(PROGRAM)
            (here / tool).chmod(0o755)
        (here / "state").write_text(json.dumps({"note": "", "state": "free", "holds": "n", **state}))

    @property
    def calls(self) -> list[list[str]]:
        """The commands in order, without their environment."""
        return [json.loads(line)[:-1] for line in (self.here / "calls").read_text().splitlines()]


def test_commands_get_a_clean_environment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.setenv("PBS_DEFAULT", "elsewhere")
    Recorder(tmp_path)
    assert adapter.Torque(tmp_path).job("7.s").job_id == "7.s"
    seen = json.loads((tmp_path / "calls").read_text())[-1]
    assert {name for name in seen if name not in ("LC_CTYPE",)} == {"PATH", "LC_ALL"}


def test_all_jobs_are_read_and_none_is_no_error(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path)
    assert [job.job_id for job in adapter.Torque(tmp_path).all_jobs()] == ["7.s"]
    assert recorder.calls == [["qstat", "-x", "-f"]]
    (tmp_path / "qstat").write_text("#!/bin/sh\n")
    assert adapter.Torque(tmp_path).all_jobs() == ()
    (tmp_path / "qstat").write_bytes(b"#!/bin/sh\ncat <<'E'\n" + COMPLETE + b"\nE\n")
    assert [(job.job_id, job.started_s > 0) for job in adapter.Torque(tmp_path).all_jobs()] == [("11.th", True)]


def test_server_that_hangs_is_a_site_fault(tmp_path: pathlib.Path) -> None:
    Recorder(tmp_path, hang=True)
    os.mkfifo(tmp_path / "never")
    with pytest.raises(SiteFault, match=r"did not answer within 0\.5 s") as caught:
        adapter.Torque(tmp_path, timeout_s=0.5).job("7.s")
    assert not isinstance(caught.value, UnknownJob)


@pytest.mark.parametrize(("status", "unknown"), [(153, True), (111, False), (1, False)])
def test_failing_qstat(tmp_path: pathlib.Path, status: int, unknown: bool) -> None:
    Recorder(tmp_path, status=status)
    with pytest.raises(SiteFault) as caught:
        adapter.Torque(tmp_path).job("7.s")
    assert isinstance(caught.value, UnknownJob) is unknown


def test_missing_command_is_a_site_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="cannot be run"):
        adapter.Torque(tmp_path).nodes()


@pytest.mark.parametrize("job_id", ["-x", "7", "7.s;x", "../7.s"])
def test_only_job_ids_reach_qstat(tmp_path: pathlib.Path, job_id: str) -> None:
    Recorder(tmp_path)
    with pytest.raises(SiteFault, match="job id"):
        adapter.Torque(tmp_path).job(job_id)
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("name", ["n1", "n1.site"])
def test_offline_with_our_note_and_back(tmp_path: pathlib.Path, name: str) -> None:
    recorder = Recorder(tmp_path)
    batch = adapter.Torque(tmp_path)
    assert batch.offline(name, "libvirt is\ndead").offline
    assert batch.note(name) == f"{NOTE_PREFIX}libvirt is dead"
    assert batch.clear(name, "another cause") is False
    assert batch.clear(name, "libvirt is dead") is True
    assert batch.note(name) == ""
    report = [call for call in recorder.calls if call[1] != "-x"]
    assert report == [["pbsnodes", "-o", "-N", "vtorque: libvirt is dead", "n1.site"],
                    ["pbsnodes", "-c", "-N", "", "n1.site"]]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "asked"),
    [("n1.site", [["-x", "n1.site"]]), ("n1", [["-x", "n1"], ["-x"]])],
    ids=["its name", "another form of it"],
)
def test_a_note_is_asked_for_without_the_other_nodes(tmp_path: pathlib.Path, name: str, asked: list[list[str]]) -> None:
    recorder = Recorder(tmp_path, note="broken fan")
    assert adapter.Torque(tmp_path).note(name) == "broken fan"
    assert [call[1:] for call in recorder.calls] == asked


@pytest.mark.parametrize(
    "state", [{"note": "broken fan"}, {"note": "broken fan", "state": "offline"}, {"state": "offline"}]
)
def test_what_an_administrator_said_is_left_alone(tmp_path: pathlib.Path, state: dict[str, str]) -> None:
    recorder = Recorder(tmp_path, **state)
    batch = adapter.Torque(tmp_path)
    node = batch.offline("n1", "libvirt is dead")
    assert (node.note, node.offline) == (state.get("note", ""), state.get("state") == "offline")
    assert batch.clear("n1", "libvirt is dead") is False
    assert all(call[1] == "-x" for call in recorder.calls)


@pytest.mark.parametrize("report", ["offline", "hold"])
def test_what_does_not_stick_is_a_site_fault(tmp_path: pathlib.Path, report: str) -> None:
    Recorder(tmp_path, deaf=True)
    batch = adapter.Torque(tmp_path)
    with pytest.raises(SiteFault, match="is not"):
        batch.offline("n1", "x") if report == "offline" else batch.hold("7.s")


def test_hold_is_the_owners_to_release(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path)
    adapter.Torque(tmp_path).hold("7.s")
    assert recorder.calls[0] == ["qhold", "-h", "u", "7.s"]


def test_owner_asks_for_a_checkpoint_or_a_suspension_by_a_signal(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path)
    adapter.Torque(tmp_path).request_checkpoint("7.s")
    adapter.Torque(tmp_path).request_checkpoint("7.s", park=True)
    assert recorder.calls == [["qsig", "-s", str(CHECKPOINT), "7.s"], ["qsig", "-s", str(PARK), "7.s"]]


def test_job_that_is_parked_is_held_before_it_is_queued_again(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path)
    adapter.Torque(tmp_path).park("7.s")
    assert [call for call in recorder.calls if call[0] != "qstat"] == [["qhold", "-h", "u", "7.s"], ["qrerun", "7.s"]]


def test_job_that_cannot_be_queued_again_runs_on_without_a_hold(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, fails=["qrerun"])
    with pytest.raises(SiteFault, match="Unauthorized"):
        adapter.Torque(tmp_path).park("7.s")
    assert recorder.calls[-1] == ["qrls", "-h", "u", "7.s"]


def test_job_that_was_queued_again_although_the_command_failed_stays_held(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, fails=["qrerun"], then="E")
    adapter.Torque(tmp_path).park("7.s")
    assert "qrls" not in [call[0] for call in recorder.calls]


@pytest.mark.parametrize(("word", "may"), [("True", True), ("False", False), ("", True)])
def test_job_may_run_again_unless_its_owner_has_denied_it(word: str, may: bool) -> None:
    given = f"<Rerunable>{word}</Rerunable>" if word else ""
    (job,) = answers.parse_jobs(f"<Data><Job><Job_Id>7.s</Job_Id>{given}</Job></Data>".encode())
    assert job.rerunnable == may


def test_job_without_room_is_suspended_again(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path)
    with pytest.raises(SiteFault, match=r"job 7\.s is not suspended"):  # nobody plays the server's part
        adapter.Torque(tmp_path).suspend("7.s")
    assert recorder.calls[0] == ["qsig", "-s", "suspend", "7.s"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("held by vtorque: t1: no bridge", "held by vtorque: t1: no bridge"),
        ("a=b,Hold_Types=n 'x' \"y\"\n\x1bz", "a b Hold_Types n x y z"),
        ("x" * 300, "x" * 200),
    ],
)
def test_comment_is_one_value_of_one_attribute(tmp_path: pathlib.Path, text: str, written: str) -> None:
    recorder = Recorder(tmp_path)
    adapter.Torque(tmp_path).comment("7.s", text)
    assert recorder.calls == [["qalter", "-W", f"comment={written}", "7.s"]]


def test_no_command_is_begun_after_the_deadline(tmp_path: pathlib.Path) -> None:
    Recorder(tmp_path)
    batch = adapter.Torque(tmp_path, deadline=Deadline.after(-1))
    with pytest.raises(SiteFault, match="no time is left"):
        batch.job("7.s")
    assert not (tmp_path / "calls").exists()


def test_command_ends_at_the_deadline_of_all(tmp_path: pathlib.Path) -> None:
    Recorder(tmp_path, hang=True)
    os.mkfifo(tmp_path / "never")
    with pytest.raises(SiteFault, match=r"did not answer within 0\.\d+ s"):
        adapter.Torque(tmp_path, timeout_s=600, deadline=Deadline.after(0.5)).job("7.s")


def test_node_that_the_server_does_not_know(tmp_path: pathlib.Path) -> None:
    Recorder(tmp_path)
    with pytest.raises(SiteFault, match="no nodes of that name"):
        adapter.Torque(tmp_path).note("n2")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a start that failed: its job, its node, and who is told."""

from __future__ import annotations

import pwd
import signal
import syslog

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.hook_calls import REQUEUE
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.prologue import Ending
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict import array_brake
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import main

from .hook_site import JOB_ID, USER, Site, readable_by


@pytest.mark.parametrize(
    "error", [errors.UserFault("img=x", "no such image"), errors.ImageFault("img=x", "boots nowhere")]
)
def test_fault_of_the_job_leaves_a_refusal_for_its_shell(site: Site, error: errors.VTorqueError) -> None:
    site.fail(error)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (0, "")
    refusal = site.refusal()
    assert (refusal["fault"], refusal["what"], refusal["why"]) == (error.fault, error.what, error.why)
    assert (refusal["job_id"], refusal["start"], refusal["lines"]) == (JOB_ID, 3, [])
    assert site.link.readlink() == site.directory
    assert f"user:{pwd.getpwnam(USER).pw_uid}:r--" in readable_by(site.directory / "refusal.json")
    (part,) = site.asked()
    assert (part.do, part.job_id, part.start, part.node, part.guests) == ("absent", JOB_ID, 3, "t1", ())
    assert site.reported() == []
    assert site.verdict()["action"] == "refuse"
    assert not (site.state_dir / "log").exists()


def refuse_others(site: Site) -> None:
    """Two other members of the array were refused here just now."""
    site.run_dir.mkdir(exist_ok=True)
    for member in ("12[2].th", "12[3].th"):
        array_brake.record_refusal(member, site.run_dir)


def test_node_that_refuses_member_after_member_holds_the_next(site: Site) -> None:
    site.fail(errors.ImageFault("img=x", "is no image"))
    refuse_others(site)
    done = site.prologue()
    assert done.returncode == REQUEUE
    assert site.held()
    assert "has turned 2 members of this array away" in done.stderr
    assert "ALARM" in (site.state_dir / "log/hooks.log").read_text()


def test_member_that_cannot_be_held_takes_its_time(site: Site) -> None:
    """The launcher, which hears a status that is neither 0 nor the verdict's, lets it wait."""
    site.deafen("qhold")
    site.fail(errors.ImageFault("img=x", "is no image"))
    refuse_others(site)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (hook_calls.FAILED, "")
    assert site.verdict()["action"] == "refuse"
    assert site.refusal()["fault"] == "image"


BRIDGE = errors.NodeFault("t1: bridge br0", "is missing on this node", "make it", cause="bridge")


HELD = "the job is held: qrls 12[1].th releases it for 3 more tries"


NOTE = "vtorque: bridge: bridge br0: is missing on this node (job 12[1].th)"


@pytest.mark.parametrize(
    ("error", "start", "offline", "end"),
    [
        (BRIDGE, 1, True, "the job is tried again"),
        (BRIDGE, 3, True, HELD),
        (errors.NodeFault("t1", "has trouble"), 1, False, "the job is tried again"),
        (errors.SiteFault("the pool", "cannot be read"), 2, False, "the job is tried again"),
        (errors.SiteFault("the pool", "cannot be read"), 3, False, HELD),
        (errors.VTorqueError("guest", "was silent"), 2, False, "the job is tried again"),
        (errors.VTorqueError("guest", "panic"), 6, False, HELD),
        (errors.ImpostorFault("guest", "another key"), 1, False, HELD.partition(" for ")[0]),
    ],
)  # fmt: skip
def test_other_faults_requeue_the_job_or_hold_it(
    site: Site, error: errors.VTorqueError, start: int, offline: bool, end: str
) -> None:
    site.job(start=start)
    site.fail(error)
    done = site.prologue()
    tried = (start - 1) % 3 + 1
    assert done.returncode == REQUEUE
    lines = done.stderr.splitlines()
    assert lines[0] == f"vtorque: this job did not run: {error.what}: {error.why} (try {tried} of 3)"
    assert lines[-1] == f"  {end}"
    assert site.get_node("t1") == (("offline", NOTE) if offline else ("free", ""))
    assert (f"  t1 is set offline: {NOTE}" in lines) is offline
    assert site.held() == ("held" in end)
    comment = [line for line in site.reported() if line.startswith("qalter")]
    assert bool(comment) == site.held()
    assert all(line.startswith("qalter -W comment=vtorque: held: ") for line in comment)
    key = f"12-1.th.{start}"
    assert site.refusal(key)["what"] == error.what  # whatever becomes of the status, nothing runs
    verdict = site.verdict(key)
    outcome = verdict.pop("lines")
    assert [f"  {line}" for line in outcome] == lines[-len(outcome) :]
    assert outcome[-1] == end
    assert verdict == {
        "fault": error.fault, "action": "hold" if site.held() else "requeue", "try": tried, "of": 3,
        "node": "t1" if offline else "", "note": NOTE if offline else "",
    }  # fmt: skip
    assert [part.do for part in site.asked()] == ["absent"]
    alarm = site.state_dir / "log/hooks.log"
    assert alarm.exists() == (offline or site.held())
    assert not alarm.exists() or end in alarm.read_text()


@pytest.mark.parametrize(
    ("text", "start", "of", "held"),
    [
        ("brigde: br0\n", 2, 3, False),
        ("brigde: br0\n", 3, 3, True),
        ("brigde: br0\nnode_fault_retries: 2\n", 2, 2, True),
        ("bridge: [br0]\nnode_fault_retries: many\n", 3, 3, True),
    ],
)
def test_broken_configuration_is_the_sites_fault_within_bounds(
    site: Site, text: str, start: int, of: int, held: bool
) -> None:
    """What can be read of it reaches the server and bounds the tries; nothing is made, and no node is blamed."""
    site.policy(text)
    site.job(start=start)
    done = site.prologue()
    assert done.returncode == REQUEUE
    assert f"(try {start} of {of})" in done.stderr.splitlines()[0]
    assert text.split(":")[0] in done.stderr
    assert (site.held(), site.played(), site.asked()) == (held, [], [])
    assert [site.get_node(name) for name in ("t1", "t2", "t3")] == [("free", "")] * 3
    assert site.refusal(f"12-1.th.{start}")["fault"] == "site"


def test_configuration_that_cannot_be_read_at_all_ends_a_job_that_nobody_can_ask_for(site: Site) -> None:
    """The defaults find no batch system here: the shell is told of both."""
    (site.place / "etc/vtorque.yml").write_text("a: [\n")
    assert site.prologue().returncode == 0
    refusal = site.refusal("12-1.th.0")
    assert "not YAML: line 2, column 1" in refusal["why"]
    assert "qstat" in refusal["why"]


def test_broken_configuration_is_no_concern_of_another_job(site: Site) -> None:
    site.policy("brigde: br0\n")
    done = site.prologue(marker="unknown")
    assert (done.returncode, done.stderr) == (0, "")
    assert not site.link.is_symlink()


def test_interactive_job_is_refused_and_its_node_goes_offline(site: Site) -> None:
    site.job(start=1, interactive=True)
    site.fail(BRIDGE)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.get_node("t1") == ("offline", NOTE)
    lines = site.refusal("12-1.th.1")["lines"]
    assert lines[0] == f"t1 is set offline: {NOTE}"
    assert lines[1].startswith("this is not a fault of the job: tell the administrator that it failed on ")
    assert not site.held()


def test_brake_holds_the_job_and_is_said_loudly(site: Site) -> None:
    site.job(start=1)
    for name in ("t2", "t3"):
        site.set_node(name, "offline", "vtorque: disk: full (job 1.th)")
    site.fail(BRIDGE)
    done = site.prologue()
    assert done.returncode == REQUEUE
    assert site.held()
    assert site.get_node("t1") == ("free", "")
    assert "2 of 3 nodes carry a note of vTorque already" in done.stderr
    assert "ALARM" in (site.state_dir / "log/hooks.log").read_text()


def test_administrators_note_is_left_alone_and_the_job_is_held(site: Site) -> None:
    site.job(start=1)
    site.set_node("t1", "free", "fan is loud")
    site.fail(BRIDGE)
    assert site.prologue().returncode == REQUEUE
    assert site.get_node("t1") == ("free", "fan is loud")
    assert site.held()


@pytest.mark.parametrize(
    ("deaf", "start", "message"),
    [("qhold", 3, "the job cannot be held: qhold"), ("qhold pbsnodes", 1, "does not tell of its nodes")],
)
def test_job_that_cannot_be_held_is_refused(site: Site, deaf: str, start: int, message: str) -> None:
    """A status other than 0 would run it in circles."""
    site.job(start=start)
    for tool in deaf.split():
        site.deafen(tool)
    site.fail(BRIDGE)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (hook_calls.FAILED, "")
    assert message in " ".join(site.refusal(f"12-1.th.{start}")["lines"])
    assert site.verdict(f"12-1.th.{start}")["action"] == "refuse"
    assert "ALARM" in (site.state_dir / "log/hooks.log").read_text()


@pytest.mark.parametrize(
    ("later", "status"),
    [("sed s/HOLDS/n/ {place}/job", 75), ("exit 111", 75), ("exit 153", 0), ("sed 's/t>3</t>4</' {place}/job", 0)],
)
def test_start_that_is_over_for_the_server_is_only_refused(site: Site, later: str, status: int) -> None:
    """What runs elsewhere by now is not to be held, and the number of this start bounds nothing any more."""
    site.policy("node_fault_retries: 2\n")
    tail = later.format(place=site.place)
    site.fail(errors.SiteFault("the pool", "cannot be read"))
    first = (
        f"[ ! -e {site.place}/asked-before ] && : >{site.place}/asked-before && exec sed s/HOLDS/n/ {site.place}/job"
    )
    site.qstat(f"{first}\n{tail}\n")
    assert site.prologue().returncode == status
    assert site.reported() == []
    assert site.refusal()["fault"] == "site"


@pytest.mark.parametrize("tool", ["pbsnodes", "qhold", "node"])
def test_hook_that_is_killed_amid_its_verdict_leaves_a_refusal(site: Site, tool: str) -> None:
    """Torque takes it for a success, and the launcher has no 75 from it."""
    site.fail(BRIDGE)
    site.program(tool, "#!/bin/sh\nkill -9 $PPID\n")
    done = site.prologue()
    assert done.returncode == 128 + signal.SIGKILL
    assert site.refusal()["what"] == BRIDGE.what
    assert not (site.directory / "ready.json").exists()
    assert site.link.readlink() == site.directory


@pytest.mark.parametrize("interactive", [False, True])
def test_loop_that_is_not_ours_is_held_on_entry(site: Site, interactive: bool) -> None:
    site.job(start=20, interactive=interactive)
    done = site.prologue()
    assert site.played() == []
    assert site.held() is not interactive
    assert done.returncode == (0 if interactive else REQUEUE)
    assert ("it was started 20 times" in done.stderr) is not interactive
    assert site.refusal("12-1.th.20")["fault"] == "loop"


@pytest.mark.parametrize(("grave", "level"), [(True, "LOG_CRIT"), (False, "LOG_WARNING")])
def test_alarm_reaches_the_system_log(monkeypatch: pytest.MonkeyPatch, grave: bool, level: str) -> None:
    output: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, text: output.append((priority, text)))
    main.raise_alarm("t1 is set offline \x1b[2J", grave=grave)
    assert output == [(getattr(syslog, level), "t1 is set offline ?[2J")]


def test_administrator_is_told_before_the_jobs_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's error file may be a pipe of its owner's (`-k e`), who need not read it: there the hook may end."""
    report: list[str] = []
    ending = Ending(requeue=True, message=("held",), alarm="t1 is set offline", grave=True)
    monkeypatch.setattr(main, "_reset_process", lambda: None)
    monkeypatch.setattr(main, "_dispatch", lambda *_words: ending)
    for name in ("_log_to_site", "raise_alarm", "_print_error"):
        monkeypatch.setattr(main, name, lambda *_words, _name=name, **_how: report.append(_name))
    assert main.main(["prologue", "yes", "1", "t1", JOB_ID, USER]) == REQUEUE
    assert report == ["_log_to_site", "raise_alarm", "_print_error"]


def test_system_log_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "syslog", lambda _priority, _text: signal.pause())
    former = signal.getsignal(signal.SIGALRM)
    main.raise_alarm("t1", grave=True)
    assert signal.getsignal(signal.SIGALRM) is former
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_full_run_directory_stops_no_verdict(site: Site) -> None:
    """Without a refusal the shell finds no record at all, and runs nothing either."""
    site.job(start=1)
    site.play("exit 4")
    (site.run_dir / "shells").parent.mkdir()
    (site.run_dir / "shells").write_text("in the way")
    assert site.prologue().returncode == REQUEUE

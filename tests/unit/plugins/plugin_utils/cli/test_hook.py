# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prologue, run as the launcher runs it: what it plays, what it leaves, and what ends it."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import stat
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    UserFault,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.hook_calls import REQUEUE
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import ansible_process
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.time_budget import LOG_PROGRAM_S

from .hook_site import GONE, JOB_ID, KEY, NODE, READY, USER, Site, nothing_left, readable_by


def test_prologue_plays_the_playbook_for_this_start(site: Site) -> None:
    done = site.prologue()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert site.played() == [f"-i {site.directory}/job.pbs_nodefile.yml mikelangelo.vtorque.prologue"]
    lines = (site.place / "played").read_text().splitlines()
    assert f"shell={ProcessId.of(os.getpid())}" in lines
    assert f"config={site.place}/run/ansible.cfg" in lines
    assert json.loads((site.directory / "job.pbs_nodefile.yml").read_text()) == {
        "plugin": "mikelangelo.vtorque.pbs_nodefile", "job_id": JOB_ID, "config": str(site.place / "etc/vtorque.yml"),
        "nodefile": str(site.torque_home / "aux" / JOB_ID),
    }  # fmt: skip
    assert files.read_json(site.directory / "phase.prologue.json")["seconds"] >= 0
    assert not (site.directory / "refusal.json").exists()


def test_text_before_the_answer_of_qstat_is_quoted_in_the_log(site: Site) -> None:
    """A site's command may be a wrapper that prints a warning first."""
    site.qstat(f"echo 'qstat: the server is busy'; sed 's/HOLDS/n/' {site.place}/job")
    done = site.prologue()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (site.directory / "refusal.json").exists()
    log = (site.state_dir / "records" / KEY / "vtorque.log").read_text()
    assert (
        "the batch server's command wrote text before its answer, which was not read: qstat: the server is busy\n"
        in log
    )


def test_ansible_meets_nothing_of_torques(site: Site) -> None:
    """A clean environment, three descriptors, no blocked and no ignored signal."""
    assert site.prologue().returncode == 0
    names = set((site.place / "environment").read_text().split()) - {"PWD", "SHLVL", "_", "OLDPWD"}
    ours = {"ANSIBLE_CONFIG", "TMPDIR", "VTORQUE_DEADLINE", "VTORQUE_HOOK", "VTORQUE_SHELL"}
    assert names == {"PATH", "LC_ALL", "HOME", *ours}
    assert (site.place / "descriptors").read_text().split() == ["0", "1", "2", "3"]  # 3: of ls itself
    signals = dict(line.split(":\t") for line in (site.place / "signals").read_text().splitlines())
    assert int(signals["SigBlk"], 16) == 0
    # the C library keeps two numbers to itself, which nobody can set back
    assert [n for n in signal.valid_signals() if int(signals["SigIgn"], 16) >> (n - 1) & 1] == []


def test_modes(site: Site) -> None:
    """Whatever the umask: the owner passes through, reads what is his, and nothing else."""
    site.play(READY)
    assert site.prologue().returncode == 0
    for path in (site.run_dir, site.run_dir / "jobs", site.directory):
        assert stat.S_IMODE(path.stat().st_mode) == 0o711
    uid = pwd.getpwnam(USER).pw_uid
    assert stat.S_IMODE((site.state_dir / "records").stat().st_mode) == 0o755
    record = readable_by(site.state_dir / "records" / KEY)
    assert f"user:{uid}:r-x" in record
    assert {"group::---", "other::--x"} <= set(record.splitlines())
    log = site.state_dir / "records" / KEY / "vtorque.log"
    assert f"user:{uid}:r--" in readable_by(log)
    assert "other::---" in readable_by(log)
    assert stat.S_IMODE((site.directory / "job.pbs_nodefile.yml").stat().st_mode) == 0o400


@pytest.mark.parametrize(
    ("config", "log", "printed", "level"),
    [
        ("", {}, False, "info"),
        ("", {"show": True}, True, "info"),
        ("", {"debug": True}, False, "debug"),
        ("", {"trace": True}, False, "trace"),
        ("show_log_default: true\ndebug_default: true\n", {}, True, "debug"),
        ("show_log_default: true\ndebug_default: true\n", {"show": False, "debug": False}, False, "info"),
        ("trace_default: true\n", {}, False, "trace"),
        ("trace_default: true\n", {"trace": False}, False, "info"),
        ("trace_default: true\n", {"trace": False, "debug": True}, False, "debug"),
    ],
)
def test_owner_sees_what_the_prologue_does_when_he_asks(
    site: Site, config: str, log: dict[str, bool], printed: bool, level: str
) -> None:
    site.policy(config)
    site.job(request=Request().with_log(log).encode())
    site.play(f"echo 'TASK [one]'; {READY}")
    done = site.prologue()
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert ("vtorque: TASK [one]" in lines) == printed
    assert all(line.startswith("vtorque: ") for line in lines)
    assert bool(lines) == printed
    assert site.played()[-1].endswith(" -vv") == (level != "info")
    text = (site.state_dir / "records" / KEY / "vtorque.log").read_text()
    assert (" debug prologue: hosts t1" in text) == (level != "info")


def test_lines_of_a_hook_reach_the_file_of_the_site_by_its_own_levels(site: Site) -> None:
    """The owner's wish for detail fills the log of their job alone."""
    file = site.state_dir / "site.log"
    site.policy(f"log_file: {file}\nlog_format: json\nlog_levels: [verdict debug]\n")
    site.job(start=1, request=Request().with_log({"trace": True}).encode())
    site.play("exit 4")
    assert site.prologue().returncode == REQUEUE
    job_log = (site.state_dir / "records" / "12-1.th.1" / "vtorque.log").read_text()
    assert " debug prologue: hosts" in job_log
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    found = [(line["level"], line["component"]) for line in lines]
    assert found[0] == ("info", "prologue")
    assert {("error", "verdict"), ("debug", "verdict")} <= set(found)
    assert ("debug", "prologue") not in found
    assert {(line["program"], line["job"], line["host"]) for line in lines} == {
        ("hook", "12[1].th", os.uname().nodename.partition(".")[0])
    }
    assert all(line["message"] in job_log for line in lines if "\n" not in line["message"])


def test_program_of_the_site_that_hangs_delays_no_hook_and_gets_its_verdict(site: Site, tmp_path: pathlib.Path) -> None:
    place = pathlib.Path(f"/tmp/vtorque-hook-{os.getpid()}")
    place.mkdir(mode=0o777)
    try:
        place.chmod(0o777)
        program = place / "program"
        program.write_text(f"#!/bin/sh\ncat >{place}/$$.new\nmv {place}/$$.new {place}/$$.got\nexec sleep 600\n")
        program.chmod(0o755)
        site.policy(f"log_program: {program}\n")
        site.job(start=1)
        site.play("exit 4")
        began = time.monotonic()
        assert site.prologue().returncode == REQUEUE
        assert time.monotonic() - began < LOG_PROGRAM_S
        until = time.monotonic() + 60
        while not (found := list(place.glob("*.got"))):
            assert time.monotonic() < until, "the program got nothing"
            time.sleep(0.05)
        line = json.loads(found[0].read_text())
        assert (line["level"], line["component"], line["job"]) == ("error", "verdict", "12[1].th")
    finally:
        shutil.rmtree(place)


def test_playbook_that_is_killed_blames_nobody(site: Site) -> None:
    site.job(start=1)
    site.play("kill -9 $$")
    done = site.prologue()
    assert done.returncode == REQUEUE
    assert "ansible-playbook was killed by signal 9 (try 1 of 3)" in done.stderr
    assert site.verdict("12-1.th.1")["fault"] == "unclear"
    assert site.reported() == []


def test_failure_after_the_ready_record_takes_it_back(site: Site) -> None:
    site.play(READY.replace("exit 0", "exit 4"))
    assert site.prologue().returncode == REQUEUE
    assert not (site.directory / "ready.json").exists()
    assert "status 4" in site.refusal()["why"]


def test_success_without_a_ready_record_is_a_failure(site: Site) -> None:
    site.play("exit 0")
    assert site.prologue().returncode == REQUEUE
    assert "no ready record" in site.refusal()["why"]


def test_former_word_of_the_same_start_does_not_count(site: Site) -> None:
    """A server that was restored counts its jobs from a number that was given before."""
    site.fail(UserFault("old"))
    assert site.prologue().returncode == 0
    files.write(site.directory / "lost.json", "{}")
    (site.run_dir / ansible_process.SETTINGS).unlink()  # what would let a runner load beforehand, which this one cannot
    site.play(READY)
    assert site.prologue().returncode == 0
    assert not (site.directory / "refusal.json").exists()
    assert not (site.directory / "lost.json").exists()
    assert (site.directory / "ready.json").exists()


def test_fault_of_the_inventory_is_reported(site: Site) -> None:
    site.play(
        'echo "[WARNING]: Failed to parse: $run_dir/job.pbs_nodefile.yml: the node file names other nodes"; exit 4'
    )
    assert site.prologue().returncode == REQUEUE
    assert site.refusal()["why"] == "the node file names other nodes"


LATE = "prologue_timeout: 8\ntimeout: 8\n"
"""Seconds in which the playbook must come to its first lines, also on a machine that is busy."""


def test_late_playbook_is_ended_with_all_that_it_started(site: Site) -> None:
    site.policy(LATE)
    site.play(f": >\"$run_dir/plan.json\"; trap '' TERM; sleep 1234 & echo $! $$ >{site.place}/pids; sleep 1234")
    assert site.prologue().returncode == REQUEUE
    assert "not done in time" in site.refusal()["what"]
    assert len(site.asked()) == 1
    for pid in (site.place / "pids").read_text().split():
        assert not pathlib.Path(f"/proc/{pid}").exists() or state(pid) == "Z"


def test_late_playbook_is_ended_with_what_left_its_session(site: Site) -> None:
    """Each of Ansible's workers is a session of its own, and so is the ssh that it started."""
    site.policy(LATE)
    stray = f"trap '' TERM; echo $$ >{site.place}/pid; exec sleep 1234"
    site.play(f'setsid sh -c "{stray.replace("$", chr(92) + "$")}" & sleep 1234')
    assert site.prologue().returncode == REQUEUE
    pid = (site.place / "pid").read_text().strip()
    left = pathlib.Path(f"/proc/{pid}").exists() and state(pid) != "Z"
    if left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left


def test_shells_word_is_there_before_anything_is_taken_back(site: Site) -> None:
    """Torque takes a prologue that it had to kill for a success."""
    site.program("node", NODE.format(place=site.place, answer=GONE) + f"ls {site.directory} >{site.place}/seen\n")
    site.fail(UserFault("img=x", "no such image"))
    assert site.prologue().returncode == 0
    assert "refusal.json" in (site.place / "seen").read_text().split()


def test_prologue_that_the_system_fails_still_leaves_a_word(site: Site) -> None:
    (site.place / "bin/ansible").unlink()
    assert site.prologue().returncode == REQUEUE
    assert "No such file" in site.refusal()["why"]


def state(pid: str) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_alarm_that_leaves_no_time_is_a_fault_of_the_site(site: Site) -> None:
    (site.torque_home / "mom_priv/config").write_text("$logevent 255\n$prologalarm 30\n")
    assert site.prologue().returncode == REQUEUE
    assert (site.refusal()["fault"], site.played()) == ("site", [])
    assert "$prologalarm 30" in site.refusal()["what"]


def test_no_guest_is_made_for_another_user_than_the_moms(site: Site) -> None:
    """A server that errs would have one user's home mounted in the guest of another's job."""
    site.job(euser="daemon")
    assert site.prologue().returncode == REQUEUE
    refusal = site.refusal()
    assert (refusal["what"], refusal["why"]) == (
        f"job {JOB_ID} is {USER}'s for the batch system on this node", "and daemon's for the batch server"
    )  # fmt: skip
    assert site.played() == []


def unreachable(site: Site) -> None:
    site.qstat("echo 'qstat: cannot connect to server th (errno=111)' >&2; exit 111")


@pytest.mark.parametrize("how", ["server", "server and policy", "unknown job"])
def test_without_server_the_shell_is_told(site: Site, how: str) -> None:
    """The start is not known then; the shell finds the word by its own process."""
    text = {"server": "prologue_timeout: 1\ntimeout: 1\n", "server and policy": "prologue_timeout: 1\ntimeuot: 1\n"}
    site.policy(text.get(how, ""))
    if how.startswith("server"):
        unreachable(site)
    elif how == "unknown job":
        site.qstat("exit 153")
    assert site.prologue().returncode == 0
    assert site.refusal("12-1.th.0")["fault"] == "site"
    assert ("timeuot" in site.refusal("12-1.th.0")["why"]) == ("policy" in how)
    assert "tell the administrator" in site.refusal("12-1.th.0")["lines"][0]
    assert site.verdict("12-1.th.0") == {
        "fault": "site", "action": "refuse", "try": 0, "of": 0, "node": "", "note": "", "lines": [],
    }  # fmt: skip
    assert site.link.readlink().name == "12-1.th.0"
    assert site.epilogue().returncode == 0
    nothing_left(site)


def test_server_that_is_busy_is_asked_again(site: Site) -> None:
    site.qstat(f"[ -e {site.place}/asked-before ] || {{ : >{site.place}/asked-before; exit 111; }}\n"
               f"sed s/HOLDS/n/ {site.place}/job\n")  # fmt: skip
    assert site.prologue().returncode == 0
    assert len(site.played()) == 1


def test_words_say_that_the_server_was_asked_in_vain(site: Site) -> None:
    site.policy("prologue_timeout: 1\ntimeout: 1\n")
    unreachable(site)
    assert site.prologue().returncode == 0
    assert re.search(r"cannot be reached(; asked [2-9] times in 2 s)?$", site.refusal("12-1.th.0")["why"])


def test_question_that_we_cut_off_does_not_hide_what_the_server_said(site: Site) -> None:
    site.policy("prologue_timeout: 1\ntimeout: 1\n")
    asked = f"{site.place}/asked-before"
    message = "echo 'cannot connect to server th (errno=111)' >&2; exit 111"
    site.qstat(f"[ ! -e {asked} ] || exec sleep 60; : >{asked}; {message}")
    assert site.prologue().returncode == 0
    assert re.search(r"cannot be reached(; asked 2 times in 2 s)?$", site.refusal("12-1.th.0")["why"])


def test_hook_that_cannot_leave_a_refusal_prints_one_line(site: Site) -> None:
    site.job(interactive=True)
    site.run_dir.write_text("in the way")
    done = site.prologue()
    assert done.returncode == 1
    assert done.stderr.startswith("vtorque: this job's hook failed: ")
    assert len(done.stderr.splitlines()) == 1
    assert "12[1].th" in (site.state_dir / "log/hooks.log").read_text()


def test_job_that_only_the_server_can_tell(site: Site) -> None:
    """The resource list was cut by Torque: marked at the server means ours."""
    assert site.prologue(marker="unknown").returncode == 0
    assert len(site.played()) == 1


@pytest.mark.parametrize("other", ["", "vtorque2", "my-vtorque"])
def test_bare_job_with_a_long_list_leaves_no_trace(site: Site, other: str) -> None:
    site.job(other=other)
    assert site.prologue(marker="unknown").returncode == 0
    assert not site.run_dir.exists()
    assert not site.state_dir.exists()


def test_unmarked_job_is_not_held_up_by_a_server_that_is_gone(site: Site) -> None:
    unreachable(site)
    done = site.prologue(marker="unknown")
    assert (done.returncode, done.stderr) == (0, "")
    assert not site.run_dir.exists()


@pytest.mark.parametrize("job_id", ["../../etc", "12.th/..", "", "12[1].th\n", "x" * 300])
def test_job_id_that_is_none(site: Site, job_id: str) -> None:
    done = site.hook("epilogue", job_id, USER, "g", "n", "0", "", "", "", "", "0", "")
    assert done.returncode == 1
    assert "job id" in done.stderr
    assert not site.run_dir.exists()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's own scripts, as the hooks of root have them run: by the user, bounded, and with a verdict."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import time_budget
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

from .hook_site import JOB_ID, KEY, READY, USER, Site, nothing_left

DIGEST = "0f" * 32
WELL = '{"kind": "exit", "number": 0, "tail": ""}'


def ask(site: Site, *keys: str, answer: str = WELL) -> None:
    """The job's request names scripts, and the child answers this."""
    values = {key: f"/home/{key} it's" for key in keys}
    request = Request(values, dict.fromkeys(keys, ""), digests=dict.fromkeys(keys, DIGEST))
    site.job(request=request.encode())
    site.user_script(answer)


def make_ready(site: Site) -> None:
    """The playbook also lets the job's shell find its record."""
    shell_link.point(ProcessId.of(os.getpid()), site.directory, site.run_dir)


def test_prologue_of_the_user_is_run_by_the_user(site: Site) -> None:
    """With their groups and a clean environment, its output the job's; until its end the job's shell has no word."""
    ask(site, "vm_prologue")
    make_ready(site)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (0, "a complaint\n")
    seen = json.loads(done.stdout)
    user = pwd.getpwnam(USER)
    assert (seen["uid"], seen["gid"], seen["link"]) == (user.pw_uid, user.pw_gid, False)
    assert set(seen["environment"]) == {"PATH", "LC_ALL", "HOME", "USER", "LOGNAME", "LC_CTYPE"} - (
        {"LC_CTYPE"} - set(seen["environment"])
    )
    assert seen["environment"]["HOME"] == user.pw_dir
    order = seen["order"]
    assert (order["key"], order["path"], order["digest"]) == ("vm_prologue", "/home/vm_prologue it's", DIGEST)
    assert order["directory"] == str(site.directory)
    assert order["script"] == f"{site.torque_home}/mom_priv/jobs/{KEY}.vm_prologue"
    assert order["variables"] == {
        "PBS_JOBID": JOB_ID, "PBS_JOBNAME": "arr-1", "PBS_QUEUE": "batch", "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_NODEFILE": f"{site.torque_home}/aux/{JOB_ID}", "PBS_O_WORKDIR": "/home/alice", "PBS_O_LOGNAME": USER,
        "PBS_O_HOST": "th", "PBS_WALLTIME": "3600", "PBS_ARRAYID": "1", "ENVIRONMENT": "BATCH", "PBS_NODENUM": "0",
        "PBS_VNODENUM": "0", "PBS_TASKNUM": "1",
    }  # fmt: skip
    assert (order["listed"], order["tools"]) == ({}, str(site.place / "bin"))
    assert site.link.readlink() == site.directory
    assert site.epilogue().stdout == ""
    assert site.record()["vm_prologue"]["ended"] == "status 0"
    nothing_left(site)


@pytest.mark.parametrize(
    ("answer", "why", "hint"),
    [
        ('{"kind": "exit", "number": 3, "tail": "1\\n\\x1b[2J2\\n"}', "ended with status 3", "its last lines: 1 | ?[2J2"),  # noqa: E501
        ('{"kind": "exit", "number": 255, "tail": ""}', "ended with status 255", "it printed nothing"),
        ('{"kind": "signal", "number": 9, "tail": "x"}', "was killed by signal 9", "its last lines: x"),
        ('{"error": {"fault": "node", "what": "a", "why": "b", "hint": "c"}}', "a: b", "c"),
        ('{"kind": "exit", "number": "0"}', "was not run: the program that runs it as you ended early", ""),
        ('{"kind": "place", "number": 0}', "was not run: the program that runs it as you ended early", ""),
        ("[]", "was not run: the program that runs it as you ended early", ""),
        ('b"{"', "was not run: the program that runs it as you ended early", ""),
        ('[][0]', "was not run: the program that runs it as you ended early", ""),
    ],
)  # fmt: skip
def test_prologue_of_the_user_that_fails_ends_the_job(site: Site, answer: str, why: str, hint: str) -> None:
    ask(site, "vm_prologue", answer=answer)
    make_ready(site)
    assert site.prologue().returncode == 0
    refusal = site.refusal()
    assert (refusal["fault"], refusal["what"]) == ("user", "vm_prologue /home/vm_prologue it's")
    assert (refusal["why"], refusal["hint"]) == (why, hint)
    assert site.verdict()["action"] == "refuse"
    assert site.reported() == []
    assert not (site.directory / "ready.json").exists()


def test_guest_that_is_lost_under_the_users_prologue_is_not_his_fault(site: Site) -> None:
    ask(site, "vm_prologue", answer='{"error": {"what": "guest v1 was lost", "why": "it crashed"}, "lost": True}')
    assert site.prologue().returncode == 75
    assert site.verdict()["fault"] == "unclear"


def test_prologue_of_the_user_is_ended_at_the_deadline(site: Site) -> None:
    site.policy("prologue_timeout: 8\ntimeout: 1\n")
    ask(site, "vm_prologue", answer="time.sleep(1000)")
    assert site.prologue().returncode == 0
    assert "was not done in" in site.refusal()["why"]


def test_job_without_such_a_script_starts_nothing(site: Site) -> None:
    ask(site, answer="[][0]")
    assert site.prologue().stdout == site.epilogue().stdout == ""


def test_epilogue_of_the_user_runs_before_the_guests_go(site: Site) -> None:
    ask(site, "vm_prologue", "vm_epilogue")
    assert site.prologue().returncode == 0
    script = f"{site.directory}/vm_epilogue.json"
    site.play(READY, f'cp {script} {site.place}/before || exit 9; rm -f "$run_dir/plan.json"')
    done = site.epilogue("271")
    assert json.loads(done.stdout)["order"]["key"] == "vm_epilogue"
    record = site.record()
    assert (record["vm_epilogue"]["ended"], record["exit_status"]) == ("status 0", 271)
    assert (site.place / "before").exists()
    nothing_left(site)


@pytest.mark.parametrize("answer", ['{"kind": "exit", "number": 4, "tail": "x"}', "time.sleep(1000)"])
def test_epilogue_of_the_user_that_fails_is_noted_and_hinders_nothing(site: Site, answer: str) -> None:
    site.policy(f"vm_epilogue_timeout: {60 if 'exit' in answer else 1}\n")
    ask(site, "vm_epilogue", answer=answer)
    assert site.prologue().returncode == 0
    site.make_guest()
    assert site.epilogue("0").returncode == 0
    nothing_left(site)
    message = "status 4" if "exit" in answer else "not done in time"
    assert site.record()["vm_epilogue"]["ended"] == message
    log = (site.state_dir / "records/12-1.th.3/vtorque.log").read_text()
    assert "vm_epilogue /home/vm_epilogue it's: " in log


def test_epilogue_of_the_user_leaves_time_for_the_removal(site: Site) -> None:
    """Whatever the site gives it: Torque's alarm ends the whole hook, and with it the removal."""
    site.policy("vm_epilogue_timeout: 3600\n")
    (site.torque_home / "mom_priv/config").write_text("$prologalarm 120\n")
    ask(site, "vm_epilogue")
    assert site.prologue().returncode == 0
    assert site.epilogue("0").returncode == 0
    log = (site.state_dir / "records/12-1.th.3/vtorque.log").read_text()
    (given,) = re.findall("vm_epilogue .*: begins, for ([0-9]+) s at most", log)
    left_s = 120 - time_budget.ALARM_MARGIN_S - time_budget.HOOK_RESERVE_S
    assert 1 <= int(given) <= left_s - time_budget.EPILOGUE_REMOVAL_S


def test_epilogue_of_the_user_for_which_no_time_is_left_is_not_called_slow(site: Site) -> None:
    """By a site that gives its hooks a minute."""
    (site.torque_home / "mom_priv/config").write_text("$prologalarm 60\n")
    ask(site, "vm_epilogue", answer="[][0]")
    assert site.prologue().returncode == 0
    assert site.epilogue("0").returncode == 0
    log = (site.state_dir / "records/12-1.th.3/vtorque.log").read_text()
    assert "was not run: no time is left for it: prologue_timeout, or $prologalarm" in log
    assert site.record()["vm_epilogue"]["ended"] == "not run"


@pytest.mark.parametrize("why", ["never ready", "lost", "saved", "no word of the job"])
def test_epilogue_of_the_user_needs_a_guest(site: Site, why: str) -> None:
    ask(site, "vm_epilogue")
    assert site.prologue().returncode == 0
    changes: dict[str, t.Callable[[pathlib.Path], object]] = {
        "never ready": lambda here: (here / "ready.json").unlink(),
        "lost": lambda here: (here / "lost.json").write_text("{}"),
        "saved": lambda here: (here / "parked").touch(),
        "no word of the job": lambda here: (here / "job.json").unlink(),
    }
    changes[why](site.directory)
    assert site.epilogue().stdout == ""
    assert "vm_epilogue" not in site.record()
    nothing_left(site)

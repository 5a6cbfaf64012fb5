# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who plays is begun early, plays once, and never stays."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.ansible_process import PlaybookCall
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart.preloaded import PreloadedRunner

PROGRAM = """#!/usr/bin/python3
import json, os, pathlib, sys
place = pathlib.Path({place!r})
with (place / "begun").open("a") as stream:
    stream.write(os.environ["ANSIBLE_CONFIG"] + " " + os.environ["TMPDIR"] + "\\n")
(place / "home").mkdir(exist_ok=True)
(place / "run/ansible" / f"ansible-local-{{os.getpid()}}abcdefg_").mkdir(parents=True)
# ansible-core 2.21 makes it, and no exit of ours takes it away
(pathlib.Path(os.environ["TMPDIR"]) / f"pymp-{{os.getpid()}}").mkdir()
told = {{"arguments": sys.argv[1:], "environment": dict(os.environ)}}
if not sys.argv[1:]:
    told = json.loads(sys.stdin.read() or sys.exit(0))
    log = os.open(told["log"], os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
print(" ".join(told["arguments"]), told["environment"]["VTORQUE_DEADLINE"], flush=True)
{ending}
"""
"""Stands for `cli/run_playbook.py`."""


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Callable[..., PreloadedRunner]:
    """Make a runner whose program ends as told."""
    (tmp_path / "run").mkdir()

    def make(ending: str = "sys.exit(7)") -> PreloadedRunner:
        program = tmp_path / "play"
        program.write_text(PROGRAM.format(place=str(tmp_path), ending=ending))
        program.chmod(0o755)
        return PreloadedRunner((str(program),), tmp_path / "run")

    return make


def play(
    runner: PreloadedRunner, tmp_path: pathlib.Path, timeout_s: float = 60, **how: t.Any
) -> tuple[int | None, str]:
    with (tmp_path / "log").open("ab", buffering=0) as log:
        status = runner.run(PlaybookCall(("-i", "source"), {"VTORQUE_DEADLINE": "12.5"}, timeout_s, log, **how))
    return status, (tmp_path / "log").read_text()


def begun(tmp_path: pathlib.Path) -> int:
    """How often its program was started."""
    return len((tmp_path / "begun").read_text().splitlines())


def hurry(runner: PreloadedRunner) -> None:
    """It has only the time that nobody else wants, which may be none for minutes."""
    assert runner._process is not None
    os.sched_setscheduler(runner._process.pid, os.SCHED_OTHER, os.sched_param(0))


@pytest.mark.parametrize("early", [True, False])
def test_preloaded_player_plays_the_same_as_a_later_one(world: t.Any, tmp_path: pathlib.Path, early: bool) -> None:
    """Arguments, what is told, where the output goes, and the status."""
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    with world() as runner:
        if early:
            runner.begin()
        runner.apply_settings("[defaults]\n")
        assert play(runner, tmp_path) == (7, "-i source 12.5\n")
    assert begun(tmp_path) == 1
    settings, temporary = (tmp_path / "begun").read_text().split()
    assert settings == f"{tmp_path}/run/ansible.cfg"
    assert temporary.startswith(f"{tmp_path}/run/ansible/"), "root makes nothing in /tmp"
    assert not pathlib.Path(temporary).exists()


def test_other_settings_are_written_and_begun_with_anew(world: t.Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "run/ansible.cfg").write_text("[old]\n")
    with world() as runner:
        runner.begin()
        runner.apply_settings("[new]\n")
        assert play(runner, tmp_path)[0] == 7
    assert (tmp_path / "run/ansible.cfg").read_text() == "[new]\n"


@pytest.mark.parametrize("early", [True, False])
def test_settings_are_read_once(world: t.Any, tmp_path: pathlib.Path, opened: t.Any, early: bool) -> None:
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    with world() as runner:
        if early:
            runner.begin()
        runner.apply_settings("[defaults]\n")
        assert opened(tmp_path / "run/ansible.cfg") == 1


def test_without_settings_nothing_is_begun_early(world: t.Any, tmp_path: pathlib.Path) -> None:
    """The first job after a boot: Ansible would load with settings that are none of ours."""
    with world() as runner:
        runner.begin()
        runner.apply_settings("[new]\n")
        assert play(runner, tmp_path)[0] == 7
    assert begun(tmp_path) == 1


def test_one_that_ended_early_is_begun_again(world: t.Any, tmp_path: pathlib.Path) -> None:
    """So that its words reach the log."""
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    runner = world()
    runner.begin()
    hurry(runner)
    runner._process.stdin.close()
    runner._process.wait(timeout=60)
    assert play(runner, tmp_path) == (7, "-i source 12.5\n")


def test_plain_play_is_not_of_one_that_has_loaded(world: t.Any, tmp_path: pathlib.Path) -> None:
    """It would play the fast way: it is ended, and another begun with the word for it."""
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    with world() as runner:
        runner.begin()
        hurry(runner)
        process = runner._process
        assert play(runner, tmp_path, plain=True) == (7, "--plain -i source 12.5\n")
        assert process.returncode is not None


def test_one_with_nothing_to_play_is_ended(world: t.Any, tmp_path: pathlib.Path) -> None:
    """Also when the hook fails before it knows what to play; twice is as once."""
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    runner = world()
    with contextlib.suppress(ZeroDivisionError), runner:
        runner.begin()
        process = runner._process
        raise ZeroDivisionError
    assert process.returncode is not None
    runner.end()


def test_one_that_is_late_is_ended_and_leaves_no_files(world: t.Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    runner = world(ending="import time; time.sleep(600)")
    runner.begin()
    hurry(runner)
    end = Deadline.after(60)
    while not list(tmp_path.glob("run/ansible/ansible-local-*abcdefg_")):
        assert not end.passed
        time.sleep(0.01)
    assert play(runner, tmp_path, timeout_s=1.0)[0] is None
    assert list((tmp_path / "run/ansible").iterdir()) == []


def test_files_of_another_that_plays_stay(world: t.Any, tmp_path: pathlib.Path) -> None:
    """Process 123 was late, and process 1234 plays for another job."""
    names = ("ansible-local-1234abcd_123", "ansible-local-123abcd_123")
    for name in names:
        (tmp_path / "run/ansible" / name).mkdir(parents=True)
    world()._tidy(123)
    assert [path.name for path in (tmp_path / "run/ansible").iterdir()] == [names[0]]


def test_request_is_one_document(world: t.Any, tmp_path: pathlib.Path) -> None:
    """No word of it stands in the arguments, which everybody can read."""
    (tmp_path / "run/ansible.cfg").write_text("[defaults]\n")
    runner = world(ending="print(json.dumps(sys.argv)); sys.exit(0)")
    runner.begin()
    status, output = play(runner, tmp_path)
    assert status == 0
    assert json.loads(output.splitlines()[-1])[1:] == []

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hooks' ansible-playbook is Ansible's, for all that it leaves out."""

from __future__ import annotations

import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import run_playbook
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import node_socket

PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.run_playbook"
PLAY = """
- name: A play
  hosts: all
  gather_facts: false
  tasks:
    - name: A task
      {task}
"""


WITHOUT = """
import importlib.abc, os, runpy, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}: raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
if {loader}:
    from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import ansible_internals
    ansible_internals.LOADERS = ("no_such_loader",)
sys.argv[0] = "run_playbook"
runpy.run_module({program!r}, run_name="__main__", alter_sys=True)
"""
"""An ansible-core that lacks a module or a loader of plugins, until the program becomes another."""


@pytest.fixture
def play(tmp_path: pathlib.Path) -> t.Callable[..., subprocess.CompletedProcess[str]]:
    """Play one task on a host; more arguments are Ansible's.

    It may be told later, be plain, or find an ansible-core that lacks a module or a loader.
    """

    def run(
        task: str, *more: str, early: bool = False, plain: bool = False, lacks: str = "", lacks_loader: bool = False
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "play.yml").write_text(PLAY.format(task=task))
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        environment |= {"LC_ALL": "C.UTF-8", "ANSIBLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
        # as a site has it: Ansible's own loader finds the collection where this program comes from
        environment["ANSIBLE_COLLECTIONS_PATH"] = str(pathlib.Path(run_playbook.__file__).parents[6])
        command = [sys.executable, "-m", PROGRAM]
        if lacks:
            command = [sys.executable, "-c", WITHOUT.format(module=lacks, program=PROGRAM, loader=lacks_loader)]
        command += ["--plain"] if plain else []
        arguments = ["-i", "node,", str(tmp_path / "play.yml"), *more]
        log = tmp_path / "log"
        log.write_text("before\n")
        output = (
            json.dumps({"arguments": arguments, "environment": {"TOLD": "later"}, "log": str(log)}) if early else ""
        )
        done = subprocess.run(
            command if early else [*command, *arguments],
            env=environment, input=output, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return subprocess.CompletedProcess(command, done.returncode, done.stdout or log.read_text(), done.stderr)

    return run


@pytest.mark.parametrize(
    ("task", "status"),
    [("ansible.builtin.debug: {msg: well}", 0), ("ansible.builtin.fail: {msg: badly}", 2), ("no.such.thing:", 4)],
)
def test_status_is_ansibles_own(play: t.Any, tmp_path: pathlib.Path, task: str, status: int) -> None:
    """What was said is out, and no temporary directory stays, although it ends at once."""
    done = play(task, "-c", "local")
    assert done.returncode == status, done.stderr
    assert ("PLAY RECAP" in done.stdout) == (status != 4)
    assert list((tmp_path / "home/tmp").iterdir()) == []


@pytest.mark.parametrize(("variable", "status"), [("later", 0), ("else", 2)])
def test_one_that_loaded_before_it_was_told_plays_the_same(play: t.Any, variable: str, status: int) -> None:
    """Its output is added to the log, and what it was told is in its environment."""
    condition = f"lookup('ansible.builtin.env', 'TOLD') == '{variable}'"
    done = play(f'ansible.builtin.assert: {{that: "{condition}"}}', "-c", "local", early=True)
    assert done.returncode == status, done.stderr
    assert done.stdout.startswith("before\n")
    assert "PLAY RECAP" in done.stdout


@pytest.mark.parametrize("task", ["ansible.builtin.debug: {msg: well}", "ansible.builtin.fail: {msg: badly}"])
def test_plain_one_plays_the_same(play: t.Any, task: str) -> None:
    """And is ansible-playbook itself: nothing of ours is in its process."""
    plain, fast = play(task, "-c", "local", plain=True), play(task, "-c", "local")
    assert (plain.returncode, plain.stdout, plain.stderr) == (fast.returncode, fast.stdout, fast.stderr)
    assert "PLAY RECAP" in plain.stdout
    assert run_playbook.PLAYBOOK[-3:] == ("-m", "ansible", "playbook")


@pytest.mark.parametrize("early", [False, True], ids=["at once", "told later"])
@pytest.mark.parametrize(
    "module",
    ["ansible.utils.collection_loader", "ansible.cli.playbook", "ansible.plugins.loader"],
)
def test_other_ansible_core_is_played_plainly(play: t.Any, tmp_path: pathlib.Path, module: str, early: bool) -> None:
    """What a reach misses costs time, and no job: arguments, environment, log and status are as ever."""
    condition = f"lookup('ansible.builtin.env', 'TOLD') == '{'later' if early else ''}'"
    done = play(f'ansible.builtin.assert: {{that: "{condition}"}}', "-c", "local", early=early, lacks=module)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "PLAY RECAP" in log
    assert list((tmp_path / "home/tmp").iterdir()) == []
    (why,) = (line for line in log.splitlines() if line.startswith("vtorque: plain ansible-playbook plays, since "))
    assert module in why


@pytest.mark.parametrize("early", [False, True], ids=["at once", "told later"])
@pytest.mark.parametrize("lost", ["a module that is loaded beforehand", "a loader whose plugins are not listed"])
def test_other_ansible_core_that_only_takes_longer_is_played_here(
    play: t.Any, tmp_path: pathlib.Path, lost: str, early: bool
) -> None:
    """It is noted, and the rest of what is faster stays: no second ansible-playbook is loaded."""
    module = "ansible.plugins.strategy.linear" if "module" in lost else ""
    condition = f"lookup('ansible.builtin.env', 'TOLD') == '{'later' if early else ''}'"
    task = f'ansible.builtin.assert: {{that: "{condition}"}}'
    done = play(task, "-c", "local", early=early, lacks=module or "nothing", lacks_loader=not module)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "PLAY RECAP" in log
    assert list((tmp_path / "home/tmp").iterdir()) == []
    notes = [line for line in log.splitlines() if line.startswith("vtorque: ")]
    # modules are loaded beforehand only while there is nothing to play yet
    assert len(notes) == (early or not module)
    assert all("Ansible begins later, since this ansible-core is another" in note for note in notes)
    assert all((module or "no_such_loader") in note for note in notes)


HOOK = """
import os, subprocess, sys
process = subprocess.Popen([sys.executable, "-m", *sys.argv[1:]], env={**os.environ, "VTORQUE_HOOK": str(os.getpid())})
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.parametrize("when", ["after it began", "before", "after it became another"])
def test_hook_that_is_killed_takes_its_playbook_with_it(tmp_path: pathlib.Path, when: str) -> None:
    """However it is killed, and in whatever the playbook waits."""
    for name in ("reached", "gate"):
        os.mkfifo(tmp_path / name)
    tasks = f"ansible.builtin.raw: echo >{tmp_path}/reached; cat {tmp_path}/gate"
    (tmp_path / "play.yml").write_text(PLAY.format(task=tasks))
    plain = ["--plain"] if when == "after it became another" else []
    command = [PROGRAM, *plain, "-i", "node,", "-c", "local", str(tmp_path / "play.yml")]
    if when == "before":
        done = subprocess.run(
            [sys.executable, "-m", *command], env={**os.environ, "VTORQUE_HOOK": "1"}, timeout=120, check=False
        )
        assert done.returncode == 1
        return
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")}
    with subprocess.Popen([sys.executable, "-c", HOOK, *command], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        playbook = os.pidfd_open(int(process.stdout.readline()))
        (tmp_path / "reached").read_text()
        process.kill()
        ended = select.select([playbook], [], [], 120)[0]
        os.close(playbook)
        (tmp_path / "gate").write_text("")  # what Ansible began for the task ends too
        assert ended, "the playbook goes on"


def test_play_loads_nothing_of_the_hooks_but_its_call() -> None:
    """Each play would pay for it, before Ansible begins to load."""
    code = f"import sys, {PROGRAM}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    hooks = PROGRAM.replace("plugin_utils.cli.run_playbook", "module_utils.job.hooks")
    assert [name for name in done.stdout.split() if name.startswith(f"{hooks}.")] == [f"{hooks}.playbook_call"]


def test_connections_are_found_when_they_are_needed(play: t.Any) -> None:
    """They are not looked at beforehand: a host that nobody reaches by ssh is unreachable, with ssh's own words."""
    done = play("ansible.builtin.raw: id", "-c", "ssh", "-e", "ansible_host=127.0.0.1 ansible_port=1")
    assert done.returncode == 4
    assert "Connection refused" in done.stdout


def test_actions_of_the_collection_are_found(play: t.Any) -> None:
    """By Ansible's loader, although Python has imported this program from the same place."""
    done = play("mikelangelo.vtorque.job_record: {job_id: nonsense, start: 1}", "-c", "local")
    assert done.returncode == 2
    assert "not of the form" in done.stdout


def test_other_ansible_core_keeps_the_way_to_the_early_node(tmp_path: pathlib.Path) -> None:
    """The hook has let go of it: were it closed here, the node would take that for a cancel and undo its guests."""
    ours, theirs = socket.socketpair()
    (tmp_path / "play.yml").write_text(PLAY.format(task="ansible.builtin.debug: {msg: well}"))
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), node_socket.VARIABLE: f"{theirs.fileno()}.2"}
    code = WITHOUT.format(module="ansible.cli.playbook", program=PROGRAM, loader=False)
    command = [sys.executable, "-c", code, "-i", "node,", "-c", "local", str(tmp_path / "play.yml")]
    with ours, theirs:
        process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        theirs.close()
        ours.setblocking(False)
        assert process.stdout is not None
        assert any("TASK [A task]" in line for line in process.stdout)
        with pytest.raises(BlockingIOError):  # an end would be read as nothing
            ours.recv(1)
        assert process.wait(120) == 0

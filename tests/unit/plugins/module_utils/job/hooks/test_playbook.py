# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook does beside Ansible: how long a removal may take, and whether it is believed."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import json
import os
import pathlib
import tempfile
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import time_budget
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import (
    ansible_process,
    epilogue,
    playbook,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import start as start_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import detached, supervised

PR_GET_CHILD_SUBREAPER = 37
"""linux/prctl.h"""
GONE = {"version": 1, "ok": True, "guests": [], "removed": [], "left": []}


def start_with_node(place: pathlib.Path, answer: dict[str, t.Any]) -> start_module.Start:
    """A start on a node whose vtorque-node gives this answer, and keeps what it was asked."""
    program = place / "node"
    program.write_text(f"#!/bin/sh\ncat >{place}/asked\necho '{json.dumps(answer)}'\n")
    program.chmod(0o755)
    return start_module.Start("12[1].th", 3, start_module.Places(place / "run", place / "state", node=(str(program),)))


def test_verdict_and_removal_end_before_torque_kills_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a playbook that had to be ended by force."""
    until = 1_000_000.0
    killed = until + time_budget.HOOK_RESERVE_S
    ended = until + time_budget.PLAYBOOK_SLACK_S + time_budget.PROGRAM_ENDING_S
    monkeypatch.setattr(time, "monotonic", lambda: ended)
    verdict_s = playbook.verdict_time_s(until)
    assert verdict_s >= 2 * time_budget.VERDICT_CALL_S  # an order that hangs, and another one
    monkeypatch.setattr(time, "monotonic", lambda: ended + verdict_s)
    removal_s = playbook.removal_time_s(until)
    assert removal_s >= time_budget.HOOK_REMOVAL_LEAST_S
    assert ended + verdict_s + removal_s + time_budget.PROGRAM_ENDING_S + time_budget.HOOK_END_S <= killed


def test_work_that_ends_early_leaves_verdict_and_removal_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    until = 1_000_000.0
    monkeypatch.setattr(time, "monotonic", lambda: until - 100)
    assert playbook.verdict_time_s(until) == time_budget.VERDICT_S
    assert playbook.removal_time_s(until) == time_budget.HOOK_REMOVAL_S


@pytest.mark.parametrize(
    ("error", "node"),
    [
        ({"fault": "node", "what": "bridge", "cause": "bridge", "host": "t2.site"}, "t2.site"),
        ({"fault": "node", "what": "bridge", "cause": "nonsense", "host": "t2.site"}, "t2.site"),
    ],
)
def test_node_that_reported_a_fault_is_named(tmp_path: pathlib.Path, error: dict[str, str], node: str) -> None:
    start = start_with_node(tmp_path, GONE)
    files.make_directory(start.directory)
    (start.directory / "error.json").write_text(json.dumps(error))
    failing = dataclasses.replace(start, places=dataclasses.replace(start.places, ansible=("/bin/false",)))
    with (tmp_path / "log").open("ab", buffering=0) as log:
        found = playbook.run_playbook(failing, "prologue", until=time.monotonic() + 60, log=log)
    assert isinstance(found, NodeFault)
    assert (found.node, found.cause) == (node, "bridge" if error["cause"] == "bridge" else "")


@pytest.mark.parametrize(
    ("number", "fault", "cause"),
    [(errno.ENOSPC, "node", "disk"), (errno.EROFS, "node", "disk"), (errno.EIO, "node", "disk"),
     (errno.EACCES, "unclear", ""), (errno.ELOOP, "unclear", "")],
)  # fmt: skip
def test_full_disk_of_the_records_is_proved_on_this_node(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int, fault: str, cause: str
) -> None:
    def fail(*_: object) -> t.NoReturn:
        raise OSError(number, os.strerror(number))

    start = start_module.Start("12.th", 3, start_module.Places(tmp_path / "run", tmp_path / "state"))
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(VTorqueError) as caught:
        start.open_log(None)
    assert (caught.value.fault, caught.value.to_dict().get("cause", "")) == (fault, cause)


def test_full_disk_is_found_before_ansible_is_started(tmp_path: pathlib.Path) -> None:
    start = start_module.Start("12.th", 3, start_module.Places(tmp_path / "run", tmp_path / "state"))
    with pathlib.Path("/dev/full").open("ab", buffering=0) as log, pytest.raises(NodeFault) as caught:
        playbook.begin_log(start, log, "prologue")
    assert (caught.value.cause, caught.value.why) == ("disk", "No space left on device")
    assert str(tmp_path / "state") in caught.value.what


def test_full_disk_stops_no_removal(tmp_path: pathlib.Path) -> None:
    start = start_with_node(tmp_path, GONE)
    with pathlib.Path("/dev/full").open("ab", buffering=0) as log:
        assert playbook.remove_here(start, "t1", timeout_s=60, log=log) is None
    assert json.loads((tmp_path / "asked").read_text())["do"] == "absent"


def test_leftovers_that_the_node_reports_are_returned(tmp_path: pathlib.Path) -> None:
    start = start_with_node(tmp_path, {**GONE, "left": ["slot 2"]})
    with (tmp_path / "log").open("ab", buffering=0) as log:
        left = playbook.remove_here(start, "t1", timeout_s=60, log=log)
    assert "slot 2" in str(left)


def test_program_that_cannot_be_run_is_told(tmp_path: pathlib.Path) -> None:
    """The hook has more to take away than this."""
    start = start_with_node(tmp_path, GONE)
    missing = dataclasses.replace(start, places=start_module.Places(node=("/nope",), ansible=("/nope",)))
    with (tmp_path / "log").open("ab", buffering=0) as log:
        assert "/nope" in str(playbook.remove_here(missing, "t1", timeout_s=60, log=log))
        assert "/nope" in str(playbook.run_playbook(missing, "epilogue", until=time.monotonic() + 60, log=log))


def test_sister_removes_every_start_whatever_becomes_of_the_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = start_module.Places(tmp_path / "run", tmp_path / "state")
    for number in (1, 2):
        (tmp_path / f"state/guests/7.th.{number}").mkdir(parents=True)
    tried = []

    def remove(start: start_module.Start, _log: object, _user: str) -> None:
        tried.append(start.number)
        if start.number == 1:
            raise OSError("no such program")

    monkeypatch.setattr(epilogue, "_remove_detached", remove)
    call = hook_calls.read_call(["epilogue.parallel", "yes", "1", "t1", "7.th", "alice", *[""] * 9], {})
    with pytest.raises(VTorqueError, match="no such program"):
        epilogue.run_sister(call, places, began=0.0)
    assert tried == [1, 2]


def test_full_tmp_keeps_no_sister_from_beginning(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user may fill it."""
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    asked = []
    monkeypatch.setattr(detached.subprocess, "Popen", lambda _words, **how: asked.append(json.load(how["stdin"])))
    start = start_with_node(tmp_path, GONE)
    with (tmp_path / "log").open("ab", buffering=0) as log:
        epilogue._remove_detached(start, log, "alice")
    assert [part["do"] for part in asked] == ["absent"]


def test_run_adopts_no_orphans_for_good(tmp_path: pathlib.Path) -> None:
    """Who runs on in this process would never reap them, and they would stay as zombies."""
    before, after = ctypes.c_int(), ctypes.c_int()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    with (tmp_path / "log").open("wb") as log:
        assert supervised.run(["/bin/false"], timeout_s=60, log=log)[0] == 1
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(after), 0, 0, 0)
    assert after.value == before.value == 0


def test_ansibles_settings_are_of_the_template_in_the_sites_own_directory(tmp_path: pathlib.Path) -> None:
    """Where the configuration says that it is, not where it is by default."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/ansible.cfg.j2").write_text("[ours]\n")
    start = start_module.Start("7.head", 1, start_module.Places(tmp_path / "run", tmp_path / "state"))
    files.make_directory(start.directory)
    own = ansible_process.PlaybookRunner(("/bin/false",), tmp_path / "run")
    playbook.prepare(start, None, Policy(template_dir=str(tmp_path / "templates")), own)
    assert own.settings.read_text() == "[ours]\n"

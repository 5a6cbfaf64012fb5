# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr suspended`: what is on the disks of nodes, and its removal; nodes are asked over what stands for ssh."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import SavedRequest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import suspended
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.site import saved_jobs

from .run_vmgr import run_vmgr

ROW = {"job_id": "7.head", "start": 1, "user": "alice", "node": "cn1", "since": 1.7e9, "guests": 2, "bytes": 240 << 20}


class Nodes:
    """What each node answers, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, t.Any] = {}
        self.asked: list[SavedRequest] = []

    def ask(self, request: SavedRequest, nodes: t.Sequence[str], **_how: object) -> list[t.Any]:
        self.asked.append(request)
        return [self.answers[node] for node in nodes]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    here = Nodes()
    monkeypatch.setattr(saved_jobs, "query_nodes", here.ask)
    monkeypatch.setattr(suspended.compute_nodes, "list_nodes", lambda _policy: tuple(here.answers))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return here


def test_list_has_job_user_time_size_and_node(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.answers = {"cn1": {"ok": True, "saved": [ROW]}, "cn2": {"ok": True, "saved": []}}
    status, output = run_vmgr(capsys, "suspended", "list")
    assert status == 0
    heading, line = output.splitlines()
    assert heading.split() == ["job", "user", "since", "size", "guests", "node"]
    assert line.split()[:2] == ["7.head", "alice"]
    assert "2023-11-14" in line
    assert "240" in line
    assert json.loads(run_vmgr(capsys, "suspended", "list", "--json")[1]) == [ROW]
    assert run_vmgr(capsys, "suspended", "list", "--nodes", "cn2") == (0, "none\n")


def test_list_shows_what_it_heard_where_a_node_is_silent(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.answers = {"cn1": {"ok": True, "saved": [ROW]}, "cn2": SiteFault("cn2", "is silent")}
    status, output = run_vmgr(capsys, "suspended", "list")
    assert status == 1
    assert "7.head" in output


def test_delete_asks_every_node_for_the_whole_id(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.answers = {
        "cn1": {"ok": True, "removed": ["directory 7.head.1", "slot 1"]},
        "cn2": {"ok": True, "removed": []},
    }
    assert run_vmgr(capsys, "suspended", "delete", "7.head") == (0, "cn1: directory 7.head.1, slot 1\n")
    assert [(one.do, one.job_id) for one in nodes.asked] == [("forget", "7.head")]


def test_delete_of_a_job_that_can_be_resumed_fails(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.answers = {"cn1": UserFault("job 7.head", "is in state S")}
    assert run_vmgr(capsys, "suspended", "delete", "7.head")[0] == 1


def test_user_is_refused(nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    with pytest.raises(UserFault, match="asks nodes as root"):
        run_vmgr(capsys, "suspended", "list")
    assert nodes.asked == []


def test_nodes_answer_over_ssh_or_say_why_not(tmp_path: pathlib.Path) -> None:
    ssh = tmp_path / "ssh"
    good = json.dumps({"ok": True, "saved": []})
    bad = json.dumps({"ok": False, "error": {"fault": "user", "what": "w", "why": "y", "hint": ""}})
    ssh.write_text(
        f"""#!/bin/sh
case "$*" in
    *well*) cat >&2; echo '{good}' ;;
    *other*) echo '{bad}' ;;
    *) echo away >&2; exit 255 ;;
esac
"""
    )
    ssh.chmod(0o755)
    request = SavedRequest(1, "saved")
    found, refused, silent = saved_jobs.query_nodes(
        request, ["well", "other", "gone"], ssh_timeout_s=5, prefix="/opt/vtorque", ssh=str(ssh)
    )
    assert found == {"ok": True, "saved": [], "removed": []}
    assert str(refused).startswith("w")
    assert "away" in str(silent)
    assert form.to_dict(request) == {"version": 1, "do": "saved", "job_id": "", "timeout_s": 60.0}


@pytest.mark.parametrize(
    "answer",
    [
        {"saved": [{**ROW, "user": "\x1b]0;root\x07"}]},
        {"saved": [{**ROW, "node": "cn2"}]},
        {"saved": [{**ROW, "since": "now"}]},
        {"saved": [{**ROW, "bytes": -1}]},
        {"saved": [{key: value for key, value in ROW.items() if key != "job_id"}]},
        {"saved": [7]},
        {"saved": {"a": 1}},
        {"removed": "all"},
    ],
)
def test_answer_of_another_form_is_a_fault_of_its_node(answer: dict[str, t.Any]) -> None:
    """A node that somebody broke into answers root of the front end."""
    done = subprocess.CompletedProcess([], 0, json.dumps({"ok": True, **answer}).encode(), b"")
    with pytest.raises(SiteFault, match="cn1: its answer is of another form") as caught:
        saved_jobs._read("cn1", done)
    assert str(caught.value).isprintable()


def test_text_of_what_was_removed_is_harmless_on_a_terminal() -> None:
    done = subprocess.CompletedProcess([], 0, json.dumps({"ok": True, "removed": ["slot \x1b[2J"]}).encode(), b"")
    assert saved_jobs._read("cn1", done)["removed"] == ["slot ?[2J"]
    assert saved_jobs._read("cn1", subprocess.CompletedProcess([], 0, b'{"ok": true}', b""))["removed"] == []

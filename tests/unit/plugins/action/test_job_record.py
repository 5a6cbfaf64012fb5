# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""job_record: what the job's shell finds, and only it."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.action import job_guests, job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id

from .task import FACTS, JOB, KEYS, START, Node, act, error, good, make_plan


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> process_id.ProcessId:
    """The process that becomes the job's shell: this one."""
    me = process_id.ProcessId.of(os.getpid())
    monkeypatch.setenv("VTORQUE_SHELL", str(me))
    return me


@pytest.fixture
def stored(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "records")


@pytest.fixture
def made(run_dir: pathlib.Path, plan: JobPlan) -> None:
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)


@pytest.mark.usefixtures("made")
def test_shell_finds_its_record(run_dir: pathlib.Path, plan: JobPlan, shell: t.Any, stored: str) -> None:
    result = act(job_record, run_dir, records_dir=stored)
    assert result["changed"]
    link = run_dir.parents[1] / "shells" / str(shell)
    ready = records.ReadyRecord.from_dict(files.read_json(link.resolve() / "ready.json"))
    assert ready.shell == shell
    assert ready.boot_id == process_id.boot_id()
    assert ready.user == "alice"
    assert ready.guests == (records.ReadyGuest(0, "vn1-3", "n1", "192.0.2.17", vcpus=1),)
    key = " ".join(KEYS[0].public.split()[:2])
    assert (run_dir / "known_hosts").read_text() == f"192.0.2.17 {key}\nvn1-3 {key}\n"
    assert (run_dir / "job_key").read_text() == plan.job_key.private
    assert (run_dir / "plan.json").stat().st_mode & 0o777 == 0o400


@pytest.mark.usefixtures("made")
def test_record_of_the_job_outlives_it(run_dir: pathlib.Path, shell: t.Any, stored: str) -> None:
    act(job_record, run_dir, records_dir=stored)
    act(job_guests, run_dir, Node(good(removed=["domain vn1-3"])), state="absent", timeout=60)
    act(job_record, run_dir, records_dir=stored, state="absent")
    record = files.read_json(pathlib.Path(stored) / f"{JOB}.{START}" / "record.json")
    assert record["guests"][0]["name"] == "vn1-3"
    assert record["guests"][0]["seconds"] == {"ready": 3.2}
    assert list(record["phases"]) == ["present.n1", "join", "record", "absent.n1"]
    assert record["ended"]
    assert "PRIVATE" not in json.dumps(record)


def updates_of(name: str) -> dict[str, t.Any]:
    return {"name": name, "outcome": "timed out", "packages": 2, "seconds": 60.0, "reason": "3 more were not begun"}


def test_record_tells_what_became_of_security_updates(
    run_dir: pathlib.Path, plan: JobPlan, shell: t.Any, stored: str
) -> None:
    """Of the guests that had some; and the job is ready."""
    node = Node(good(FACTS), join=good(updates=[updates_of("vn1-3")]))
    assert act(job_guests, run_dir, node, timeout=77)["changed"]
    assert act(job_record, run_dir, records_dir=stored)["changed"]
    record = files.read_json(pathlib.Path(stored) / f"{JOB}.{START}" / "record.json")
    report = {"outcome": "timed out", "packages": 2, "seconds": 60.0, "reason": "3 more were not begun"}
    assert record["guests"][0]["updates"] == report
    assert schema.check(json.dumps(record).encode(), JOB, START) == record
    act(job_record, run_dir, records_dir=stored, state="absent")
    record = files.read_json(pathlib.Path(stored) / f"{JOB}.{START}" / "record.json")
    assert record["guests"][0]["updates"] == report
    assert list(run_dir.iterdir()) == []


@pytest.mark.usefixtures("plan")
def test_record_of_a_guest_with_cores_memory_and_devices_of_its_own_is_one_that_a_front_end_takes(
    run_dir: pathlib.Path, shell: t.Any, stored: str
) -> None:
    own = {
        "vcpu_cores": "2;3", "other_cores": "0-1", "io_least": 1, "cells": "0:0:96;1:1:96", "pages": "2M",
        "devices": "0000:3b:00.0", "side_channels": "cores", "networks": "fast=10.9.1.3 mine=172.31.0.1",
    }  # fmt: skip
    act(job_guests, run_dir, Node(good({**FACTS, **own})), timeout=77)
    act(job_record, run_dir, records_dir=stored)
    record = files.read_json(pathlib.Path(stored) / f"{JOB}.{START}" / "record.json")
    assert {key: record["guests"][0][key] for key in own} == own
    assert schema.check(json.dumps(record).encode(), JOB, START) == record


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(
    "report",
    [
        pytest.param([updates_of("vn2-3")], id="another node's guest"),
        pytest.param([updates_of("vn1-3")] * 2, id="one twice"),
        pytest.param([{**updates_of("vn1-3"), "outcome": "perhaps"}], id="no outcome"),
        pytest.param([{**updates_of("vn1-3"), "packages": -1}], id="no number"),
        pytest.param([{**updates_of("vn1-3"), "reason": "a\nb"}], id="several lines"),
    ],
)
def test_updates_of_another_form_are_refused(run_dir: pathlib.Path, report: list[dict[str, t.Any]]) -> None:
    assert act(job_guests, run_dir, Node(good(FACTS), join=good(updates=report)), timeout=77)["failed"]
    assert list(run_dir.glob("updates.*")) == []


@pytest.mark.usefixtures("made")
def test_ready_twice_is_no_change(run_dir: pathlib.Path, shell: t.Any, stored: str) -> None:
    act(job_record, run_dir, records_dir=stored)
    assert not act(job_record, run_dir, records_dir=stored)["changed"]


@pytest.mark.usefixtures("made")
def test_check_mode_writes_no_record(run_dir: pathlib.Path, shell: t.Any, stored: str) -> None:
    before = sorted(path.name for path in run_dir.iterdir())
    assert act(job_record, run_dir, records_dir=stored, check=True)["changed"]
    assert sorted(path.name for path in run_dir.iterdir()) == before
    assert not pathlib.Path(stored).exists()
    act(job_record, run_dir, records_dir=stored)
    assert not act(job_record, run_dir, records_dir=stored, check=True)["changed"]
    assert act(job_record, run_dir, records_dir=stored, check=True, state="absent")["changed"]
    assert (run_dir / "ready.json").exists()


@pytest.mark.usefixtures("made")
def test_absent_takes_everything_back_once(run_dir: pathlib.Path, shell: t.Any, stored: str) -> None:
    act(job_record, run_dir, records_dir=stored)
    gone = act(job_record, run_dir, records_dir=stored, state="absent")
    assert gone["changed"]
    assert gone["diff"]["after"] == []
    assert list(run_dir.iterdir()) == []
    assert list((run_dir.parents[1] / "shells").iterdir()) == []
    assert not act(job_record, run_dir, records_dir=stored, state="absent")["changed"]


def test_a_job_with_a_guest_missing_is_not_ready(run_dir: pathlib.Path, shell: t.Any, stored: str) -> None:
    files.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)
    assert "1 of 2 guests are known" in act(job_record, run_dir, records_dir=stored)["msg"]
    assert not (run_dir / "job_key").exists()
    assert not (run_dir.parents[1] / "shells").exists()


def test_two_guests_with_one_address_are_refused(run_dir: pathlib.Path, shell: t.Any, stored: str) -> None:
    files.write(run_dir / "plan.json", make_plan("n1", "n2").to_json())
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77)
    act(
        job_guests,
        run_dir,
        Node(good({**FACTS, "rank": 1, "name": "vn2-0", "mac": "52:54:00:00:02:00"})),
        host="n2",
        timeout=9,
    )
    assert "2 guests have the address 192.0.2.17" in act(job_record, run_dir, records_dir=stored)["msg"]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("text", ["", "1", "1.2.3", "../../etc/passwd", "4194304.1", "1.1"])
def test_only_a_living_shell_gets_a_record(run_dir: pathlib.Path, stored: str, monkeypatch: t.Any, text: str) -> None:
    monkeypatch.setenv("VTORQUE_SHELL", text)
    assert act(job_record, run_dir, records_dir=stored)["failed"]
    assert not (run_dir / "ready.json").exists()
    assert error(run_dir)["what"]

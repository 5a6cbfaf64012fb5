# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a job stands that runs: bounded and strict on its way, its owner's alone on the front end, gone at its end."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import (
    delivery,
    running,
    transfer_format,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError

RECORD = json.dumps({"version": 1, "job_id": "7.head", "start": 2}).encode()
HEAD = {"began": 1.0, "every_s": 30, "guests": {"vcn1-1": [0, ""]}}
POLICY = dataclasses.replace(Policy(), record_host="fe")
UID = 4711


def sample(at: float, cpu_s: float) -> bytes:
    figures = [cpu_s, 0.0, 1 << 20, 0, 0, None, 0]
    return json.dumps({"at": at, "guests": {"vcn1-1": figures}, "energy": None}).encode() + b"\n"


SAMPLES = json.dumps(HEAD).encode() + b"\n" + sample(30, 15) + sample(60, 45)


def wire(files: dict[str, bytes], running: bool = True) -> bytes:
    parcel = transfer_format.Parcel("7.head", 2, files)
    return transfer_format.format_announcement("7.head", 2, running=running) + transfer_format.format_parcel(parcel)


def read(data: bytes) -> transfer_format.Parcel:
    stream = io.BytesIO(data)
    return transfer_format.read(stream, transfer_format.read_announcement(stream))


class Node:
    """The first node of jobs, and something in place of ssh to the front end."""

    def __init__(self, place: pathlib.Path) -> None:
        self.state, self.run, self.came = place / "state", place / "run", place / "came"
        self.came.mkdir()
        self.answers("exit 0")

    def begin(self, key: str, samples: bytes | None = SAMPLES) -> None:
        directory = self.state / "records" / key
        directory.mkdir(parents=True)
        job_id, _dot, start = key.rpartition(".")
        (directory / "record.json").write_text(json.dumps({"version": 1, "job_id": job_id, "start": int(start)}))
        (directory / "vtorque.log").write_text("its owner's\n")
        if samples is not None:
            (directory / "samples.jsonl").write_bytes(samples)
        (self.run / "jobs" / key).mkdir(parents=True)
        (self.run / "jobs" / key / "ready.json").touch()

    def answers(self, script: str) -> None:
        self.ssh = self.came.parent / "ssh"
        self.ssh.write_text(f"#!/bin/sh\ncat >{self.came}/$(ls {self.came} | wc -l)\n{script}\n")
        self.ssh.chmod(0o755)

    def send_due(self, policy: Policy = POLICY) -> tuple[str, ...]:
        terms: dict[str, t.Any] = {"state_dir": self.state, "run_dir": self.run, "ssh": (str(self.ssh),)}
        return running.send_due(policy, Deadline.after(600), **terms)

    def set_times(self, key: str, ago_s: float, began_ago_s: float) -> None:
        directory = self.run / "jobs" / key
        for name, age_s in ((running.STAMP, ago_s), ("ready.json", began_ago_s)):
            os.utime(directory / name, (time.time() - age_s,) * 2)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_record_and_last_samples_of_a_running_job_are_sent_and_nothing_else(
    node: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    node.begin("7.head.2")
    assert node.send_due() == ("7.head.2",)
    parcel = read((node.came / "0").read_bytes())
    assert (parcel.job_id, parcel.start, sorted(parcel.files)) == ("7.head", 2, ["record.json", "samples.jsonl"])
    assert parcel.files["samples.jsonl"] == SAMPLES
    running.check_samples(parcel.files["samples.jsonl"])
    assert delivery_queue.list_pending(node.state) == (), "it is not tried again"
    assert capfd.readouterr() == ("", "")


def test_samples_that_are_long_are_cut_to_the_last_ones(node: Node) -> None:
    node.begin("7.head.2", SAMPLES + b"".join(sample(number, number) for number in range(10_000)))
    node.send_due()
    samples = read((node.came / "0").read_bytes()).files["samples.jsonl"]
    assert len(samples) == transfer_format.SAMPLES_LIMIT
    running.check_samples(samples)
    assert samples.endswith(sample(9_999, 9_999))


@pytest.mark.parametrize(
    ("ago_s", "began_ago_s", "due"),
    [
        (30, 30, False),
        (70, 70, True),
        (70, 300, False),
        (250, 300, True),
        (800, 90_000, False),
        (1000, 90_000, True),
        # a clock that was set back keeps nothing waiting
        (-5000, 90_000, True),
    ],
)
def test_job_is_sent_ever_more_rarely(node: Node, ago_s: float, began_ago_s: float, due: bool) -> None:
    node.begin("7.head.2")
    assert node.send_due() == ("7.head.2",)
    node.set_times("7.head.2", ago_s, began_ago_s)
    assert bool(node.send_due()) is due


def test_front_end_that_is_away_is_asked_once_and_tried_again_later(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (7, 8, 9):
        node.begin(f"{number}.head.1")
    node.answers("exit 255")
    assert node.send_due() == ()
    assert len(list(node.came.iterdir())) == 1
    # one that says nothing costs its time once
    monkeypatch.setattr(delivery, "SEND_S", 0.2)
    node.answers("exec sleep 600")
    assert node.send_due() == ()
    assert len(list(node.came.iterdir())) == 2
    node.answers("exit 3")
    assert node.send_due() == ()
    assert len(list(node.came.iterdir())) == 3, "the other two have had their try"


def test_nothing_is_sent_without_a_front_end_or_a_record(node: Node) -> None:
    node.begin("7.head.2")
    for host in (None, os.uname().nodename):
        assert node.send_due(dataclasses.replace(POLICY, record_host=host)) == ()
    (node.state / "records/7.head.2/record.json").unlink()
    assert node.send_due() == ()
    assert list(node.came.iterdir()) == []


BAD: dict[str, bytes] = {
    "a log": wire({"record.json": RECORD, "vtorque.log": b""}),
    "samples of a job that has ended": wire({"record.json": RECORD, "samples.jsonl": b""}, running=False),
    "samples without a record": wire({"samples.jsonl": b""}),
    "too many samples": wire({"record.json": RECORD, "samples.jsonl": b"x" * (transfer_format.SAMPLES_LIMIT + 1)}),
    "neither running nor not": wire({"record.json": RECORD}).replace(b"true", b"false"),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(FormError):
        read(data)


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"[" * 20_000,
        b"[]",
        b'{"at": 1}',
        b'{"at": "1", "guests": {}}',
        b'{"at": 1, "guests": []}',
        b'{"at": 1, "guests": {"a b": [1, 1, 1, 1, 1, 1, 1]}}',
        b'{"at": 1, "guests": {"a": [1]}}',
        b'{"at": 1, "guests": {"a": [1, 1, 1, 1, 1, 1, "1"]}}',
        b'{"at": 1, "guests": {"a": [1, 1, 1, 1, 1, 1, NaN]}}',
        b'{"at": 1, "guests": {"a": [1, 1, 1, 1, 1, 1, 1e999]}}',
        "ä".encode(),
    ],
)
def test_samples_of_another_form_are_refused(line: bytes) -> None:
    running.check_samples(SAMPLES)
    with pytest.raises(FormError):
        running.check_samples(SAMPLES + line + b"\n")


def test_what_was_sent_is_its_owners_and_the_newest_counts(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "running/7.head.2"
    assert running.put(transfer_format.Parcel("7.head", 2, {"record.json": RECORD}), UID, tmp_path)
    assert running.put(
        transfer_format.Parcel("7.head", 2, {"record.json": RECORD, "samples.jsonl": SAMPLES}), UID, tmp_path
    )
    for path in (place, place / "record.json", place / "samples.jsonl"):
        assert UID.to_bytes(4, "little") in os.getxattr(path, "system.posix_acl_access")
        assert path.stat().st_uid == 0
        assert path.stat().st_mode & 0o007 <= 1
    assert (place / "samples.jsonl").read_bytes() == SAMPLES


def test_what_was_sent_goes_when_the_record_is_here_or_nothing_comes_any_more(tmp_path: pathlib.Path) -> None:
    for start in (1, 2, 3):
        running.put(transfer_format.Parcel("7.head", start, {"record.json": RECORD}), UID, tmp_path)
    running.put(transfer_format.Parcel("77.head", 1, {"record.json": RECORD}), UID, tmp_path)
    running.forget("7.head", 2, tmp_path)
    names = sorted(path.name for path in (tmp_path / "running").iterdir())
    assert names == ["7.head.3", "77.head.1"]
    # whoever comes late is not taken
    (tmp_path / "records/7.head.2").mkdir(parents=True)
    (tmp_path / "records/7.head.2/record.json").touch()
    assert not running.put(transfer_format.Parcel("7.head", 2, {"record.json": RECORD}), UID, tmp_path)
    os.utime(tmp_path / "running/77.head.1", (time.time() - 2 * running.FORGET_S,) * 2)
    running.put(transfer_format.Parcel("8.head", 1, {"record.json": RECORD}), UID, tmp_path)
    names = sorted(path.name for path in (tmp_path / "running").iterdir())
    assert names == ["7.head.3", "8.head.1"]


def test_nothing_is_packed_by_a_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "record.json").symlink_to("/etc/passwd")
    with pytest.raises(VTorqueError):
        running.pack("7.head", 2, tmp_path)

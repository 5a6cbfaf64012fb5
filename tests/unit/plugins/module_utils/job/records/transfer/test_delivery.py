# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that wait are handed over by the sweep: the oldest first, no more than it may spend, and none is lost."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import parameters
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import delivery
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer.delivery import (
    AWAY,
    GIVEN_UP,
    NEVER,
    REFUSED,
    SSH_FAILED,
    TAKEN,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline


class Node:
    """A node with records that wait, and something in place of ssh that notes the announcements."""

    def __init__(self, place: pathlib.Path) -> None:
        self.state_dir, self.run_dir = place / "state", place / "run"
        self.ssh, self.came = place / "ssh", place / "came"
        self.answers("exit 0")

    def answers(self, script: str) -> None:
        """What the front end does with a record, of which it has read the announcement into $line."""
        self.ssh.write_text(f'#!/bin/sh\nread -r line\necho "$line" >>{self.came}\n{script}\n')
        self.ssh.chmod(0o755)

    def wait(self, number: int, age_s: float = 1000.0, tried_s: float | None = None) -> str:
        """A record that was closed so long ago, and tried last so long ago."""
        key = f"{number}.head.1"
        path = self.state_dir / "records" / key / "record.json"
        files.make_record_directory(path.parent)
        files.write(path, json.dumps({"version": 1, "job_id": f"{number}.head", "start": 1}))
        (path.parent / "vtorque.log").write_text("began\n")
        delivery_queue.mark_pending(key, self.state_dir)
        now = time.time()
        os.utime(path, (now - age_s,) * 2)
        os.utime(self.state_dir / "spool" / key, (now - (age_s if tried_s is None else tried_s),) * 2)
        return key

    def sweep(self, host: str | None = "fe", seconds: float = 60.0) -> list[tuple[str, str]]:
        report = dataclasses.replace(parameters.Policy(), record_host=host)
        done = delivery.send_waiting(
            report, Deadline.after(seconds), state_dir=self.state_dir, run_dir=self.run_dir, ssh=(str(self.ssh),)
        )  # fmt: skip
        return [(one.key, one.outcome) for one in done]

    @property
    def announced(self) -> list[str]:
        lines = self.came.read_text().splitlines() if self.came.exists() else []
        return [json.loads(line)["job_id"] for line in lines]

    @property
    def waiting(self) -> list[str]:
        return [mark.key for mark in delivery_queue.list_pending(self.state_dir)]

    def log(self, key: str) -> str:
        return (self.state_dir / "records" / key / "vtorque.log").read_text()


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


def test_oldest_goes_first_and_the_log_says_so(node: Node) -> None:
    node.wait(8, age_s=500)
    node.wait(7, age_s=1000)
    assert node.sweep() == [("7.head.1", TAKEN), ("8.head.1", TAKEN)]
    assert node.announced == ["7.head", "8.head"]
    assert node.waiting == []
    assert node.log("7.head.1").endswith(" the record was handed over to fe\n")
    assert node.sweep() == []


def test_front_end_that_is_away_is_asked_once_a_sweep(node: Node) -> None:
    """And the next one asks with another record, until all wait for as long again."""
    node.answers(f"echo 'connect to host fe port 22: Connection refused' >&2; exit {SSH_FAILED}")
    keys = [node.wait(number, age_s=1000 - number) for number in (7, 8)]
    assert node.sweep() == [(keys[0], AWAY)]
    assert node.sweep() == [(keys[1], AWAY)]
    assert node.sweep() == []
    assert node.waiting == keys
    assert delivery_queue.list_pending(node.state_dir)[0].why.endswith("Connection refused")
    assert node.log(keys[0]) == "began\n"  # else no record that waits would ever be old


def test_record_that_is_refused_holds_up_no_other(node: Node) -> None:
    node.answers('case "$line" in *7.head*) echo "No space left on device" >&2; exit 1 ;; esac')
    refused, taken = node.wait(7), node.wait(8, age_s=500)
    assert node.sweep() == [(refused, REFUSED), (taken, TAKEN)]
    assert node.waiting == [refused]
    assert delivery_queue.list_pending(node.state_dir)[0].why == "No space left on device"


def test_record_that_will_never_be_taken_is_given_up_and_stays_on_the_node(node: Node) -> None:
    node.answers(f"echo 'another record of it is kept here' >&2; exit {NEVER}")
    key = node.wait(7)
    assert node.sweep() == [(key, GIVEN_UP)]
    assert node.waiting == []
    assert (node.state_dir / "records" / key / "record.json").exists()
    assert "and that is given up: another record of it is kept here" in node.log(key)


def test_mark_without_a_record_is_given_up(node: Node) -> None:
    key = node.wait(7)
    (node.state_dir / "records" / key / "record.json").unlink()
    assert node.sweep() == [(key, GIVEN_UP)]
    assert node.waiting == []


def test_record_that_is_not_whole_waits(node: Node) -> None:
    """While its run directory is there, or the epilogue's own try holds the mark."""
    key = node.wait(7)
    (node.run_dir / "jobs" / key).mkdir(parents=True)
    assert node.sweep() == []
    (node.run_dir / "jobs" / key).rmdir()
    with (node.state_dir / "spool" / key).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert node.sweep() == []
    assert node.announced == []
    assert node.sweep() == [(key, TAKEN)]


def test_sweep_is_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tries, and in time: what is left goes with the next."""
    monkeypatch.setattr(delivery, "SWEEP_TRIES", 2)
    keys = [node.wait(number, age_s=1000 - number) for number in (1, 2, 3)]
    assert node.sweep(seconds=delivery.SEND_S - 1) == []
    assert node.sweep() == [(keys[0], TAKEN), (keys[1], TAKEN)]
    assert node.waiting == [keys[2]]


def test_record_just_tried_is_not_due(node: Node) -> None:
    node.wait(7, age_s=1000, tried_s=300)
    assert node.sweep() == []
    node.wait(7, age_s=1000, tried_s=501)
    assert len(node.sweep()) == 1


def test_site_without_a_front_end_has_nothing_that_waits(node: Node) -> None:
    for host in (None, os.uname().nodename):
        key = node.wait(7)
        assert node.sweep(host) == []
        assert node.waiting == []
        assert (node.state_dir / "records" / key / "record.json").exists()
    assert node.announced == []


def test_log_that_is_a_link_is_not_written(node: Node, tmp_path: pathlib.Path) -> None:
    key = node.wait(7)
    path = node.state_dir / "records" / key / "vtorque.log"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    node.sweep()
    assert (tmp_path / "elsewhere").read_text() == "began\n"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of nodes that failed in a start which went well on spare ones."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import replaced_nodes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.replaced_nodes import Alarm
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.start import Places, Start

BRIDGE = NodeFault("n1: bridge br0", "is missing", cause="bridge", node="n1")
NOTE = "vtorque: bridge: bridge br0: is missing (job 7.head)"


class Batch:
    """A batch system with four free nodes, which does what it is told or is silent."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.reported: list[tuple[str, ...]] = []

    def nodes(self) -> list[BatchNode]:
        self.reported.append(("nodes",))
        if self.silent:
            raise SiteFault("pbsnodes", "did not answer")
        return [BatchNode(f"n{number}", frozenset(["free"]), 4, 0, frozenset(), "") for number in (1, 2, 3, 4)]

    def offline(self, node: str, note: str) -> BatchNode:
        self.reported.append(("offline", node, note))
        return BatchNode(node, frozenset(["offline"]), 4, 0, frozenset(), note)

    def requeue(self, _job_id: str) -> None:
        raise AssertionError("the job runs")

    hold = requeue


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Start:
    made = Start("7.head", 1, Places(run_dir=tmp_path / "run", state_dir=tmp_path / "state"))
    made.directory.mkdir(parents=True)
    return made


def replace(start: Start, node: str, error: VTorqueError, by: str) -> None:
    content = {"by": by, **error.to_dict(), "host": node}
    path = start.directory / f"replaced.{node}.json"
    path.write_text(json.dumps(content))
    path.chmod(0o600)


def blame(start: Start, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> Alarm:
    monkeypatch.setattr(replaced_nodes, "open_batch", lambda *_args, **_more: batch)
    known: dict[str, t.Any] = dict.fromkeys((field.name for field in dataclasses.fields(BatchJob)), "")
    job = BatchJob(**{**known, "job_id": "7.head", "start_count": 1, "slot_hosts": ("n1", "n2", "n3")})
    policy = Policy(offline_brake="3")
    return replaced_nodes.blame_replaced(start, job, policy, until=time.monotonic() + 60, uid=os.getuid())


def log_of(start: Start) -> str:
    return (start.record_directory / "vtorque.log").read_text()


def test_node_that_proved_a_fault_goes_offline_and_the_job_is_left_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(start, "n1", BRIDGE, "n3")
    batch = Batch()
    alarm = blame(start, batch, monkeypatch)
    assert batch.reported == [("nodes",), ("offline", "n1", NOTE)]
    assert "n1 failed, n3 has taken its place: n1: bridge br0: is missing" in log_of(start)
    assert f"n1 is set offline: {NOTE}" in log_of(start)
    assert alarm.text.startswith("job 7.head, start 1: n1 failed, n3 has taken its place")
    assert not alarm.grave


def test_node_that_proved_nothing_is_told_of_in_the_log_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(start, "n1", VTorqueError("n1 was not reached", "no route"), "n3")
    batch = Batch()
    assert blame(start, batch, monkeypatch) == Alarm()
    assert batch.reported == []
    assert "n1 failed, n3 has taken its place: n1 was not reached: no route" in log_of(start)


def test_server_that_is_silent_leaves_the_job_running_and_the_administrator_hears_of_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(start, "n1", BRIDGE, "n3")
    alarm = blame(start, Batch(silent=True), monkeypatch)
    assert "n1 is not set offline: the batch server does not tell of its nodes" in alarm.text


def test_start_without_a_replaced_node_asks_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch()
    assert blame(start, batch, monkeypatch) == Alarm()
    assert batch.reported == []
    assert not start.record_directory.exists()


def test_file_that_is_garbage_stops_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(start, "n1", BRIDGE, "n3")
    (start.directory / "replaced.n2.json").write_text("{")
    batch = Batch()
    alarm = blame(start, batch, monkeypatch)
    assert ("offline", "n1", NOTE) in batch.reported
    assert "nothing is done about n2" in alarm.text

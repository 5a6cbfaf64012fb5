# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of a batch system whose calls say more than Torque's: the job's nodes, and which start it is."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import mother_superior
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookCall, Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import answers as slurm_answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import epilogue, start

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures/slurm"
CALL = HookCall(Role.BEGIN_FIRST, True, 0, "t2", "11.th", "alice", None)


def slurms_job(batch_host: str) -> BatchJob:
    """Job 4 of Slurm on cn1 and cn2, whose script runs there."""
    answer = json.loads((FIXTURES / "squeue-running.json").read_bytes())
    form = next(form for form in answer["jobs"] if form["job_id"] == 4)
    return slurm_answers.read_job({**form, "batch_host": batch_host}, "4.lab").job


def test_script_on_another_node_than_the_first_is_refused() -> None:
    """`sbatch --batch=FEATURE`: its shell would look for a guest where none was made for it."""
    call = dataclasses.replace(CALL, job_id="4.lab", nodes=("cn1", "cn2"))
    fault = mother_superior.script_elsewhere(call, slurms_job("cn2"))
    assert isinstance(fault, UserFault)
    assert "cn2" in fault.what
    for well in ("cn1", ""):
        assert mother_superior.script_elsewhere(call, slurms_job(well)) is None
    assert mother_superior.script_elsewhere(dataclasses.replace(call, nodes=()), slurms_job("cn2")) is None
    assert mother_superior.script_elsewhere(call, None) is None


@pytest.mark.parametrize(("number", "ended"), [(None, [1, 2, 3]), (2, [1, 2]), (3, [1, 2, 3]), (0, [])])
def test_sister_ends_no_later_start_than_the_one_that_is_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int | None, ended: list[int]
) -> None:
    """The job was queued again, and has begun here once more."""
    places = start.Places(tmp_path / "run", tmp_path / "state")
    for there in (1, 2, 3):
        (places.state_dir / "guests" / f"11.th.{there}").mkdir(parents=True)
    removed: list[int] = []
    monkeypatch.setattr(epilogue, "_remove_detached", lambda one, _log, _user: removed.append(one.number))
    epilogue.run_sister(dataclasses.replace(CALL, role=Role.END_OTHER, start=number), places, began=0.0)
    assert removed == ended


@pytest.mark.parametrize(("system", "waits"), [("torque", False), ("openpbs", False), ("slurm", True)])
def test_sister_waits_for_the_removal_where_the_nodes_next_job_waits_for_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, system: str, waits: bool
) -> None:
    """Slurm gives each node away when its own Epilog has ended; guests would still have its memory and devices."""
    monkeypatch.setenv("VTORQUE_BATCH_SYSTEM", system)
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\ncat >/dev/null\nsleep 1\ntouch {tmp_path}/gone.$4\n")
    node.chmod(0o755)
    places = start.Places(tmp_path / "run", tmp_path / "state", tmp_path / "none.yml", node=(str(node),))
    for there in (1, 2):
        (places.state_dir / "guests" / f"11.th.{there}").mkdir(parents=True)
    call = dataclasses.replace(CALL, role=Role.END_OTHER, start=2)
    epilogue.run_sister(call, places, began=time.monotonic())
    assert [(tmp_path / f"gone.{there}").exists() for there in (1, 2)] == [waits, waits]


def test_sister_waits_no_longer_than_its_hook_may(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal goes on by itself."""
    monkeypatch.setenv("VTORQUE_BATCH_SYSTEM", "slurm")
    removal = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    monkeypatch.setattr(epilogue, "_remove_detached", lambda *_words: removal)
    places = start.Places(tmp_path / "run", tmp_path / "state", tmp_path / "none.yml")
    (places.state_dir / "guests/11.th.1").mkdir(parents=True)
    call = dataclasses.replace(CALL, role=Role.END_OTHER, start=1)
    try:
        with pytest.raises(VTorqueError, match="it goes on"):
            epilogue.run_sister(call, places, began=time.monotonic() - 1000)
        assert removal.poll() is None
    finally:
        removal.kill()
        removal.wait()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job checkpoint` and `suspend`: the owner's wish goes by the batch system, and root forgets what was saved."""

from __future__ import annotations

import argparse
import pathlib
import types

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.jobs import checkpoint


class Batch:
    """A server that has one job."""

    def __init__(self, state: str) -> None:
        self.state, self.asked, self.parked, self.rerunnable = state, [""], [""], True

    def find_id(self, named: str) -> str:
        if not self.state:
            raise UnknownJob(f"job {named}", "is not known")
        return f"{named.removesuffix('.head')}.head"

    def job(self, job_id: str) -> types.SimpleNamespace:
        assert job_id == "7.head"
        return types.SimpleNamespace(job_id="7.head", state=self.state, rerunnable=self.rerunnable)

    def request_checkpoint(self, job_id: str, *, park: bool) -> None:
        (self.parked if park else self.asked).append(job_id)

    def release_command(self, job_id: str) -> str:
        return f"let {job_id} go on"


def run(
    monkeypatch: pytest.MonkeyPatch,
    batch: Batch,
    store: pathlib.Path | None,
    *,
    delete: bool = False,
    verb: str = "checkpoint",
    why: str = "",
    job: str = "7.head",
) -> int:
    monkeypatch.setattr(checkpoint, "open_batch", lambda _policy, front_end: batch)
    monkeypatch.setattr(checkpoint, "find_objection", lambda _job, _policy: why)
    policy = Policy(checkpoint_dir=str(store) if store else None)
    more = {"delete": delete} if verb == "checkpoint" else {}
    return checkpoint.run(argparse.Namespace(job=job, verb=verb, **more), lambda: policy)


def test_running_job_is_asked_for_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = Batch("R")
    assert run(monkeypatch, batch, tmp_path) == 0
    assert batch.asked[1:] == ["7.head"]
    assert "vmgr job log 7" in capsys.readouterr().out


def test_job_that_is_to_be_suspended_is_asked_and_its_owner_reads_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = Batch("R")
    assert run(monkeypatch, batch, tmp_path, verb="suspend") == 0
    assert (batch.asked[1:], batch.parked[1:]) == ([], ["7.head"])
    assert "goes on after: let 7.head go on" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["checkpoint", "suspend"])
@pytest.mark.parametrize("state", ["Q", "H", "S", "C", ""])
def test_job_that_does_not_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, state: str, verb: str
) -> None:
    batch = Batch(state)
    with pytest.raises(UserFault, match=r"7\.head"):
        run(monkeypatch, batch, tmp_path, verb=verb)
    assert batch.asked == batch.parked == [""]


@pytest.mark.parametrize("verb", ["checkpoint", "suspend"])
def test_job_that_cannot_be_saved_gets_no_signal_and_its_owner_reads_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, verb: str
) -> None:
    """The signal would end it."""
    batch = Batch("R")
    with pytest.raises(UserFault, match="no, because it has a PCI device"):
        run(monkeypatch, batch, tmp_path, verb=verb, why="cannot be saved: no, because it has a PCI device")
    assert batch.asked == batch.parked == [""]


def test_job_that_may_not_run_again_is_saved_but_not_suspended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    batch = Batch("R")
    batch.rerunnable = False
    with pytest.raises(UserFault, match="may not run again"):
        run(monkeypatch, batch, tmp_path, verb="suspend")
    assert batch.parked == [""]
    assert run(monkeypatch, batch, tmp_path) == 0


@pytest.mark.parametrize("verb", ["checkpoint", "suspend"])
def test_job_is_found_by_its_short_id(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, verb: str) -> None:
    batch = Batch("R")
    assert run(monkeypatch, batch, tmp_path, verb=verb, job="7") == 0
    assert "7.head" in (batch.parked if verb == "suspend" else batch.asked)


def test_site_without_a_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SiteFault, match="this site has none"):
        run(monkeypatch, Batch("R"), None)


@pytest.mark.parametrize("state", ["H", "Q", "C", ""])
def test_delete_removes_what_was_saved_of_a_job_that_does_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "7.head/1").mkdir(parents=True)
    (tmp_path / "8.head/1").mkdir(parents=True)
    assert run(monkeypatch, Batch(state), tmp_path, delete=True) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["8.head"]
    assert run(monkeypatch, Batch(state), tmp_path, delete=True) == 0
    assert capsys.readouterr().out == "removed\nnone\n"


def test_delete_of_a_job_that_runs_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "7.head/1").mkdir(parents=True)
    with pytest.raises(UserFault, match="state R"):
        run(monkeypatch, Batch("R"), tmp_path, delete=True)
    assert (tmp_path / "7.head/1").is_dir()

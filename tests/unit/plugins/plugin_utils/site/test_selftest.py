# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs of a self-test: submitted, waited for, taken back."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pwd
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_trial
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.adapter import Slurm
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import selftest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.site import as_user
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.site import selftest as selftest_call

ME = pwd.getpwuid(os.getuid())


class Batch:
    """A batch server that tells states of jobs, one after the other; the last one stays."""

    def __init__(self, **states: str) -> None:
        self.states = {f"{number}.fe": list(arguments) for number, arguments in states.items()}
        self.deleted: list[str] = []

    def job(self, job_id: str) -> BatchJob:
        """As BatchSystem."""
        states = self.states[job_id]
        state = states.pop(0) if len(states) > 1 else states[0]
        if state == "?":
            raise UnknownJob(f"job {job_id}", "is not known")
        if state == "!":
            raise SiteFault("qstat", "did not answer")
        return BatchJob(
            job_id, "x", "alice", "fe", "alice", "alice", state, "batch", ("cn1",), 1, "", "", "/", 0, 0, False, 0, {},
            "", {}, "", exit_status=23 if state == "C" else None, comment="held: no home" if state == "H" else "",
        )  # fmt: skip

    def delete(self, job_id: str) -> None:
        """As BatchSystem."""
        self.deleted.append(job_id)
        self.states[job_id] = ["C"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "FILES_S", "RECORD_S"):
        monkeypatch.setattr(selftest_call, name, 0.01)


def trial(directory: pathlib.Path, number: str = "j1") -> selftest_call.Trial:
    made = selftest_call.prepare(directory, "1", 1, open_trial("torque"))
    made.job_id = f"{number}.fe"
    return made


def wait(batch: Batch, *trials: selftest_call.Trial, timeout_s: float = 60) -> list[str]:
    output: list[str] = []
    selftest_call.wait(trials, t.cast("t.Any", batch), timeout_s, output.append)
    return output


def submit(
    one: selftest_call.Trial, vsub: str, request: str = "", queue: str | None = None, system: str = "torque"
) -> None:
    batch = t.cast("t.Any", Batch()) if system == "torque" else Controller(pathlib.Path("/nowhere"))
    selftest_call.submit(one, vsub, request, ME, job=open_trial(system), batch=batch, queue=queue)


class Controller(Slurm):
    """Slurm's, as far as it is asked for its name."""

    def configuration(self) -> dict[str, str]:
        return {"ClusterName": "site"}


def vsub_that(directory: pathlib.Path, script: str) -> str:
    path = directory / "vsub"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_job_is_submitted_as_a_user_would(tmp_path: pathlib.Path) -> None:
    one = selftest_call.prepare(tmp_path, "cn1", 1, open_trial("torque"))
    vsub = vsub_that(tmp_path, f'printf "%s\\n" "$@" >{tmp_path}/words; env >{tmp_path}/env; echo "7.fe"')
    submit(one, vsub, "vcpus=1", queue="fast")
    assert (one.job_id, one.failure) == ("7.fe", None)
    arguments = (tmp_path / "words").read_text().splitlines()
    assert arguments[-3:] == ["-vm", "vcpus=1", str(one.directory / "job.sh")]
    assert arguments[arguments.index("-l") + 1] == "nodes=cn1"
    assert arguments[arguments.index("-q") + 1] == "fast"
    assert f"HOME={ME.pw_dir}" in (tmp_path / "env").read_text().splitlines()
    selftest_call.tidy([one])
    assert not one.directory.exists()


def test_job_on_slurm_has_sbatchs_options_and_the_clusters_name(tmp_path: pathlib.Path) -> None:
    one = selftest_call.prepare(tmp_path, "cn1", 1, open_trial("slurm"))
    vsub = vsub_that(tmp_path, f'printf "%s\\n" "$@" >{tmp_path}/words; echo "Submitted batch job 12"')
    submit(one, vsub, "vcpus=1", "fast", "slurm")
    assert (one.job_id, one.failure) == ("12.site", None)
    arguments = (tmp_path / "words").read_text().splitlines()
    assert {"--nodelist=cn1", "--partition=fast", f"--output={one.directory}/out"} <= set(arguments)
    assert arguments[-3:] == ["-vm", "vcpus=1", str(one.directory / "job.sh")]
    assert "PBS_" not in (one.directory / "job.sh").read_text()
    two = selftest_call.prepare(tmp_path, "2", 2, open_trial("slurm"))
    submit(two, vsub, system="slurm")
    assert "--nodes=2" in (tmp_path / "words").read_text().splitlines()


@pytest.mark.parametrize(
    ("script", "message"),
    [("echo 'vsub: img=x: no such image' >&2; exit 2", "vsub: img=x: no such image"), ("exit 0", "vsub ended with 0")],
)
def test_refusal_is_a_finding(tmp_path: pathlib.Path, script: str, message: str) -> None:
    one = selftest_call.prepare(tmp_path, "1", 1, open_trial("torque"))
    submit(one, vsub_that(tmp_path, script))
    assert one.failure is not None
    assert (one.failure.check, one.failure.state, one.failure.problem) == ("submitted", "bad", message)
    batch = Batch()
    wait(batch, one)
    assert batch.deleted == []


def test_jobs_are_waited_for(tmp_path: pathlib.Path) -> None:
    """Over, forgotten by the server, and a server that is silent for a while."""
    trials = [trial(tmp_path, name) for name in ("j1", "j2", "j3")]
    batch = Batch(j1="QRRC", j2="R?", j3="R!!C")
    output = wait(batch, *trials)
    assert all(one.ended and one.failure is None for one in trials)
    assert batch.deleted == []
    assert "job j1.fe is in state Q" in output[0]


def test_held_job_is_taken_back_with_the_reason(tmp_path: pathlib.Path) -> None:
    one, batch = trial(tmp_path), Batch(j1="RH")
    wait(batch, one)
    assert one.failure is not None
    assert (one.failure.cell, one.failure.problem, one.in_time) == ("held", "it is held: held: no home", True)
    assert batch.deleted == ["j1.fe"]


def test_late_job_is_taken_back(tmp_path: pathlib.Path) -> None:
    one, done, batch = trial(tmp_path), trial(tmp_path, "j2"), Batch(j1="Q", j2="C")
    wait(batch, one, done, timeout_s=0)
    assert (one.in_time, done.in_time) == (False, True)
    assert one.failure is not None
    assert "job j1.fe is in state Q, not over after 0 s" in one.failure.problem
    assert batch.deleted == ["j1.fe"]
    report, record = selftest_call.report(one, EXPECTED, tmp_path / "records")
    assert (report.asked, report.well, record) == (False, False, None)


EXPECTED = selftest.ExpectedOutcome("", "alice", 1, 1, "/home/alice", True, 1, ("cn1",), False)


def test_selftest_output_that_arrived_is_read(tmp_path: pathlib.Path) -> None:
    one = trial(tmp_path)
    (one.directory / "out").write_text(f"begin {one.token}\nhost vcn1-1\nend {one.token}\n")
    (one.directory / "err").write_text(f"{one.token} on standard error\n")
    wait(Batch(j1="C"), one)
    expected = dataclasses.replace(EXPECTED, token=one.token)
    report, record = selftest_call.report(one, expected, tmp_path / "records")
    assert record is None
    assert report.node == "cn1"
    states = {finding.check: finding.state for finding in report.findings}
    assert {name for name, state in states.items() if state == "ok"} == {
        "submitted", "ended", "exit status", "output", "errors", "machine",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_selftest_output_that_is_no_file_is_missing(tmp_path: pathlib.Path, kind: str) -> None:
    """A FIFO would hold whoever opens it, a link lead anywhere."""
    one = trial(tmp_path)
    (tmp_path / "other").write_text("somebody's")
    if kind == "fifo":
        os.mkfifo(one.directory / "out")
    elif kind == "link":
        (one.directory / "out").symlink_to(tmp_path / "other")
    else:
        (one.directory / "out").mkdir()
    (one.directory / "err").write_text("")
    wait(Batch(j1="C"), one)
    report, _record = selftest_call.report(one, dataclasses.replace(EXPECTED, token=one.token), tmp_path / "records")
    found = report.finding("output")
    assert found is not None
    assert "did not come" in found.problem


def test_no_more_is_read_than_is_needed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial(tmp_path)
    for name in ("out", "err"):
        with (one.directory / name).open("wb") as file:
            file.truncate(1 << 42)
    wait(Batch(j1="C"), one)
    came: list[selftest.JobOutcome] = []
    monkeypatch.setattr(selftest_call.selftest, "check_outcome", lambda _expected, one: came.append(one) or ())
    selftest_call.report(one, EXPECTED, tmp_path / "records")
    assert [len(text or "") for text in (came[0].output, came[0].errors)] == [100_000, 100_000]


def test_home_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UserFault, match="gone"):
        selftest_call.prepare(tmp_path / "gone", "1", 1, open_trial("torque"))


def test_directory_of_the_selftest_is_the_users_alone(tmp_path: pathlib.Path) -> None:
    assert trial(tmp_path).directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("name", "why"), [("root", "no job is submitted"), ("no-such-user", "not known")])
def test_user_who_cannot_submit(name: str, why: str) -> None:
    with pytest.raises(UserFault, match=why):
        as_user.find(name)

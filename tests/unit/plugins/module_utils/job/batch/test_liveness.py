# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a start lives, by the words of server and MOM."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import liveness
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import answers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.mom_files import by_files

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures/torque"
RUNNING = answers.parse_job((FIXTURES / "qstat-x-f-array-member-running.xml").read_bytes(), "12[1].th")


def job(state: str = "R", start: int = 2, nodes: tuple[str, ...] = ("t2", "t1", "t1")) -> BatchJob:
    return dataclasses.replace(RUNNING, state=state, start_count=start, slot_hosts=nodes)


@pytest.mark.parametrize(
    ("word", "start", "lives"),
    [
        (job("R"), 2, True),
        (job("E"), 2, True),
        (job("S"), 2, True),
        (job("Q"), 2, False),
        (job("H"), 2, False),
        (job("W"), 2, False),
        (job("C"), 2, False),
        (job("Q", nodes=()), 2, False),
        (job("R"), 1, False),
        (job("R"), 0, True),
        (job("R", nodes=("t10", "t2")), 2, False),
        (job("R", nodes=("t10", "t2")), 0, False),
        (job("R", nodes=("t1.cluster.example",)), 2, True),
    ],
)
def test_a_start_lives_by_state_number_and_node(word: BatchJob, start: int, lives: bool) -> None:
    assert liveness.start_lives(word, start, "t1") is lives


@pytest.mark.parametrize(
    ("word", "start", "message"),
    [
        (job("T"), 2, "state 'T'"),
        (job(""), 2, "state ''"),
        (job("R", 1), 2, "only at start 1"),
        (job("R", nodes=()), 2, "no node"),
    ],
)
def test_a_word_that_does_not_tell_is_an_error(word: BatchJob, start: int, message: str) -> None:
    with pytest.raises(SiteFault, match=message):
        liveness.start_lives(word, start, "t1")


class Server:
    """Answers what it is told to, and counts."""

    def __init__(self, answer: BatchJob | SiteFault) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def job(self, job_id: str) -> BatchJob:
        self.asked.append(job_id)
        if isinstance(self.answer, SiteFault):
            raise self.answer
        return self.answer


def test_the_server_is_asked_once_for_all_starts_of_a_job() -> None:
    server = Server(job())
    is_alive = liveness.by_server(liveness.JobAnswers(server), "t1")  # type: ignore[arg-type]
    assert [is_alive("12[1].th", start) for start in (0, 1, 2)] == [True, False, True]
    assert server.asked == ["12[1].th"]


def test_a_job_that_the_server_does_not_know_is_over_and_its_silence_is_not() -> None:
    assert liveness.by_server(liveness.JobAnswers(Server(UnknownJob("job 1.th"))), "t1")("1.th", 1) is False  # type: ignore[arg-type]
    is_alive = liveness.by_server(liveness.JobAnswers(Server(SiteFault("qstat", "no answer"))), "t1")  # type: ignore[arg-type]
    for _again in range(2):
        with pytest.raises(SiteFault, match="no answer"):
            is_alive("1.th", 1)


def test_a_server_that_stays_silent_is_not_asked_for_every_job() -> None:
    server = Server(SiteFault("qstat", "no answer"))
    is_alive = liveness.by_server(liveness.JobAnswers(server), "t1")  # type: ignore[arg-type]
    for number in range(100):
        with pytest.raises(SiteFault, match="no answer"):
            is_alive(f"{number}.th", 1)
    assert len(server.asked) == liveness.SILENT


@pytest.mark.parametrize(
    ("name", "job_id", "has"),
    [
        ("72.head.JB", "72.head", True),
        ("72.head.SC", "72.head", True),
        ("72.head.TK", "72.head", True),
        ("72.head.cluster.example.JB", "72.head", True),
        ("72.JB", "72.head", True),
        ("72-1.head.SC", "72[1].head", True),
        ("72[1].head.JB", "72[1].head", True),
        ("72-1.head.SC", "72[2].head", False),
        ("72-1.head.SC", "72[10].head", False),
        ("72-1.head.SC", "72.head", False),
        ("72.head.JB", "7.head", False),
        ("172.head.JB", "72.head", False),
        ("72.head.OU", "72.head", False),
        ("something.JB", "72.head", False),
    ],
)
def test_the_mom_has_a_job_by_its_files(tmp_path: pathlib.Path, name: str, job_id: str, has: bool) -> None:
    (tmp_path / "mom_priv/jobs").mkdir(parents=True)
    (tmp_path / "mom_priv/jobs" / name).touch()
    assert by_files(tmp_path)(job_id) is has


def test_a_directory_that_cannot_be_read_is_no_empty_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="not known"):
        by_files(tmp_path)("72.head")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that is away for a while is waited for, and not for longer than there is time."""

from __future__ import annotations

import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import patience
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.shared.server_command import ServerSilent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

UNREADABLE = SiteFault("job 7", "exit_code is 'x', which cannot be read")


class Server:
    """Answers in this order."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    def job(self, _job_id: str) -> object:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSES_S", (0.01,))


AWAY = ServerSilent("squeue", "Slurm's controller cannot be reached")


def ask(server: Server, left_s: float = 5.0, others: Deadline | None = None) -> object:
    return patience.await_job(t.cast(t.Any, server), "7.lab", Deadline.after(left_s), others=others)


def test_server_that_comes_back_is_answered_by() -> None:
    server = Server(AWAY, AWAY, "job")
    assert (ask(server), server.asked) == ("job", 3)


def test_server_that_stays_away_is_asked_until_the_deadline_and_no_longer() -> None:
    began = time.monotonic()
    with pytest.raises(SiteFault, match=r"cannot be reached; asked [0-9]+ times in 0 s"):
        ask(Server(AWAY), 0.2)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(("fault", "left_s"), [(AWAY, 0.0), (UNREADABLE, 5.0)])
def test_server_is_asked_once_where_no_time_is_left_or_the_fault_is_another(fault: SiteFault, left_s: float) -> None:
    server = Server(fault)
    with pytest.raises(SiteFault, match=f"{fault.why}$"):
        ask(server, left_s)
    assert server.asked == 1


def test_other_faults_are_asked_after_for_their_own_time() -> None:
    assert ask(Server(UNREADABLE, AWAY, "job"), others=Deadline.after(5)) == "job"
    began = time.monotonic()
    with pytest.raises(SiteFault, match=r"asked [0-9]+ times"):
        ask(Server(UNREADABLE), 60, Deadline.after(0.2))
    assert time.monotonic() - began < 5


def test_answer_that_there_is_no_such_job_is_an_answer() -> None:
    server = Server(UnknownJob("job 7.lab", "unknown"))
    with pytest.raises(UnknownJob):
        ask(server)
    assert server.asked == 1

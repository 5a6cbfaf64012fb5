# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sister's word about a lost guest reaches the mother superior, or is said again."""

from __future__ import annotations

import json
import os
import pathlib
import select
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import loss_report
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.loss_report import LossReporter
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import event_log
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import from_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import LostGuest

LOST = LostGuest(1, "lost", "7.head", 2, "cn2", "vcn2-1", "it was destroyed", "Linux version 6.1 \u00fc")


def collect_in(log: list[str]) -> event_log.Log:
    """Return what collects the texts of lines."""

    def take_line(text: str, level: str = "info", component: str = "") -> None:
        log.append(text)

    return take_line


def run(script: str, log: list[str], times: int = 1) -> LossReporter:
    """A telling whose command is a line of shell, when that has ended so many times."""
    one = LossReporter(["/bin/sh", "-c", script], LOST, collect_in(log))
    for _time in range(times):
        select.select(one.filenos(), [], [], 60)
        one.go_on()
    return one


def test_word_arrives_whole(tmp_path: pathlib.Path) -> None:
    log: list[str] = []
    done = run(f"""cat >{tmp_path}/told; echo '{{"version":1,"ok":true}}'""", log)
    assert from_dict(LostGuest, json.loads((tmp_path / "told").read_text())) == LOST
    assert (log, done.filenos(), done.due_s()) == ([], [], float("inf"))
    done.close()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no route >&2; exit 255", "no route"),
        ("exit 3", "status 3"),
        ("""echo '{"version":1,"ok":false}'""", '"ok":false'),
    ],
)
def test_word_that_was_not_heard_is_said_again_and_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(loss_report, "PAUSES_S", (0.0, 0.0))
    log: list[str] = []
    given_up = run(script, log, times=3)
    assert [", it is tried again" in line for line in log] == [True, True, False]
    assert all(why in line for line in log)
    assert (given_up.filenos(), given_up.due_s()) == ([], float("inf"))


def test_loss_report_waits_before_its_next_attempt() -> None:
    log: list[str] = []
    one = run("exit 1", log)
    assert 0 < one.due_s() <= loss_report.PAUSES_S[0]
    one.go_on()
    assert (one.filenos(), len(log)) == ([], 1)


def test_command_that_is_not_there_is_a_word_not_heard() -> None:
    log: list[str] = []
    one = LossReporter(["/nonexistent/vtorque-node"], LOST, collect_in(log))
    assert "No such file" in log[0]
    one.close()


def test_a_mother_superior_that_never_stops_fills_no_memory(tmp_path: pathlib.Path) -> None:
    log: list[str] = []
    go = tmp_path / "go"  # as a connection takes longer than to be bounded
    started = "i=0; while [ $i -lt 50 ]; do head -c 1048576 /dev/zero; i=$((i + 1)); done"
    waits = f"read word; until [ -e {go} ]; do sleep 0.01; done"
    one = LossReporter(
        ["/bin/sh", "-c", f"exec 1>&2; {waits}; {started}; sleep 600"],
        LOST,
        lambda text, level="info", component="": log.append(text),
    )
    go.touch()
    answer = os.dup(one._answer)
    try:
        until = time.monotonic() + 60
        while not log and time.monotonic() < until:
            select.select(one.filenos(), [], [], 1)
            one.go_on()
        assert log
        assert os.fstat(answer).st_size <= 1 << 20
    finally:
        os.close(answer)
        one.close()


def test_a_mother_superior_that_takes_the_word_and_says_nothing_has_not_been_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loss_report, "ANSWER_S", 0.2)
    log: list[str] = []
    one = LossReporter(["/bin/sh", "-c", "exec sleep 600"], LOST, collect_in(log))
    assert one.due_s() <= 0.2
    assert select.select(one.filenos(), [], [], one.due_s() + 0.05)[0] == []
    one.go_on()
    assert (one.filenos(), log) == ([], ["the mother superior was not told, it is tried again: no answer within 0 s"])


def test_reply_of_a_mother_superior_is_one_printable_line() -> None:
    log: list[str] = []
    run(r"printf 'no\033[2J\n2026-01-01T00:00:00+0000 all is well\n' >&2; exit 1", log)
    assert log[0].endswith("it is tried again: no?[2J?2026-01-01T00:00:00+0000 all is well")


def test_telling_at_work_ends_when_nobody_needs_it() -> None:
    one = LossReporter(["/bin/sh", "-c", "sleep 600"], LOST, lambda _line: None)
    one.go_on()
    assert one.filenos()
    one.close()
    assert one.filenos() == []

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verdict is done, or a weaker one that is safe; and the words tell what was done."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict.decide import Verdict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict.enforce import (
    EnforcementResult,
    enforce,
    message,
    outcome,
)

NOTE = "vtorque: bridge: br0 is missing (job 7.th)"
ELSEWHERE = Verdict("node", "requeue", "t1", NOTE, tried=1, of=3)
LAST = Verdict("node", "hold", "t1", NOTE, tried=3, of=3)
END = Verdict("node", "refuse", "t1", NOTE, tried=1, of=3)
AGAIN = Verdict("site", "requeue", tried=1, of=3)
HELD = Verdict("site", "hold", tried=3, of=3)


class Batch:
    """A batch system that does what it is told, or not."""

    def __init__(self, *, deaf: str = "", note: str = NOTE, states: str = "offline") -> None:
        self.deaf = deaf.split()
        self.node = BatchNode("t1", frozenset([states]), 4, 0, frozenset(), note)
        self.reported: list[str] = []

    def _do(self, what: str) -> None:
        self.reported.append(what)
        if what in self.deaf:
            raise SiteFault(what, "the batch server did not answer within 2 s")

    def offline(self, _node: str, note: str) -> BatchNode:
        assert note == NOTE
        self._do("offline")
        return self.node

    def hold(self, _job_id: str) -> None:
        self._do("hold")

    def requeue(self, _job_id: str) -> None:
        self._do("requeue")

    def comment(self, _job_id: str, text: str) -> None:
        assert text == "vtorque: held: br0: is missing"
        self._do("comment")


@pytest.mark.parametrize(
    ("verdict", "batch", "report", "action", "offline", "failed"),
    [
        (ELSEWHERE, {}, "offline requeue", "requeue", "t1", ""),
        (LAST, {}, "offline hold comment", "hold", "t1", ""),
        (END, {}, "offline", "refuse", "t1", ""),
        (AGAIN, {}, "requeue", "requeue", "", ""),
        (AGAIN, {"deaf": "requeue"}, "requeue", "refuse", "", "cannot be queued again"),
        (HELD, {}, "hold comment", "hold", "", ""),
        (Verdict("user", "refuse"), {}, "", "refuse", "", ""),
        (HELD, {"deaf": "comment"}, "hold comment", "hold", "", ""),
        # the job would come back
        (ELSEWHERE, {"deaf": "offline"}, "offline hold comment", "hold", "", "did not answer"),
        (ELSEWHERE, {"note": "fan", "states": "free"}, "offline hold comment", "hold", "", "somebody else"),
        # it would not
        (ELSEWHERE, {"note": "fan"}, "offline requeue", "requeue", "", ""),
        (END, {"deaf": "offline"}, "offline", "refuse", "", "did not answer"),
        # it would run in circles
        (HELD, {"deaf": "hold"}, "hold", "refuse", "", "cannot be held"),
        (LAST, {"deaf": "hold"}, "offline hold", "refuse", "t1", "cannot be held"),
        (ELSEWHERE, {"deaf": "offline hold"}, "offline hold", "refuse", "", "cannot be held"),
    ],
)  # fmt: skip
def test_verdict_is_done_or_a_safe_one(
    verdict: Verdict, batch: dict[str, str], report: str, action: str, offline: str, failed: str
) -> None:
    server = Batch(**batch)
    done = enforce(verdict, t.cast(t.Any, server), "7.th", reason="br0: is missing")
    assert server.reported == report.split()
    assert (done.action, done.offline) == (action, offline)
    assert failed in " ".join(done.failed)
    assert bool(done.failed) == bool(failed)


@pytest.mark.parametrize(
    ("verdict", "enforced", "lines"),
    [
        (ELSEWHERE, EnforcementResult("requeue", "t1"), [f"t1 is set offline: {NOTE}", "the job is tried again"]),
        (HELD, EnforcementResult("hold"), ["the job is held: qrls 7.th releases it for 3 more tries"]),
        # which try it was is not known, of an array that is braked
        (Verdict("site", "hold"), EnforcementResult("hold"), ["the job is held: qrls 7.th releases it"]),
        (
            Verdict("site", "hold", tried=1, of=1),
            EnforcementResult("hold"),
            ["the job is held: qrls 7.th releases it for one more try"],
        ),
        (
            AGAIN,
            EnforcementResult("hold", "", ("t1 is not set offline: x",)),
            ["t1 is not set offline: x", "the job is held: qrls 7.th releases it"],
        ),
        (HELD, EnforcementResult("refuse", "", ("the job cannot be held: x",)), ["the job cannot be held: x"]),
        (Verdict("node", "hold", lines=("the \x1b[31mbrake",), tried=1, of=3), EnforcementResult("hold"),
         ["the ?[31mbrake", "the job is held: qrls 7.th releases it"]),
    ],
)  # fmt: skip
def test_outcome_tells_what_was_done(verdict: Verdict, enforced: EnforcementResult, lines: list[str]) -> None:
    assert list(outcome(verdict, enforced, "qrls 7.th")) == lines


@pytest.mark.parametrize(
    ("error", "verdict", "lines"),
    [
        (NodeFault("cn1: bridge br0", "is missing", "make it"), ELSEWHERE,
         ["vtorque: this job did not run: cn1: bridge br0: is missing (try 1 of 3)", "  make it", "  end"]),
        (VTorqueError("guest v1-1", "x" * 200, "last lines of the console: \x1b[2Jpanic"), HELD,
         ["vtorque: this job did not run: guest v1-1 (try 3 of 3)", "  " + "x" * 200,
          "  last lines of the console: ?[2Jpanic", "  end"]),
        (SiteFault("the pool"), Verdict("site", "hold"), ["vtorque: this job did not run: the pool", "  end"]),
    ],
)  # fmt: skip
def test_message_is_plain_and_short(error: VTorqueError, verdict: Verdict, lines: list[str]) -> None:
    assert list(message(error, verdict, ("end",))) == lines

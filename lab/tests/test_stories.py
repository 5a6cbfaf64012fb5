# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the story of the demo reads what each batch system says of a job."""

from __future__ import annotations

import dataclasses
import io
import sys

import pytest
from rich.console import Console

from lab import batch
from lab.stories import demo, fronts, session
from lab.stories.fronts import FRONTS, Seen

QSTAT = """<Data><Job><Job_Id>1.fe</Job_Id><job_state>{}</job_state><Output_Path>fe:/home/alice/a.o1</Output_Path>\
<Error_Path>fe:/home/alice/a.e1</Error_Path><exit_status>37</exit_status></Job></Data>"""
OUT = "/home/alice/slurm-3.out"
SCONTROL = f"JobId=3 JobName=a JobState={{}} Reason=None ExitCode={{}} StdErr={OUT} StdOut={OUT}"
BOTH = ("/home/alice/a.o1", "/home/alice/a.e1")


@pytest.mark.parametrize(
    ("system", "answer", "seen"),
    [
        (batch.TORQUE, QSTAT.format("R"), Seen("its guest starts, or its script runs", BOTH, "")),
        (batch.TORQUE, QSTAT.format("C"), Seen("ended", BOTH, "37")),
        (
            batch.TORQUE, QSTAT.format("H").replace("<exit", "<comment>vtorque: held: no bridge</comment><exit"),
            Seen("held", BOTH, "", "vtorque: held: no bridge"),
        ),
        (batch.TORQUE, "<Data/>", None),
        (batch.SLURM, SCONTROL.format("COMPLETING", "37:0"), Seen("its guest goes", (OUT,), "")),
        (batch.SLURM, SCONTROL.format("FAILED", "37:0"), Seen("failed", (OUT,), "37")),
        (batch.SLURM, SCONTROL.format("CANCELLED", "0:15"), Seen("cancelled", (OUT,), "0:15")),
        (
            batch.SLURM,
            SCONTROL.format("PENDING", "0:0").replace("None", "JobHeldUser") + "\n   AdminComment=held: a=b c\n",
            Seen("queued", (OUT,), "", "held: a=b c"),
        ),
        (batch.SLURM, "", None),
    ],
)  # fmt: skip
def test_job_is_read_as_its_batch_system_shows_it(system: str, answer: str, seen: Seen | None) -> None:
    assert FRONTS[system].find(lambda *_command: answer, "1") == seen


def test_story_ends_at_a_held_job_with_its_reason_and_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer who waits for nothing sees no cause: a held job goes on by a person's command alone."""
    monkeypatch.setattr(demo, "ask", lambda *command: "vtorque: br0 is missing\n" if command[0] == "cat" else "")
    front = dataclasses.replace(FRONTS[batch.TORQUE], find=lambda _ask, _job: Seen("held", BOTH, "", "no bridge"))
    with pytest.raises(demo.Failure, match=r"(?s)1\.fe is held: no bridge\n.*a\.e1 +vtorque: br0 is missing"):
        demo.follow(front, "1.fe", Console(file=io.StringIO()))


@pytest.mark.parametrize("system", sorted(batch.SYSTEMS))
def test_suggestions_leave_out_a_terminal_that_the_front_does_not_give(system: str) -> None:
    with_one, without = (fronts.next_lines(system, "tiny", is_interactive=offered) for offered in (True, False))
    assert len(with_one.splitlines()) == len(without.splitlines()) + 1
    assert "{image}" not in with_one
    assert without.endswith("make down                                              # ends it\n")


def test_line_is_typed_at_the_first_prompt_after_the_job_is_ready() -> None:
    """Not at one before it: what is typed there may be lost."""
    program = "print('$ ', end=''); print('ready'); print('<' + input('go$ ') + '>'); raise SystemExit(3)"
    status, printed = session.type_line([sys.executable, "-c", program], "ready", "uname", 60)
    assert (status, "<uname>" in printed) == (3, True)


@pytest.mark.parametrize(
    ("warm", "written", "lines"),
    [
        ("yes", "1001.75", ["warm start of vcn1-1: yes", "the job's first line: 1.8 s after the start of the job"]),
        (
            "no, because its image cannot be warm", "1020",
            ["warm start of vcn1-1: no, because its image cannot be warm",
             "the job's first line: 20.0 s after the start of the job"],
        ),
        ("", "", ["warm start of vcn1-1: no", "the job's first line: not seen"]),
    ],
    ids=["warm", "cold", "not seen"],
)  # fmt: skip
def test_warm_start_is_told_as_its_record_and_the_clock_have_it(warm: str, written: str, lines: list[str]) -> None:
    record = {"guests": [{"name": "vcn1-1", "warm": warm}], "phases": {"prologue": {"began": 1000.0}}}
    found = demo.warm_lines(record, written)
    assert [line.partition(" (load")[0] for line in found] == lines

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before and after every step of a checkpoint, of a suspension by the owner, and of a return from there.

The job goes on, or ends with the reason; a checkpoint is whole or is none; the next one is made; and nothing is left.
Steps and their faults are those of `strike_saving.py`; `VTORQUE_FAULTS`, `VTORQUE_SEED` and `VTORQUE_FAULT` as in
`test_steps.py`.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import random
import typing as t

import pytest

from ..conftest import Site
from .reported import EVERY, ONLY, SEED, Progress, end
from .test_steps import PYTHON, lines_of

START_WAYS = ("fast",)  # a fault stands at each step of a boot

KINDS = ("killed", "raises", "disk")
NODE = "cn1"
TEXTS = ("step_rules.py", "strike.py")


def check(seen: dict[str, t.Any]) -> None:
    """Nothing is left or half a checkpoint, nothing else was touched, and what comes next is as ever."""
    assert seen["struck"], seen
    assert seen["left"] == [], seen
    assert seen["beside"] is True, seen
    assert seen["store"] == [], seen
    assert seen["goes_on"] is True, seen
    assert "answer" in seen["again"], seen
    assert "answer" in seen["absent"], seen
    assert seen.get("undone", []) == [], seen
    assert "Traceback" not in seen["failed"].get("error", ""), seen
    if seen["kind"] == "killed" and seen["who"] in ("save", "park"):
        assert seen["failed"] == {}, seen


@pytest.mark.full
def test_job_goes_on_after_a_fault_at_a_step_of_its_checkpoint(
    site: Site, capsys: pytest.CaptureFixture[str], record_property: t.Callable[[str, object], None]
) -> None:
    """Each fault, a look, the next checkpoint, the removal, and a look."""
    here = pathlib.Path(__file__).parent
    texts = [(here / name).read_text(encoding="utf-8") for name in TEXTS]
    program = (here / "strike_saving.py").read_text(encoding="utf-8")
    given = map(json.dumps, (KINDS, EVERY, random.Random(SEED).randrange(EVERY), ONLY, *texts))
    progress, faults = Progress(NODE), 0
    with capsys.disabled(), lines_of(site, NODE, PYTHON, "-I", "-c", program, *given) as output:
        for begin in itertools.islice(output, 1):
            progress.begin(begin["tried"], begin["points"])
        for line in output:
            if "place" not in line:
                break
            with progress.told_if_wrong():
                check(line)
            progress.one(f"{line['who']} {line['kind']}")
            record_property("tried", f"{line['who']} {line['kind']} {line['when']} {line['place']}")
            faults += 1
        end([progress])
    assert faults
    assert progress.wrong == []

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before and after every step of a checkpoint, of a suspension by the owner, and of a return from there.

The job goes on, or ends with the reason; a checkpoint is whole or is none; the next one is made; and nothing is left.
Steps and their faults are those of `strike_saving.py`; `VTORQUE_FAULTS`, `VTORQUE_SEED` and `VTORQUE_FAULT` as in
`test_steps.py`.  Faults share guests (`shared_guests.py`): one that fails behind others is tried again alone.

It has been seen to fail: with the manifest written after the rename in `checkpoint_store.commit`, "killed after
new.rename" named the checkpoint without one, the fault that its guest had before, and that it fails alone, too.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
import typing as t

import pytest

from ..conftest import Site
from .reported import EVERY, ONLY, Progress, try_side_by_side
from .shared_guests import find_problems, find_problems_around
from .test_steps import PYTHON, lines_of

START_WAYS = ("fast",)  # a fault stands at each step of a boot

KINDS = ("killed", "raises", "disk")
NODES = {"cn1": ("save", "worker"), "cn2": ("park", "return")}
"""Whose faults are tried on which node, side by side: they wait most of the time."""
TEXTS = ("step_rules", "strike", "shared_guests")


def check(seen: dict[str, t.Any]) -> None:
    """Nothing is left or half a checkpoint, nothing else was touched, and what comes next is as ever."""
    problems = find_problems(seen)
    alone = f"; alone in a guest: {seen['alone'] or 'all was right'}" if "alone" in seen else ""
    name = f"{seen['who']} {seen['kind']} {seen['when']} {seen['place']}"
    assert not problems, f"{name}: {problems}{alone}\n  tried before in its guest: {seen['guest_had']}\n  {seen}"


def check_end(seen: dict[str, t.Any]) -> None:
    """Nothing is left of a guest that has served faults."""
    problems = find_problems_around(seen)
    alone = f"; alone in a guest: {seen['alone']}" if "alone" in seen else ""
    assert not problems, f"{seen['guest']}: {problems}{alone}\n  faults of this guest: {seen['served']}"


def try_on(site: Site, progress: Progress, first: int) -> list[str]:
    """Try the faults of a node, and return the lines of those that were tried."""
    here = pathlib.Path(__file__).parent
    texts = {name: (here / f"{name}.py").read_text(encoding="utf-8") for name in TEXTS}
    program = (here / "strike_saving.py").read_text(encoding="utf-8")
    given = map(json.dumps, (KINDS, NODES[progress.where], EVERY, first, ONLY, texts))
    tried: list[str] = []
    served: list[str] = []
    with lines_of(site, progress.where, PYTHON, "-I", "-c", program, *given) as output:
        for begin in itertools.islice(output, 1):
            progress.begin(begin["tried"], begin["points"])
        for line in output:
            with progress.told_if_wrong():
                if "guest" in line:
                    served += line["served"]
                    check_end(line)
                elif "place" in line:
                    tried.append(f"{line['who']} {line['kind']} {line['when']} {line['place']}")
                    progress.one(f"{line['who']} {line['kind']}")
                    check(line)
    assert sorted(served) == sorted(tried), "not every guest that had a fault was looked for at its end"
    return tried


@pytest.mark.full
def test_job_goes_on_after_a_fault_at_a_step_of_its_checkpoint(
    site: Site, capsys: pytest.CaptureFixture[str], record_property: t.Callable[[str, object], None]
) -> None:
    """Each fault, a look, the next checkpoint, the removal, and a look."""
    found, wrong = try_side_by_side(NODES, functools.partial(try_on, site), capsys)
    tried = [fault for one in found for fault in one]
    assert tried
    for fault in tried:
        record_property("tried", fault)
    assert wrong == []

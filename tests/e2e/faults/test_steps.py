# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before and after every step of present and absent on a node, then the removal that an epilogue asks for.

What a step is, `strike.py` takes from the code.  It is killed, raises, finds the disk full, or hangs.
A mother superior's node and a sister's do the same, but for the word about a lost guest; both are tried, side by side.
`make test-faults` tries every fault, `make test` one in `VTORQUE_FAULTS`, the same ones for the same `VTORQUE_SEED`;
`VTORQUE_FAULT='killed before slots.'` only those in whose line in the report these words stand.

It has been seen to fail: without `slots.free` in `removing.remove` a step was missing, and then the look behind the
test named "slot /var/lib/vtorque/slots/1"; and with a fault that never came to be ("struck").

A part of what is tried is made with an image and a disk of the user's own, cores, additions and shared memory, and some
removals find a worker that is stopped; these are the steps that no other guest comes to.

It has found that a removal that failed with anything but an error of ours took the worker's answer, and the node's,
with it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import pathlib
import subprocess
import tempfile
import threading
import typing as t

import pytest

from ..conftest import CHECKOUT, LAB, Site
from .reported import EVERY, ONLY, Progress, try_side_by_side

START_WAYS = ("fast",)  # a fault stands at each step of a boot

KINDS = ("killed", "raises", "disk", "hangs")
TELLS = {"cn1": (), "cn2": ("/bin/true",)}
"""How a node tells its mother superior of a lost guest: she herself, and a sister."""
LONG_S = 6 * 3600
NOT_REACHED = {
    "build._all_at_once": 3, "build._awaited": 1, "build._begin": 1, "build._furnish": 2,
    "build._start": 3, "build._warm_starts": 1, "build.create_guests": 1,
    "present_absent._remove_earlier_starts": 1, "present_absent._wait_for_memory": 1, "present_absent.absent": 1,
    "present_absent.find": 1, "present_absent.describe_leftovers": 2, "present_absent.ensure_guests": 3,
    "remove.remove_start": 1,
    "shared_region._fill": 1, "shared_region.attach": 1, "shared_region.find_lost": 2,
    "user_disk._waited": 1,
    "virtiofsd._become": 1, "virtiofsd._known": 1, "virtiofsd.program": 1, "virtiofsd.run": 3,
    "worker._supervise_builder": 2, "worker._undo": 3,
}  # fmt: skip
"""By function, how many of its calls may be steps and are not come to (`step_rules.may_be_step`).

Questions, huge pages (all nodes of a lab have the same), warm starts, starts from a checkpoint and moves that no job of
ours asks for (`test_warm.py`, `test_checkpoint.py`, `test_evacuate.py`), what a node does once for all jobs, and what
is done when something has failed: that undoes, by the same removal whose own steps are tried."""
BY_CHANCE = {"present_absent.remove_under_lock": (1, 2), "remove.remove_start": (1, 2)}
"""The same, as it comes: whether the worker who takes guests away has a connection to libvirt already (two calls are
not come to then), has none (one is not), or each happens once (none is missed) follows from when it is told to end.
And virtiofsd and qemu-nbd end with their qemu: a quick one has done so before the removal looks for it."""
IN_MEMORY = ("shared_region.find_problem", "shared_region.attach", "shared_region._fill")
"""Steps on a file system that is none of the node's disk: that it is full blames no node."""
PYTHON = "/opt/vtorque/venv/bin/python"


@contextlib.contextmanager
def lines_of(site: Site, node: str, *arguments: str) -> t.Iterator[t.Iterator[t.Any]]:
    """What a program on a node says, a line of JSON at a time; it must end well."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as complaint,
        subprocess.Popen(
            [*LAB, "on", node, "--", *arguments], cwd=CHECKOUT, env=site.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaint,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        late = threading.Timer(LONG_S, process.kill)
        late.start()
        try:
            yield map(json.loads, process.stdout)
        finally:
            late.cancel()
        status = process.wait()
        complaint.seek(0)
        assert status == 0, complaint.read()


def try_on(site: Site, progress: Progress, first: int) -> tuple[list[dict[str, t.Any]], dict[str, t.Any]]:
    """What came of the faults on a node, and of the steps in general."""
    text, rules = (
        (pathlib.Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("strike.py", "step_rules.py")
    )
    given = map(json.dumps, (KINDS, EVERY, first, TELLS[progress.where], ONLY, rules))
    faults: list[dict[str, t.Any]] = []
    with lines_of(site, progress.where, PYTHON, "-I", "-c", text, *given) as output:
        for begin in itertools.islice(output, 1):  # none where it ended with a complaint
            progress.begin(begin["tried"], begin["points"])
        for line in output:
            if "place" not in line:
                return faults, line
            with progress.told_if_wrong():
                check(line)
            progress.one(f"{line['who']} {line['kind']}")
            faults.append(line)
    raise AssertionError(f"{progress.where} said nothing of its steps")


def check(seen: dict[str, t.Any]) -> None:
    """Nothing is left, nothing else was touched, and the verdict is right."""
    assert seen["struck"], seen
    assert seen["left"] == [], seen
    assert seen["beside"] is True, seen
    # the removal that nothing hinders says that all is well, unless it was the worker whose removal failed
    assert "answer" in seen["absent"], seen
    of_removal = seen["place"].startswith("remove.") or "slots.free" in seen["place"]
    report = seen["present"]
    if seen["who"] not in ("present", "own"):
        assert report.get("answer"), seen
    elif seen["kind"] == "killed" and seen["place"].startswith("slots.read_slots: ") and report == {}:
        assert seen["undone"] == [], seen  # who is killed is who would have answered, and nothing was made
    elif seen["place"].startswith(("worker.", "virtiofsd.", "user_disk.", *IN_MEMORY)):
        check_process(seen)
    elif not of_removal:
        assert seen["undone"] == [], seen
        # a full disk is the node's fault, whatever else happens to our processes is not
        right = ("node", "disk") if seen["kind"] == "disk" else ("unclear", "")
        assert (report.get("fault"), report.get("cause")) == right, seen
        assert "Traceback" not in report.get("error", ""), seen


def check_process(seen: dict[str, t.Any]) -> None:
    """A process of the guests' ended: that blames no node, and what was not answered well was undone."""
    report = seen["present"]
    if report.get("answer"):  # the worker, after its answer
        return
    assert seen["undone"] == [], seen
    if seen["kind"] == "killed" and seen["place"].startswith("worker.begin: "):  # it was who makes the worker
        assert report == {}, seen
        return
    assert report.get("cause") in (("", "disk") if seen["kind"] == "disk" else ("",)), seen
    assert "Traceback" not in report.get("error", ""), seen


def test_nothing_is_left_after_a_fault_at_a_step(
    site: Site, capsys: pytest.CaptureFixture[str], record_property: t.Callable[[str, object], None]
) -> None:
    """On both nodes: each fault, the removal, and a look; all that came of it is told at the end."""
    found, wrong = try_side_by_side(TELLS, functools.partial(try_on, site), capsys)
    for faults, steps in found:
        assert faults
        unreached = {function: len(calls) for function, calls in steps["unreached"].items()}
        differ = {name for name, _number in {*unreached.items()} ^ {*NOT_REACHED.items()}}
        differ -= {name for name, numbers in BY_CHANCE.items() if unreached.get(name) in numbers}
        assert not differ, {name: steps["unreached"].get(name) for name in differ}
        for seen in faults:
            record_property("tried", f"{seen['who']} {seen['kind']} {seen['when']} {seen['place']}")
    assert wrong == []

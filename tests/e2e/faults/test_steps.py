# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before and after every step of present and absent on a node, then the removal that an epilogue asks for.

What a step is, `strike.py` takes from the code.  It is killed, raises, finds the disk full, or hangs.
A mother superior's node and a sister's do the same, but for the word about a lost guest; both are tried, side by side.
`make test-faults` tries every fault, `make test` one in `VTORQUE_FAULTS`, the same ones for the same `VTORQUE_SEED`.

It has been seen to fail: without `slots.free` in `removing.remove` a step was missing, and then the look behind the
test named "slot /var/lib/vtorque/slots/1"; and with a fault that never came to be ("struck").

It has found that a removal that failed with anything but an error of ours took the worker's answer, and the node's,
with it.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import typing as t

import pytest

from ..conftest import Site

EVERY = int(os.environ.get("VTORQUE_FAULTS", "60"))
SEED = int(os.environ.get("VTORQUE_SEED", "0"))
KINDS = ("killed", "raises", "disk", "hangs")
TELLS = {"cn1": (), "cn2": ("/bin/true",)}
"""How a node tells its mother superior of a lost guest: she herself, and a sister."""
LONG_S = 6 * 3600
NOT_REACHED = {
    "guests.absent: locks.end_holder #1",
    "guests.absent: locks.held #2",
    "guests.find: Domains #1",
    "guests.left: Domains #1",
    "guests.take_away: Domains #1",
    "making._put_overlay: overlays.make_overlay_on_socket #1",
    "making._serve_disks: disk_server.serve #1",
    "making._serve_images: disk_server.serve_image #1",
    "making._start: (directory / additions.HAS).touch #1",
}
"""Steps of users' own disks, images and additions, of a worker that hangs, and questions that no job of ours asks."""


def try_on(site: Site, node: str, first: int) -> tuple[list[dict[str, t.Any]], dict[str, t.Any]]:
    """What came of the faults on a node, and of the steps in general."""
    text = (pathlib.Path(__file__).parent / "strike.py").read_text(encoding="utf-8")
    given = map(json.dumps, (KINDS, EVERY, first, TELLS[node]))
    done = site.run("on", node, "--", "/opt/vtorque/venv/bin/python", "-I", "-c", text, *given, timeout_s=LONG_S)
    assert done.returncode == 0, done.stderr
    *faults, steps = map(json.loads, done.stdout.splitlines())
    return faults, steps


def check(seen: dict[str, t.Any]) -> None:
    """Nothing is left, nothing else was touched, and the verdict is right."""
    assert seen["struck"], seen
    assert seen["left"] == [], seen
    assert seen["beside"] is True, seen
    # the removal that nothing hinders says that all is well, unless it was the worker whose removal failed
    assert "answer" in seen["absent"], seen
    of_removal = seen["place"].startswith("removing.") or "slots.free" in seen["place"]
    if seen["who"] != "present":
        assert seen["present"].get("answer"), seen
    elif not of_removal:
        told = seen["present"]
        assert seen["undone"] == [], seen
        # a full disk is the node's fault, whatever else happens to our processes is not
        assert (told["fault"], told["cause"]) == (("node", "disk") if seen["kind"] == "disk" else ("unclear", "")), seen
        assert "Traceback" not in told["error"], seen


def test_nothing_is_left_after_a_fault_at_a_step(
    site: Site, capsys: pytest.CaptureFixture[str], record_property: t.Callable[[str, object], None]
) -> None:
    """On both nodes: each fault, the removal, and a look."""
    chance = random.Random(SEED)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(try_on, site, node, chance.randrange(EVERY)) for node in TELLS]
        found = [one.result() for one in asked]
    for faults, steps in found:
        assert faults
        assert set(steps["steps"]) - set(steps["reached"]) == NOT_REACHED
        for seen in faults:
            record_property("tried", f"{seen['who']} {seen['kind']} {seen['when']} {seen['place']}")
            check(seen)
    tried = collections.Counter(f"{seen['who']} {seen['kind']}" for faults, steps in found for seen in faults)
    there = sum(steps["points"] for faults, steps in found)
    with capsys.disabled():
        print(
            f"\n  {tried.total()} of {there} fault points were tried (VTORQUE_SEED={SEED}): {dict(tried)}", flush=True
        )

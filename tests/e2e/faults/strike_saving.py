# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: a fault before and after every step of a checkpoint, of a suspension and of a return.

As `strike.py`, by whose means it does so: the steps of the modules of `WALKED`, guests whose firmware stops the
processor, processes that are killed, errors, and a full disk.  The job has one node, whose mother superior it is.

Arguments, as JSON: the kinds of fault; of how many points one is tried; which is the first; what stands in the line of
those that are tried; the texts of `step_rules.py` and of `strike.py`.
Says what `strike.py` says.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import types
import typing as t

BASE = "ansible_collections.mikelangelo.vtorque.plugins"
NODE = f"{BASE}.module_utils.node"
WALKED = {
    "checkpoint_store": f"{NODE}.state.checkpoint_store",
    "saving": f"{NODE}.lifecycle.saving",
    "pausing": f"{NODE}.lifecycle.pausing",
    "returning": f"{NODE}.lifecycle.creation.returning",
    "node_steps": f"{BASE}.plugin_utils.bridge.checkpoints.node_steps",
    "coordinate": f"{BASE}.plugin_utils.bridge.checkpoints.coordinate",
}
OF_THE_WORKER = ("saving.", "pausing.")
OF_A_RETURN = ("returning.", *(f"checkpoint_store.{name}" for name in ("bring_guest", "check_files", "copy_file")))
PAUSE_S = 8
"""How long guests stand still at most; the same again while a job is to end."""
PATIENCE_S = 60.0
"""For a guest to go on: by itself after that time, where nobody has it go on."""


def main() -> None:
    """Try them."""
    kinds, every, first, only, rules_text, strike_text = map(json.loads, sys.argv[1:])
    rules, strike = types.ModuleType("step_rules"), types.ModuleType("strike")
    sys.modules["strike"] = strike
    exec(compile(rules_text, "step_rules", "exec"), rules.__dict__)
    exec(compile(strike_text, "strike", "exec"), strike.__dict__)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(dir="/run") as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        strike.put_rom(place)
        (place / "store").mkdir(mode=0o700)
        node = node_of(strike, place, rules)
        numbers = itertools.count(int(time.time()) % 1_000_000 * 1000 + 1_000_000_000)
        beside = f"{next(numbers)}.fe"
        node.faults.forget()
        points = points_of(node, numbers, kinds)
        wanted = [(who, fault) for who, fault in points if only in " ".join((who, fault[2], *fault[1::-1]))]
        tried = wanted[first % max(1, min(every, len(wanted))) :: every]
        missed = strike.unreached(node)
        print(json.dumps({"points": len(wanted), "tried": len(tried)}), flush=True)
        strike.report_each(node, numbers, beside, tried, try_one)
        print(json.dumps({"unreached": missed}), flush=True)


class Saving:
    """Jobs of one guest that are saved, end, and return; what `strike.Node` is besides, it becomes when this runs."""

    strike: t.Any
    settings: t.Any
    modules: dict[str, t.Any]
    # those of `strike.Node`
    part: t.Callable[..., t.Any]
    name: str
    key: t.Any
    clock: t.Any
    client: t.Any
    faults: t.Any
    layout: t.Any
    present_absent: t.Any

    def prepare(self, strike: t.Any, place: pathlib.Path) -> None:
        """Have jobs that can be saved, in a store of this test's own."""
        self.strike = strike
        wishes = {"checkpoint_dir": place / "store", "home_via": "nfs", "home_export": None, "mounts": ()}
        self.settings = dataclasses.replace(self.settings, **wishes)
        sys.modules[f"{NODE}.lifecycle.monitor"].__dict__["Pausing"] = self.modules["pausing"].Pausing
        self.modules["returning"].__dict__["clock"] = types.SimpleNamespace(set_clocks=lambda *_more, **_words: ())
        self.job = importlib.import_module(f"{BASE}.module_utils.job.batch.api").BatchJob
        self.policy = importlib.import_module(f"{BASE}.module_utils.job.config.parameters").Policy
        self.plan = importlib.import_module(f"{BASE}.module_utils.job.plan.job_plan").JobPlan
        self.saved_memory = importlib.import_module(f"{NODE}.state.saved_memory")
        self.domains = importlib.import_module(f"{NODE}.domain.connection").Domains

    def walked(self) -> dict[str, str]:
        """See `strike.Node`."""
        return WALKED

    def part_of(self, job_id: str, start: int) -> t.Any:
        """A part of a start that can be saved, and returns from the newest checkpoint where there is one."""
        part = dataclasses.replace(self.part(job_id, self.strike.MAKE_S), start=start, checkpoint_min=0)
        store = self.modules["checkpoint_store"]
        newest = next(iter(store.generations(self.settings.checkpoint_dir, job_id)), 0)
        if start == 1 or not newest:
            return part
        manifest = store.read_manifest(self.settings.checkpoint_dir, job_id, newest)
        (saved,) = manifest["guests"]
        where = store.job_dir(self.settings.checkpoint_dir, job_id) / str(newest) / saved["name"]
        guest = dataclasses.replace(part.guests[0], saved_in=str(where), saved_digest=saved["digest"])
        return dataclasses.replace(part, guests=(guest,))

    def begin(self, job_id: str, start: int, fault: tuple[str, str, str] | None = None) -> dict[str, t.Any]:
        """Make the guest of a start, or have it return, with what fails in that."""
        run = self.layout.run_directory(job_id, start, self.settings.run_dir)

        def work() -> list[str]:
            if fault:
                self.faults.arm(*fault)
            part = self.part_of(job_id, start)
            run.mkdir(mode=0o711, parents=True, exist_ok=True)
            plan = self.plan(part.owner, self.key, (part,), 1, job_id, start, self.name, "")
            (run / self.layout.PLAN).write_text(plan.to_json())
            deadline = self.clock.Deadline.after(self.strike.MAKE_S)
            return [one.name for one in self.client.request_guests(part, self.settings, deadline, tell=())]

        return self.strike.in_child(work)

    def take(
        self, job_id: str, start: int, fault: tuple[str, str, str] | None = None, *, park: bool = False
    ) -> dict[str, t.Any]:
        """Take a checkpoint of a job, after which it ends or goes on, with what fails in that."""

        def work() -> int:
            if fault:
                self.faults.arm(*fault)
            coordinate = self.modules["coordinate"]
            coordinate.PARK_S = float(PAUSE_S)
            fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(self.job)}
            fields |= {"job_id": job_id, "state": "R", "start_count": start, "slot_hosts": (self.name,)}
            job = self.job(**{**fields, "euser": "alice", "rerunnable": True})
            policy = self.policy(checkpoint_min=0, checkpoint_pause=PAUSE_S)
            end = (lambda: None) if park else None
            number: int = coordinate.take_checkpoint(
                job, policy, self.settings, lambda *_more: (), lambda _line: None, end
            )
            return number

        return self.strike.in_child(work)

    def goes_on(self, job_id: str, start: int, patience_s: float = PATIENCE_S) -> bool:
        """Wait until the guest of a start is in memory and runs."""

        def work() -> bool:
            end = time.monotonic() + patience_s
            with self.domains(self.settings.libvirt_uri) as domains:
                while time.monotonic() < end:
                    guests = list(self.settings.start_dir(job_id, start).iterdir())
                    facts = [domains.facts(guest.name) for guest in guests]
                    away = any(self.saved_memory.is_away(guest) for guest in guests)
                    if guests and not away and all(one and one.state == "running" for one in facts):
                        return True
                    time.sleep(0.1)
            return False

        return bool(self.strike.in_child(work).get("answer"))

    def end(self, job_id: str, start: int) -> dict[str, t.Any]:
        """The epilogue's removal of a start."""

        def work() -> list[str]:
            deadline = self.clock.Deadline.after(self.strike.MAKE_S)
            return list(self.present_absent.absent(job_id, start, self.settings, deadline))

        done: dict[str, t.Any] = self.strike.in_child(work)
        shutil.rmtree(self.layout.run_directory(job_id, start, self.settings.run_dir), ignore_errors=True)
        return done

    def look(self, job_id: str) -> list[str]:
        """What is wrong with a job's checkpoints: each that has a number is whole, and there are two at most."""

        def work() -> list[str]:
            store, place = self.modules["checkpoint_store"], self.settings.checkpoint_dir
            found = store.generations(place, job_id)
            wrong = [f"{len(found)} checkpoints"] if len(found) > 2 else []
            for number in found:
                manifest = store.read_manifest(place, job_id, number)
                for guest in manifest["guests"]:
                    where = store.job_dir(place, job_id) / str(number) / guest["name"]
                    names = json.loads((where / store.FILES).read_text())
                    store.check_files(where, guest["digest"], names)
            return wrong

        output = self.strike.in_child(work)
        return output["answer"] if "answer" in output else [output.get("error", "nothing was said")]

    def forget(self, job_id: str) -> None:
        """Nothing of a job is in the store any more."""
        self.strike.in_child(lambda: self.modules["checkpoint_store"].forget(self.settings.checkpoint_dir, job_id))


def node_of(strike: t.Any, place: pathlib.Path, rules: t.Any) -> t.Any:
    """This node, whose jobs can be saved."""
    node = type("SavingNode", (Saving, strike.Node), {})((), place, rules)
    node.prepare(strike, place)
    return node


def try_one(node: t.Any, job_id: str, who: str, fault: tuple[str, str, str]) -> dict[str, t.Any]:
    """One fault, then a look, and all that would come after it without one.

    Args:
        who: `save`, who asks for a checkpoint; `park`, the same for a job that is to end with it; `worker`, who has the
            guest stand still and go on; `return`, who has a later start begin from there.
    """
    report: dict[str, t.Any] = {"who": who, "place": fault[0], "when": fault[1], "kind": fault[2]}
    node.begin(job_id, 1, fault if who == "worker" else None)
    started = 1
    if who == "return":
        node.take(job_id, 1, park=True)
        node.end(job_id, 1)
        node.faults.live = True
        report["failed"] = node.begin(job_id, 2, fault)
        node.faults.live = False
        report["store"] = node.look(job_id)
        node.end(job_id, 2)
        report["undone"] = node.left(job_id)
        report["again"] = node.begin(job_id, 3)
        report["goes_on"] = node.goes_on(job_id, 3)
        started = 3
    else:
        node.faults.live = True
        report["failed"] = node.take(job_id, 1, None if who == "worker" else fault, park=who == "park")
        ended = who == "park" and "answer" in report["failed"]
        killed = who == "worker" and fault[2] == "killed"
        end = time.monotonic() + PATIENCE_S
        while killed and not node.faults.memory[-1] and time.monotonic() < end:
            time.sleep(0.01)  # what it does when the guest is to go on, it does by itself
        report["goes_on"] = ended or killed or node.goes_on(job_id, 1)
        node.faults.live = False
        report["store"] = node.look(job_id)
        report["again"] = {"answer": "not asked"} if ended or killed else node.take(job_id, 1)
        report["store"] += node.look(job_id)
    report["absent"] = node.end(job_id, started)
    report["struck"] = node.faults.struck
    report["left"] = node.left(job_id)
    node.forget(job_id)
    return report


def points_of(node: t.Any, numbers: t.Iterator[int], kinds: t.Sequence[str]) -> list[tuple[str, tuple[str, str, str]]]:
    """Every fault that there is, by what a job without one comes to."""

    def well(done: dict[str, t.Any]) -> set[tuple[str, str]]:
        if "answer" not in done:
            raise SystemExit(f"not even without a fault: {done}")
        found: set[tuple[str, str]] = node.faults.reached()
        return found

    def taken(*, park: bool = False) -> tuple[str, set[tuple[str, str]]]:
        job_id = f"{next(numbers)}.fe"
        well(node.begin(job_id, 1))
        steps = well(node.take(job_id, 1, park=park))
        if not park and not node.goes_on(job_id, 1):
            raise SystemExit("not even without a fault does a guest go on")
        steps |= node.faults.reached()
        node.end(job_id, 1)
        return job_id, steps

    node.forget(taken()[0])  # what is done once
    job_id, saving = taken()
    node.forget(job_id)
    job_id, parking = taken(park=True)
    node.faults.reached()
    returning = well(node.begin(job_id, 2))
    node.end(job_id, 2)
    node.forget(job_id)
    worker = {one for one in saving if one[0].startswith(OF_THE_WORKER)}
    of = {
        "save": {one for one in saving - worker if not one[0].startswith("returning.")},
        "park": {one for one in parking - saving if not one[0].startswith((*OF_THE_WORKER, "returning."))},
        "worker": worker,
        "return": {one for one in returning if one[0].startswith(OF_A_RETURN)},
    }
    # an error of nobody's ends the worker, but for what a thread of it does
    ways = {"worker": ("killed", "disk")}
    return [
        (who, (place, when, kind))
        for who, steps in of.items()
        for kind in ways.get(who, ("killed", "raises", "disk"))
        if kind in kinds
        for place, when in sorted(steps)
        if who != "worker" or kind == "killed" or (when == "before" and place.startswith("saving."))
    ]


if __name__ == "__main__":
    main()

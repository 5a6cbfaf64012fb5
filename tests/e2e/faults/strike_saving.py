# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: a fault before and after every step of a checkpoint, of a suspension and of a return.

As `strike.py`, by whose means it does so: the steps of the modules of `WALKED`, guests whose firmware stops the
processor, processes that are killed, errors, and a full disk.  The job has one node, whose mother superior it is.
Which faults share a guest, and how each is reported, is in `shared_guests.py`.

Arguments, as JSON: the kinds of fault; who takes the steps that fail (`Saving.attempt`); of how many points one is
tried; which is the first; what stands in the line of those that are tried; by name, the texts of `step_rules.py`,
`strike.py` and `shared_guests.py`.
Says what `strike.py` says, and a line for each guest, when it was removed.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import importlib
import itertools
import json
import os
import pathlib
import re
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
OF_NO_DISK = ("os.eventfd_read", "os.eventfd_write")
"""What has a number of this process alone: no full disk fails it."""
PAUSES_S = (1.5, 8.0)
"""How long guests stand still at most; the same again while a job is to end.

Where nobody has them go on, they stand for all of the time: it is the short one first, and the long one where a busy
machine did not come to the fault meanwhile."""
PATIENCE_S = 60.0
"""For a guest to go on: by itself after that time, where nobody has it go on."""
SHORT = {
    "lifecycle.pausing": {"AGAIN_S": 0.1},
    "network.taken_address": {"ADDRESS_PROBE_S": 0.1},
}
"""Waits of the product that prove nothing here: no other host of the lab has the address of a guest."""
LOOK_S = 0.05


def main() -> None:
    """Try them."""
    kinds, whose, every, first, only, texts = map(json.loads, sys.argv[1:])
    modules = {name: types.ModuleType(name) for name in texts}
    sys.modules.update(modules)
    for name, text in texts.items():
        exec(compile(text, name, "exec"), modules[name].__dict__)
    strike, shared_guests = modules["strike"], modules["shared_guests"]
    os.umask(0o022)
    with tempfile.TemporaryDirectory(dir="/run") as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        strike.put_rom(place)
        (place / "store").mkdir(mode=0o700)
        numbers = itertools.count(int(time.time()) % 1_000_000 * 1000 + 1_000_000_000)
        node = node_of(strike, place, modules["step_rules"], f"{next(numbers)}.fe")
        node.faults.forget()
        points = [(who, fault) for who, fault in points_of(node, numbers, kinds) if who in whose]
        wanted = [(who, fault) for who, fault in points if only in shared_guests.line_of(who, fault)]
        tried = wanted[first % max(1, min(every, len(wanted))) :: every]
        missed = strike.unreached(node)
        say({"points": len(wanted), "tried": len(tried)})
        guests = shared_guests.SharedGuests(node, numbers, say)
        with contextlib.ExitStack() as stack:  # nobody may hear the reports any more
            stack.callback(node.absent, node.beside)
            stack.callback(guests.finish)
            node.present(node.beside)
            for who, fault in tried:
                guests.try_fault(who, fault)
        say({"unreached": missed})


def say(report: dict[str, t.Any]) -> None:
    """Print a report."""
    print(json.dumps(report), flush=True)


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
    left: t.Callable[[str], list[str]]
    lives: t.Callable[[str], bool]

    def prepare(self, strike: t.Any, place: pathlib.Path, beside: str) -> None:
        """Have jobs that can be saved, in a store of this test's own, beside one that no fault is to harm."""
        self.strike, self.beside = strike, beside
        self.shared: t.Any = None
        wishes = {"checkpoint_dir": place / "store", "home_via": "nfs", "home_export": None, "mounts": ()}
        self.settings = dataclasses.replace(self.settings, **wishes)
        sys.modules[f"{NODE}.lifecycle.monitor"].__dict__["Pausing"] = self.modules["pausing"].Pausing
        self.modules["returning"].__dict__["clock"] = types.SimpleNamespace(set_clocks=lambda *_more, **_words: ())
        self.job = importlib.import_module(f"{BASE}.module_utils.job.batch.api").BatchJob
        self.policy = importlib.import_module(f"{BASE}.module_utils.job.config.parameters").Policy
        self.plan = importlib.import_module(f"{BASE}.module_utils.job.plan.job_plan").JobPlan
        self.saved_memory = importlib.import_module(f"{NODE}.state.saved_memory")
        self.domains = importlib.import_module(f"{NODE}.domain.connection").Domains
        self.start_lock = importlib.import_module(f"{NODE}.state.start_lock")
        for name, waits in SHORT.items():
            importlib.import_module(f"{NODE}.{name}").__dict__.update(waits)
        self.modules["coordinate"].__dict__["LOOK_S"] = LOOK_S

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
        self, job_id: str, fault: tuple[str, str, str] | None = None, *, park: bool = False,
        pause_s: float = PAUSES_S[-1],
    ) -> dict[str, t.Any]:  # fmt: skip
        """Take a checkpoint of the first start of a job, which ends with it or goes on, with what fails in that."""

        def work() -> int:
            if fault:
                self.faults.arm(*fault)
            coordinate = self.modules["coordinate"]
            coordinate.PARK_S = pause_s
            fields: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(self.job)}
            fields |= {"job_id": job_id, "state": "R", "start_count": 1, "slot_hosts": (self.name,)}
            job = self.job(**{**fields, "euser": "alice", "rerunnable": True})
            policy = self.policy(checkpoint_min=0, checkpoint_pause=pause_s)
            end = (lambda: None) if park else None
            number: int = coordinate.take_checkpoint(
                job, policy, self.settings, lambda *_more: (), lambda _line: None, end
            )
            return number

        return self.strike.in_child(work)

    def goes_on(self, job_id: str, start: int) -> bool:
        """Wait until the guest of a start is in memory and runs; nobody waits for one that has no worker any more."""

        def work() -> bool:
            end, lock = time.monotonic() + PATIENCE_S, self.layout.job_key(job_id, start)
            watched = True
            with self.domains(self.settings.libvirt_uri) as domains:
                while watched and time.monotonic() < end:
                    watched = self.start_lock.is_locked(self.start_lock.start_lock(self.settings, lock))
                    guests = list(self.settings.start_dir(job_id, start).iterdir())
                    facts = [domains.facts(guest.name) for guest in guests]
                    away = any(self.saved_memory.is_away(guest) for guest in guests)
                    if guests and not away and all(one and one.state == "running" for one in facts):
                        return True
                    time.sleep(LOOK_S)
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

    # -- what `shared_guests.py` asks for

    def prepare_job(self, job_id: str, who: str, fault: tuple[str, str, str]) -> dict[str, t.Any]:
        """Make a guest, or a checkpoint to return from; a worker bears its fault from its beginning."""
        begun = self.begin(job_id, 1, fault if who == "worker" else None)
        if who == "return" and "answer" in begun:
            begun = self.take(job_id, park=True)
            self.end(job_id, 1)
        self.shared = self.stored(job_id) if who == "return" else self.left(job_id)
        return begun

    def attempt(self, job_id: str, who: str, fault: tuple[str, str, str], number: int) -> dict[str, t.Any]:
        """Try one fault, then look, and do all that would come after it without one.

        Args:
            job_id: of a job that `prepare_job` has prepared.
            who: `save`, who asks for a checkpoint; `park`, the same for a job that is to end with it; `worker`, who has
                the guest stand still and go on; `return`, who has a later start begin from there.
            fault: place, `before` or `after`, and kind.
            number: of the fault in this job.
        """
        report = self._return(job_id, fault, 2 + 2 * number) if who == "return" else self._save(job_id, who, fault)
        report["struck"] = self.faults.struck
        report["beside"] = self.lives(self.beside)
        return report

    def finish_job(self, job_id: str) -> dict[str, t.Any]:
        """Remove the guest and what is stored of it."""
        report = {"absent": self.end(job_id, 1), "left": self.left(job_id)}
        self.forget(job_id)
        return report

    def _return(self, job_id: str, fault: tuple[str, str, str], start: int) -> dict[str, t.Any]:
        """A start that fails, and the next one, from a checkpoint that stays for other starts."""
        report: dict[str, t.Any] = {}
        self.faults.live = True
        report["failed"] = self.begin(job_id, start, fault)
        self.faults.live = False
        report["store"] = self.look(job_id)
        self.end(job_id, start)
        report["undone"] = self.left(job_id)
        report["again"] = self.begin(job_id, start + 1)
        report["goes_on"] = self.goes_on(job_id, start + 1)
        report["absent"] = self.end(job_id, start + 1)
        report["left"] = self.left(job_id)
        report["store"] += [f"{path} has changed" for path in differences(self.shared, self.stored(job_id))]
        return report

    def _save(self, job_id: str, who: str, fault: tuple[str, str, str]) -> dict[str, t.Any]:
        """A checkpoint that fails, and the next one; the guest is in memory again where others are to follow."""
        report: dict[str, t.Any] = {"goes_on": True}
        worker, killed = who == "worker", fault[2] == "killed"
        self.faults.live = True
        for pause_s in PAUSES_S:
            report["failed"] = self.take(job_id, None if worker else fault, park=who == "park", pause_s=pause_s)
            parked = who == "park" and "answer" in report["failed"]
            ended = parked or (worker and killed)
            end = time.monotonic() + PATIENCE_S
            while worker and not self.has_struck and time.monotonic() < end:
                time.sleep(0.01)  # what it does when the guest is to go on, it does by itself
            if self.has_struck:  # once: with a disk that stays full, a worker tries for ever
                self.faults.live = False
            report["goes_on"] &= ended or self.goes_on(job_id, 1)
            if self.has_struck or parked or not report["goes_on"]:
                break
        self.faults.live = False
        report["store"] = self.look(job_id)
        report["again"] = {"answer": "not asked"} if ended else self.take(job_id)
        report["store"] += self.look(job_id)
        report["left"] = []
        if who == "save":
            if not self.goes_on(job_id, 1):
                report["again"] = {"error": "the guest did not go on after the next checkpoint"}
            report["left"] = differences(self.shared, self.left(job_id))
            self.forget(job_id)  # the next one finds as little as this one did
        return report

    @property
    def has_struck(self) -> bool:
        """Return whether the fault has struck, which is asked again later."""
        return bool(self.faults.memory[-1])

    def stored(self, job_id: str) -> list[str]:
        """All that is in the store of a job, with its rights and its digest."""
        place = self.modules["checkpoint_store"].job_dir(self.settings.checkpoint_dir, job_id)
        return [
            f"{path} {path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ''}"
            for path in sorted(place.rglob("*"))
        ]


def differences(before: t.Sequence[str], now: t.Sequence[str]) -> list[str]:
    """Return what was not there before, and what is not there any more; a guest that returns has a new process."""
    was, there = (
        collections.Counter(re.sub(r"^process \d+ ", "process ", thing) for thing in one) for one in (before, now)
    )
    return [*(there - was).elements(), *(f"no {thing}" for thing in (was - there).elements())]


def node_of(strike: t.Any, place: pathlib.Path, rules: t.Any, beside: str) -> t.Any:
    """This node, whose jobs can be saved, beside one."""
    node = type("SavingNode", (Saving, strike.Node), {})((), place, rules)
    node.prepare(strike, place, beside)
    return node


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
        steps = well(node.take(job_id, park=park))
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
        if kind != "disk" or not any(name in place for name in OF_NO_DISK)
    ]


if __name__ == "__main__":
    main()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for OpenPBS's MOM: feeds recorded events to the site's hook, each in a process of its own.

The hook is the real one, rendered; the module `pbs` is made of the event, and lets a hook set what OpenPBS lets it.
Where the hook calls our program, this file stands in for it: it reads the call by the real adapter, gives the orders of
a scenario to the real adapter, and ends as the adapter says.

    driver.py hook HOOK OUTCOME         the record and what it is played with stand on standard input
    driver.py program PLACE ARGUMENT... in place of our program
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import types
import typing as t

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/openpbs"
EVENTS = ("BEGIN", "PROLOGUE", "LAUNCH", "PRETERM", "ABORT", "EPILOGUE", "END", "POSTSUSPEND", "PRERESUME")
REQUEST = "vtorque:eyJ2IjoxfQ"
MAY_SET = frozenset({"Hold_Types"})
"""Of a job, with an effect; recorded: verdict-hooks.txt."""


def records() -> list[dict[str, t.Any]]:
    """What MOMs handed to hooks, in the order in which they did."""
    found = [json.loads(path.read_text()) for path in (FIXTURES / "hooks").iterdir()]
    return sorted((one for one in found if one["event"].startswith("EXECJOB_")), key=lambda one: float(one["began"]))


def record(job: str, host: str, event: str) -> dict[str, t.Any]:
    """One of them."""
    (found,) = (one for one in records() if (one["job"]["id"], one["host"], one["event"]) == (job, host, event))
    return found


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an event's hook left.

    Attributes:
        accepted: as OpenPBS takes it: a hook that a signal killed has accepted, too.
        killed: did one kill it?
        message: of a reject.
        set: attributes of the job that it changed.
        calls: of the job's methods.
        vnodes: what it set of them, by their names.
        program: what runs after a launch.
        argv: its arguments.
        errors: what it wrote on standard error, which is the job's error file.
    """

    accepted: bool
    killed: bool = False
    message: str = ""
    set: dict[str, str] = dataclasses.field(default_factory=dict)
    calls: tuple[str, ...] = ()
    vnodes: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    program: str = ""
    argv: tuple[str, ...] = ()
    errors: str = ""


class Mom:
    """MOMs of a site with the hook.

    Args:
        place: an empty directory.
        hook: the rendered hook.
        settings: of the site's configuration, for our program.
    """

    def __init__(self, place: pathlib.Path, hook: str, settings: t.Mapping[str, str]) -> None:
        self.place = place
        self.hook = place / "vtorque.PY"
        self.hook.write_text(hook)
        self.played = 0
        (place / "settings.json").write_text(json.dumps(dict(settings)))
        (place / "opt/venv/bin").mkdir(parents=True)
        (place / "opt/bin").mkdir()
        path = ":".join(filter(None, sys.path))
        for name, text in {
            "venv/bin/python": f"PYTHONPATH='{path}' exec {sys.executable} {__file__} program {place} \"$@\"",
            "bin/vtorque-shell": "exit 1",
        }.items():
            (place / "opt" / name).write_text(f"#!/bin/sh\n{text}\n")
            (place / "opt" / name).chmod(0o755)
        self.play_scenario({})

    def play_scenario(self, scenario: t.Mapping[str, t.Any]) -> None:
        """Let our program do this from now on: orders and an end, by the role of its call."""
        (self.place / "scenario.json").write_text(json.dumps(scenario))

    def calls(self) -> list[dict[str, t.Any]]:
        """How our program was called, in order."""
        path = self.place / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def play(self, event: dict[str, t.Any], *, request: str | None = REQUEST, dies_of: int = 0) -> Outcome:
        """Run the hook for an event.

        Args:
            event: as recorded, perhaps with changes.
            request: value of the job's resource; None: the job has none.
            dies_of: a signal that kills the hook when it calls our program.
        """
        self.played += 1
        left = self.place / f"outcome.{self.played}"
        word = json.dumps({"record": event, "request": request, "dies_of": dies_of})
        ended = subprocess.run(
            [sys.executable, __file__, "hook", self.hook, left],
            input=word, text=True, timeout=60, check=False, stderr=subprocess.PIPE,
        )  # fmt: skip
        if ended.returncode < 0:
            program, argv = event.get("ev_progname", ""), tuple(event.get("ev_argv", ()))
            return Outcome(accepted=True, killed=True, program=program, argv=argv, errors=ended.stderr)
        data = json.loads(left.read_text())
        return Outcome(**{**data, "calls": tuple(data["calls"]), "argv": tuple(data["argv"])}, errors=ended.stderr)


class Resources:
    """Resource_List of a job."""

    def __init__(self, request: str | None, unset: type[Exception]) -> None:
        self._request = request
        self._unset = unset

    def __getitem__(self, name: str) -> str | None:
        if name != "vtorque":
            raise self._unset(name)
        return self._request


class Job:
    """A job as hooks see it: `None` in words in the record is what it does not have."""

    def __init__(self, event: dict[str, t.Any], resources: Resources) -> None:
        facts = {name: None if value == "None" else value for name, value in event["job"].items()}
        self.__dict__.update(facts, Resource_List=resources, left={}, called=[], superior=event["in_ms_mom"] == "True")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in MAY_SET:
            raise AttributeError(f"a hook cannot set {name}")
        self.left[name] = str(value)

    def in_ms_mom(self) -> bool:
        return bool(self.superior)

    def rerun(self) -> None:
        self.called.append("rerun")

    def delete(self) -> None:
        self.called.append("delete")


class Event:
    """An event with its end."""

    def __init__(self, event: dict[str, t.Any], job: Job, number: int, left: pathlib.Path) -> None:
        self.type, self.job, self._left = number, job, left
        names = re.findall(r"'([^']+)':", event.get("ev_vnode_list", ""))
        self.vnode_list = {name: types.SimpleNamespace() for name in names}
        if event["event"] == "EXECJOB_LAUNCH":
            self.progname, self.argv = event["ev_progname"], list(event["ev_argv"])
            pairs = re.split(r",(?=[A-Z_]+=)", event["ev_env"])
            self.env = dict(pair.split("=", 1) for pair in pairs)

    def accept(self) -> t.NoReturn:
        self._end(accepted=True, message="")

    def reject(self, message: str) -> t.NoReturn:
        self._end(accepted=False, message=message)

    def _end(self, *, accepted: bool, message: str) -> t.NoReturn:
        vnodes = {name: vars(vnode) for name, vnode in self.vnode_list.items() if vars(vnode)}
        program, argv = getattr(self, "progname", ""), getattr(self, "argv", ())
        outcome = Outcome(accepted, False, message, self.job.left, tuple(self.job.called), vnodes, program, tuple(argv))
        data = dataclasses.asdict(outcome)
        del data["errors"]
        self._left.write_text(json.dumps(data))
        raise SystemExit(0)


def run_hook(hook: str, left: str) -> None:
    """Run the hook in this process, with the module that OpenPBS has for it."""
    word = json.load(sys.stdin)
    event, dies_of = word["record"], word["dies_of"]
    pbs = types.ModuleType("pbs")
    names = [f"EXECJOB_{name}" for name in EVENTS]
    pbs.UnsetResourceNameError = type("UnsetResourceNameError", (Exception,), {})  # type: ignore[attr-defined]
    job = Job(event, Resources(word["request"], pbs.UnsetResourceNameError))  # type: ignore[attr-defined]
    made = Event(event, job, names.index(event["event"]), pathlib.Path(left))
    for number, name in enumerate(names):
        setattr(pbs, name, number)
    pbs.__dict__.update(
        ND_OFFLINE="offline", hold_types=str, get_local_nodename=lambda: event["host"], event=lambda: made
    )
    sys.modules["pbs"] = pbs
    os.getppid = lambda: event["ppid"]
    if dies_of:
        subprocess.Popen = lambda *_arguments, **_more: os.kill(os.getpid(), dies_of)  # type: ignore[assignment, misc]
    os.environ.clear()
    os.environ.update(event["env"])
    runpy.run_path(hook)


def run_program(place: pathlib.Path, arguments: t.Sequence[str]) -> int:
    """Stand in for our program; returns its exit status."""
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import registry
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookEnd
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import owner_file
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

    owner_file.PLACE = place / "run/openpbs"
    hooks = registry.open_hooks(registry.launchers_system(os.environ))
    try:
        call = hooks.read_call(arguments[3:], os.environ)
    except VTorqueError as error:
        print(f"vtorque: this job's hook failed: {error}", file=sys.stderr)
        return hooks.exit_status(HookEnd.FAILED)
    with (place / "calls").open("a") as stream:
        stream.write(json.dumps({**dataclasses.asdict(call), "environment": sorted(os.environ)}) + "\n")
    scenario = json.loads((place / "scenario.json").read_text()).get(call.role, {})
    if "real" in scenario:
        return run_real(place, arguments[3:])
    if "waits" in scenario:
        signal.pause()
    if "writes" in scenario:
        pathlib.Path(os.environ["VTORQUE_ANSWER"]).write_text(scenario["writes"])
    batch = registry.open_batch(Policy(**json.loads((place / "settings.json").read_text())))
    for name, *given in scenario.get("orders", ()):
        print(getattr(batch, name)(*given), file=sys.stderr)
    if "dies" in scenario:
        os.kill(os.getpid(), scenario["dies"])
    return hooks.exit_status(HookEnd[scenario.get("end", "DONE")])


def run_real(place: pathlib.Path, arguments: t.Sequence[str]) -> int:
    """Our program itself, with its directories below a place."""
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.start import Places
    from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import main

    return main.main(arguments, Places(place / "run", place / "state", place / "vtorque.yml"))


if __name__ == "__main__":
    if sys.argv[1] == "hook":
        run_hook(sys.argv[2], sys.argv[3])
    else:
        sys.exit(run_program(pathlib.Path(sys.argv[2]), sys.argv[3:]))

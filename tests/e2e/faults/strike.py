# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: a fault before and after every step of present and absent, and what is left afterwards.

The steps are taken from the installed collection: the calls in the functions of `WALKED` that `step_rules.py` takes for
one when they are made.  In processes of ours alone, each module is compiled anew so that its calls may fail.  Guests
are real domains whose firmware stops the processor, and count as ready at once.  Steps that a plain guest does not come
to are tried with one of the user's own image, disk, cores, additions and shared memory, and with a worker that hangs.

Arguments, as JSON: the kinds of fault; of how many points one is tried; which is the first; who is told of lost guests
(a sister's way); what stands in the line of those that are tried; the text of `step_rules.py`.
Says a line of JSON with how many `points` there are and how many of them are `tried`, one for each of these, and at
last one with what is `unreached`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import errno
import importlib
import itertools
import json
import mmap
import os
import pathlib
import pwd
import signal
import subprocess
import sys
import tempfile
import time
import types
import typing as t

BASE = "ansible_collections.mikelangelo.vtorque.plugins"
NODE = f"{BASE}.module_utils.node"
WALKED = {
    "slots": "state.slots",
    "remove": "removal.remove",
    "end_start": "state.end_start",
    "virtiofsd": "storage.virtiofsd",
    "user_disk": "storage.user_disk",
    "shared_region": "devices.shared_region",
    "build": "lifecycle.creation.build",
    "present_absent": "lifecycle.present_absent",
    "worker": "lifecycle.worker",
}
"""Name and place of each, in the order in which they import each other."""
PROCESSES = ("virtiofsd", "user_disk", "worker")
"""Modules that start processes, and mend nothing themselves: there an error of nobody's is as a kill, and a step that
hangs as a process that does (`stuck`)."""
OF_THE_WORKER = ("worker._stay", "worker._end_politely", "worker._bury")
"""What it does when it is told to end."""
CHILDREN = (
    "virtiofsd._become", "virtiofsd._keep_capabilities", "virtiofsd._keep_groups", "virtiofsd._raise_limit",
    "user_disk._become", "user_disk._send_line",
)  # fmt: skip
"""What a child does before it is the user's program, and takes back when it ends."""
OF_THE_END = ("remove.", "slots.", *OF_THE_WORKER, "worker.log")
HALT = b"\xfa\xf4\xeb\xfd"
"""cli, hlt, jmp to the hlt: where an x86 processor begins, 16 bytes below the end of its ROM."""
TYPE = "hvm</type>\n"
MAKE_S, HANG_S = 60.0, 14.0
"""The deadline of a node that has time, and of one on which a step hangs; 5 s of it are kept to undo what was begun."""
END_S = 20.0
"""For a removal that must end a worker that hangs, which it does after two thirds."""
PATIENCE_S = 3.0
"""How long a removal may hang before it is killed, as its caller's ssh would be."""
STUCK_S = 6.0
"""For a removal that finds its worker stopped."""
MOST_PLACES = 4096
MARKS = ("come to", "before", "after")
WATCHES = tuple(f"{NODE}.lifecycle.monitor.Watching{method}" for method in ("", ".run"))
"""Where a worker is for the life of its job: when it comes there nobody knows, so that none can fail there."""


class Wrapper(ast.NodeTransformer):
    """Has each callee in a module's functions pass through `strike_`, with its place: `module.function: callee #n`."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.where: list[str] = []
        self.places: dict[str, ast.expr] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Its body alone."""
        self.where.append(node.name)
        node.body = [self.visit(one) for one in node.body]
        self.where.pop()
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The callee alone: what is given to it is worked out as ever."""
        callee = copy.deepcopy(node.func)
        self.generic_visit(node)
        if not self.where:
            return node
        place = f"{self.module}.{self.where[-1]}: {ast.unparse(callee)}"
        number = sum(one.rpartition(" #")[0] == place for one in self.places) + 1
        self.places[f"{place} #{number}"] = callee
        node.func = ast.Call(ast.Name("strike_", ast.Load()), [ast.Constant(f"{place} #{number}"), node.func], [])
        return node


def wrapped(sources: t.Mapping[str, str]) -> dict[str, tuple[ast.Module, dict[str, ast.expr]]]:
    """By module: its tree, in which each call can fail, and what is called at each place."""
    found = {}
    for name, text in sources.items():
        wrapper = Wrapper(name)
        found[name] = (ast.fix_missing_locations(wrapper.visit(ast.parse(text))), wrapper.places)
    return found


class Faults:
    """What fails, in every process that comes of ours.

    Args:
        places: of all calls.
        disk: where the node's own disk is.
        rules: `step_rules.py`, which says what of them is a step.
    """

    def __init__(self, places: t.Sequence[str], disk: pathlib.Path, rules: t.Any) -> None:
        self.disk, self.rules = disk, rules
        self.places = {place: number for number, place in enumerate(places)}
        # before the fork: all see the same
        self.memory = mmap.mmap(-1, 2 + 3 * MOST_PLACES)  # live, for each of MARKS the places, struck
        self.place, self.when, self.kind = "", "", ""

    def arm(self, place: str, when: str, kind: str) -> None:
        """From now on in this process, once it is `live`."""
        self.place, self.when, self.kind = place, when, kind

    @property
    def live(self) -> bool:
        """May it strike?"""
        return self.memory[0] == 1

    @live.setter
    def live(self, value: bool) -> None:
        self.memory[0] = int(value)

    def _at(self, mark: str, place: str) -> int:
        """Where in memory it stands; a byte each, so that no process takes back what another writes."""
        return 1 + MARKS.index(mark) * MOST_PLACES + self.places[place]

    def reached(self) -> set[tuple[str, str]]:
        """The steps that something came to since the last question, by place, and `before` or `after`."""
        found = {(place, when) for place in self.places for when in MARKS[1:] if self.memory[self._at(when, place)]}
        self.memory[1 + MOST_PLACES : -1] = bytes(2 * MOST_PLACES)
        return found

    def forget(self) -> None:
        """Nothing has come to any place."""
        self.memory[1:-1] = bytes(3 * MOST_PLACES)

    def not_come_to(self) -> set[str]:
        """The places to which nothing has come, whether they are steps or not, since all was forgotten."""
        return {place for place in self.places if not self.memory[self._at("come to", place)]}

    def of(self, home: str) -> t.Callable[[str, t.Any], t.Any]:
        """What each callee in a module passes through."""

        def strike(place: str, callee: t.Any) -> t.Any:
            self.memory[self._at("come to", place)] = 1
            if self.rules.name_of(callee) in WATCHES:
                return callee
            return self.rules.with_faults(callee, home, lambda when: self.step(place, when))

        return strike

    def step(self, place: str, when: str) -> None:
        """Before or after a step of the product."""
        self.memory[self._at(when, place)] = 1
        if self.live and (place, when) == (self.place, self.when):
            self.act()

    @property
    def struck(self) -> bool:
        """Has it struck since the last question?"""
        value = self.memory[-1] == 1
        self.memory[-1] = 0
        return value

    def act(self) -> None:
        """Fail."""
        self.memory[-1] = 1
        if self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hangs":
            time.sleep(3600)
        if self.kind == "disk":
            # a call that opens a file names it, a write into one that is open does not
            named = (str(self.disk / "a fault on purpose"),) if self.when == "before" else ()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *named)
        raise RuntimeError("a fault on purpose")


def wait_ready(guests: t.Any, *_more: object, **_other: object) -> dict[str, str]:
    """A guest has the address that the last three bytes of its MAC name."""
    return {one.name: "10." + ".".join(str(int(byte, 16)) for byte in one.mac.split(":")[3:]) for one in guests}


def put_rom(place: pathlib.Path) -> None:
    """Templates with which guests begin, and end, with a ROM that stops the processor."""
    rom = place / "halt.rom"
    rom.write_bytes((b"\0" * 0xFFF0 + HALT).ljust(0x10000, b"\0"))
    package = importlib.import_module(NODE)
    text = (pathlib.Path(package.__path__[0]).parents[2] / "templates/domain.xml.j2").read_text(encoding="utf-8")
    if text.count(TYPE) != 1:
        raise SystemExit("the domain's template names its machine otherwise")
    text = text.replace(TYPE, f"{TYPE}    <loader readonly='yes' type='rom'>{rom}</loader>\n")
    (place / "domain.xml.j2").write_text(text, encoding="utf-8")


def in_child(work: t.Callable[[], t.Any], within_s: float | None = None) -> dict[str, t.Any]:
    """What a process of its own answers: `answer`, `error`, or neither when it was killed (or had to be)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            output: dict[str, t.Any] = {"answer": work()}
        except BaseException as error:
            kind = type(error).__name__
            output = {
                "error": str(error),
                "class": kind,
                "cause": getattr(error, "cause", ""),
                "fault": str(getattr(error, "fault", "")),
            }
        os.write(writing, json.dumps(output, default=str).encode())
        os._exit(0)
    os.close(writing)
    if within_s is not None:
        end = time.monotonic() + within_s
        while time.monotonic() < end and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.05)
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # who stays, the worker, has closed what is not his; a copy that he kept would keep us
    with os.fdopen(reading, "rb") as stream:
        return json.loads(stream.read() or b"{}")


class Node:
    """This node: parts of jobs here, and gone again."""

    def __init__(self, tell: t.Sequence[str], templates: pathlib.Path, rules: t.Any) -> None:
        self.tell, self.rules = tuple(tell), rules
        self.callees: dict[str, tuple[ast.expr, types.ModuleType]] = {}
        for name in (
            "lifecycle.creation.preflight",
            "lifecycle.client",
            "lifecycle.present_absent",
            "state.start_lock",
        ):
            importlib.import_module(f"{NODE}.{name}")
        self.spec = importlib.import_module(f"{BASE}.module_utils.wire.messages")
        self.clock = importlib.import_module(f"{BASE}.module_utils.system.clock")
        self.layout = importlib.import_module(f"{BASE}.module_utils.state.layout")
        self.modules = {name: importlib.import_module(path) for name, path in self.walked().items()}
        self.present_absent = sys.modules[f"{NODE}.lifecycle.present_absent"]
        self.alice = pwd.getpwnam("alice")
        self.client, self.start_lock = sys.modules[f"{NODE}.lifecycle.client"], sys.modules[f"{NODE}.state.start_lock"]
        found = importlib.import_module(f"{BASE}.plugin_utils.bridge.node_settings")
        policy = importlib.import_module(f"{BASE}.module_utils.job.config.policy_file").load()
        self.name = found.host_name()
        settings = found.settings_of(policy, self.name)
        self.settings = dataclasses.replace(settings, template_dir=templates, own_images_mib=1 << 10)
        self.own_files = {name: f"{self.alice.pw_dir}/fault-{name}-{self.name}.qcow2" for name in ("image", "disk")}
        self.faults = self._compile()
        self.key = self._key()

    def walked(self) -> dict[str, str]:
        """Name and module of each whose steps may fail, in the order in which they import each other."""
        return {name: f"{NODE}.{path}" for name, path in WALKED.items()}

    def _compile(self) -> Faults:
        """Compile the modules anew, with all steps wrapped, as this process and its children see them."""
        sources = {
            name: pathlib.Path(t.cast("str", one.__file__)).read_text(encoding="utf-8")
            for name, one in self.modules.items()
        }
        found = wrapped(sources)
        faults = Faults(
            [place for tree, places in found.values() for place in places], self.settings.state_dir, self.rules
        )
        for name, (tree, places) in found.items():
            module: types.ModuleType = self.modules[name]
            self.callees.update({place: (callee, module) for place, callee in places.items()})
            module.__dict__["strike_"] = faults.of(module.__name__)
            exec(compile(tree, t.cast("str", module.__file__), "exec"), module.__dict__)
        importlib.import_module(f"{NODE}.lifecycle.creation.build").__dict__["wait_ready"] = wait_ready
        return faults

    def _key(self) -> t.Any:
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "key"
            subprocess.run(
                ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True
            )
            fields = path.with_suffix(".pub").read_text(encoding="utf-8").split()
            return self.spec.KeyPair(path.read_text(encoding="utf-8"), " ".join(fields[:2]))

    @contextlib.contextmanager
    def files_of_alices(self) -> t.Iterator[None]:
        """An image and a disk of alice's own, which hold nothing."""
        try:
            for path in self.own_files.values():
                subprocess.run(
                    ["/usr/bin/qemu-img", "create", "-q", "-f", "qcow2", path, "64M"],
                    user=self.alice.pw_uid, group=self.alice.pw_gid, extra_groups=[], check=True,
                )  # fmt: skip
            yield
        finally:
            for path in self.own_files.values():
                pathlib.Path(path).unlink(missing_ok=True)

    def part(self, job_id: str, timeout_s: float, *, own: bool = False) -> t.Any:
        """A guest of alice's, of the pool's image, or with all that may be her own."""
        alice = self.alice
        owner = self.spec.Owner("alice", alice.pw_uid, alice.pw_gid, "alice", alice.pw_dir, alice.pw_shell)
        guest = self.spec.GuestSpec(
            0, 0, "tiny", "debian", os.uname().machine, 1, 64, "qemu", "sharedfs", self.key, self.key.public
        )
        additions = self.spec.Additions()
        if own:
            files = {"image": self.own_files["image"], "data_disk": self.own_files["disk"]}
            guest = dataclasses.replace(guest, **files, vcpu_cores="auto", numa="auto", shared_mib=1)
            additions = self.spec.Additions(commands=(self.spec.Command("true"),))
        return self.spec.NodePart(
            self.spec.VERSION, "present", job_id, 1, self.name, timeout_s, owner, (guest,), additions=additions
        )

    def present(
        self, job_id: str, within_s: float = MAKE_S, fault: tuple[str, str, str] | None = None, *, own: bool = False
    ) -> dict[str, t.Any]:
        """Make a part, with what fails in it."""

        def work() -> list[str]:
            if fault:
                self.faults.arm(*fault)
            part = self.part(job_id, within_s, own=own)
            found = self.client.request_guests(part, self.settings, self.clock.Deadline.after(within_s), tell=self.tell)
            return [one.name for one in found]

        return in_child(work)

    def absent(
        self, job_id: str, within_s: float | None = None, fault: tuple[str, str, str] | None = None,
        deadline_s: float = MAKE_S,
    ) -> dict[str, t.Any]:  # fmt: skip
        """Take it away, with what fails in that."""

        def work() -> list[str]:
            if fault:
                self.faults.arm(*fault)
            deadline = self.clock.Deadline.after(deadline_s)
            return list(self.present_absent.absent(job_id, 1, self.settings, deadline))

        return in_child(work, within_s)

    def say(self, job_id: str) -> None:
        """A line on the consoles of a job, of which something is kept."""
        for path in self.settings.start_dir(job_id, 1).glob("*/console.log"):
            with path.open("a", encoding="utf-8") as stream:
                stream.write("nothing boots here\n")

    def left(self, job_id: str) -> t.Any:
        """What there is of a job."""
        return in_child(lambda: self.present_absent.describe_leftovers(self.settings, job_id))["answer"]

    def lives(self, job_id: str) -> bool:
        """Does a job have its guest?"""
        part = self.part(job_id, MAKE_S)
        return bool(
            in_child(lambda: len(self.present_absent.find(part, self.settings, self.clock.Deadline.after(MAKE_S))))[
                "answer"
            ]
        )

    def end_worker(self, job_id: str, how: signal.Signals = signal.SIGKILL, *, wait: bool = True) -> None:
        """By KILL: nobody but us takes the guests away then.  By TERM: it does, before it ends."""
        holder = self.start_lock.start_lock(self.settings, self.layout.job_key(job_id, 1)).read_text(encoding="utf-8")
        pid = int(holder.split()[0])
        os.kill(pid, how)
        # it may be reaped between any two looks
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while wait and ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"):
                time.sleep(0.01)


def try_one(node: Node, job_id: str, who: str, fault: tuple[str, str, str]) -> dict[str, t.Any]:
    """One fault, then the epilogue's removal, then a look.

    Args:
        who: `present`; `own`, the same with what is the user's own; `worker`, whose removal fails when it is told to
            end; `absent`, alone; `stuck`, the same with a worker that is stopped; or `given back`, the same of `own`.
    """
    kind = fault[2]
    making, hangs = who in ("present", "own"), kind == "hangs"
    report: dict[str, t.Any] = {"who": who, "place": fault[0], "when": fault[1], "kind": kind}
    node.faults.live = making
    report["present"] = node.present(
        job_id,
        HANG_S if making and hangs else MAKE_S,
        fault if making or who == "worker" else None,
        own=who in ("own", "given back"),
    )
    node.say(job_id)
    if making:
        report["undone"] = node.left(job_id)
    if who in ("absent", "stuck", "given back"):
        stuck = who == "stuck"
        node.end_worker(job_id, signal.SIGSTOP if stuck else signal.SIGKILL, wait=not stuck)
        node.faults.live = True
        patience_s = (STUCK_S if stuck else 0) + PATIENCE_S
        report["failed"] = node.absent(job_id, patience_s if hangs else None, fault, STUCK_S if stuck else MAKE_S)
    if who == "worker":
        node.faults.live = True
        node.end_worker(job_id, signal.SIGTERM, wait=not hangs)
        # what hangs must have begun to
        while hangs and not node.faults.memory[-1]:
            time.sleep(0.01)
    # in the end all of them are well, but for a worker that still hangs: that is ended
    report["absent"] = node.absent(job_id, deadline_s=END_S if hangs or who == "stuck" else MAKE_S)
    node.faults.live = False
    report["struck"] = node.faults.struck
    report["left"] = node.left(job_id)
    return report


def kinds_at(place: str, when: str, kinds: t.Sequence[str]) -> list[str]:
    """How a step fails before or after its call."""
    if place.startswith(CHILDREN):
        return [kind for kind in ("killed", "disk") if kind in kinds and when == "before"]
    if place.partition(".")[0] in PROCESSES:
        return [kind for kind in ("killed", "disk") if kind in kinds and (when, kind) != ("after", "disk")]
    return [kind for kind in kinds if kind != "hangs" or when == "before"]


def points_of(node: Node, numbers: t.Iterator[int], kinds: t.Sequence[str]) -> list[tuple[str, tuple[str, str, str]]]:
    """Every fault that there is, by what jobs without one come to."""

    def made(*, own: bool = False) -> tuple[str, set[tuple[str, str]]]:
        """A job with its guest, and what was reached."""
        job_id = f"{next(numbers)}.fe"
        node.faults.reached()
        if not node.present(job_id, own=own).get("answer"):
            raise SystemExit("not even without a fault is a guest made")
        node.say(job_id)
        return job_id, {one for one in node.faults.reached() if not one[0].startswith(OF_THE_WORKER)}

    def gone(job_id: str, deadline_s: float = MAKE_S) -> set[tuple[str, str]]:
        """What a removal reached."""
        if "answer" not in node.absent(job_id, deadline_s=deadline_s):
            raise SystemExit("not even without a fault does a guest go")
        return node.faults.reached()

    gone(made()[0])
    node.faults.forget()  # what a node does for its first guest, it does once
    job_id, making = made()
    node.end_worker(job_id, signal.SIGTERM)
    ending = {one for one in node.faults.reached() if one[0].startswith(OF_THE_END)}
    gone(job_id)
    job_id, _same = made()
    node.end_worker(job_id)
    removing = gone(job_id)
    job_id, own = made(own=True)
    node.end_worker(job_id)
    giving_back = gone(job_id)
    job_id, _same = made()
    node.end_worker(job_id, signal.SIGSTOP, wait=False)
    stuck = gone(job_id, STUCK_S)
    of = {
        "present": making, "worker": ending, "absent": removing, "own": own - making, "stuck": stuck - removing,
        "given back": giving_back - removing,
    }  # fmt: skip
    return [
        (who, (place, when, kind))
        for who, steps in of.items()
        for kind in kinds
        for place, when in sorted(steps)
        if kind in kinds_at(place, when, kinds)
    ]


def unreached(node: Node) -> dict[str, list[str]]:
    """By function, the calls that may be steps and that no job has come to."""
    found: dict[str, list[str]] = {}
    for place in sorted(node.faults.not_come_to()):
        if node.rules.may_be_step(*node.callees[place]):
            function, _colon, callee = place.partition(": ")
            found.setdefault(function, []).append(callee)
    return found


def main() -> None:
    """Try them."""
    kinds, every, first, tell, only, text = map(json.loads, sys.argv[1:])
    rules = types.ModuleType("step_rules")
    exec(compile(text, "step_rules", "exec"), rules.__dict__)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(dir="/run") as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        put_rom(place)
        node = Node(tell, place, rules)
        # a record of an earlier run must not stand for a job of ours
        numbers = itertools.count(int(time.time()) % 1_000_000 * 1000 + 1_000_000_000)
        beside = f"{next(numbers)}.fe"
        with node.files_of_alices():
            points = points_of(node, numbers, kinds)
            missed = unreached(node)
            wanted = [(who, fault) for who, fault in points if only in " ".join((who, fault[2], *fault[1::-1]))]
            if not wanted:
                raise SystemExit(f"{only!r} stands in the line of no fault")
            tried = wanted[first % min(every, len(wanted)) :: every]
            print(json.dumps({"points": len(wanted), "tried": len(tried)}), flush=True)
            report_each(node, numbers, beside, tried, try_one)
        print(json.dumps({"unreached": missed}), flush=True)


def report_each(
    node: Node,
    numbers: t.Iterator[int],
    beside: str,
    tried: t.Iterable[t.Any],
    attempt: t.Callable[..., dict[str, t.Any]],
) -> None:
    """Try faults one after the other, beside a job that none of them is to harm; say what came of each."""
    try:
        node.present(beside)
        for who, fault in tried:
            seen = attempt(node, f"{next(numbers)}.fe", who, fault)
            print(json.dumps({**seen, "beside": node.lives(beside)}), flush=True)
    finally:
        node.absent(beside)


if __name__ == "__main__":
    main()

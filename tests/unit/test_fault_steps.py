# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fault suite takes for a step (tests/e2e/faults): no new one is forgotten."""

from __future__ import annotations

import ast
import ctypes
import fcntl
import functools
import importlib
import inspect
import io
import os
import pathlib
import pickle
import resource
import shutil
import signal
import socket
import subprocess
import sys
import syslog
import textwrap
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins import module_utils
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import effects
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.frozen import frozen
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import iproute, nft_rules, rtnetlink
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import bytecode_cache
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import fileserver_probe

from tests.bench.inside import stand_in
from tests.e2e.faults import step_rules, strike, superior, test_mother_superior, test_steps

BASE = "ansible_collections.mikelangelo.vtorque.plugins"
PLUGINS = pathlib.Path(next(iter(module_utils.__path__))).parent
SUITES = {
    "node": {name: f"module_utils.node.{path}" for name, path in strike.WALKED.items()},
    "superior": {path.rpartition(".")[2]: path for path in superior.WALKED},
}
EFFECTS: tuple[t.Any, ...] = (
    os.chmod, os.chown, os.execve, os.fchmod, os.fchown, os.fork, os.ftruncate, os.kill, os.killpg, os.link,
    os.makedirs, os.mkdir, os.mkfifo, os.removexattr, os.rename, os.replace, os.rmdir, os.sched_setaffinity,
    os.sendfile, os.setgroups, os.setpgid, os.setresgid, os.setresuid, os.setsid, os.setxattr, os.symlink, os.truncate,
    os.unlink, os.utime, os.waitpid, os.write,
    *(getattr(pathlib.Path, name) for name in (
        "chmod", "hardlink_to", "mkdir", "rename", "replace", "rmdir", "symlink_to", "touch", "unlink", "write_bytes",
        "write_text",
    )),
    shutil.chown, shutil.copyfile, shutil.copyfileobj, shutil.copytree, shutil.move, shutil.rmtree,
    subprocess.Popen, subprocess.run, subprocess.Popen.kill, subprocess.Popen.send_signal, subprocess.Popen.terminate,
    subprocess.Popen.wait, subprocess.Popen.communicate,
    fcntl.flock, fcntl.lockf, resource.setrlimit, resource.prlimit, signal.pthread_kill, signal.pidfd_send_signal,
    socket.socket.bind, socket.socket.connect, socket.socket.listen, socket.socket.send, socket.socket.sendall,
    socket.socket.sendmsg, syslog.syslog, pickle.dump,
    io.BufferedWriter.write, io.FileIO.write, io.TextIOWrapper.write, io.TextIOWrapper.writelines,
    *(getattr(ctypes.CDLL(None), name) for name in ("capset", "mount", "prctl", "setns", "umount2", "unshare")),
)  # fmt: skip
"""What writes, deletes, starts or ends something, or gives up rights."""


class Call(t.NamedTuple):
    """A call in a module of a suite."""

    place: str
    callee: ast.expr
    module: types.ModuleType

    @property
    def name(self) -> str:
        """What is called, without whose it is."""
        return self.callee.attr if isinstance(self.callee, ast.Attribute) else ast.unparse(self.callee)


@functools.cache
def calls(suite: str) -> tuple[Call, ...]:
    """All of them."""
    found = []
    for name, path in SUITES[suite].items():
        module = importlib.import_module(f"{BASE}.{path}")
        ((_tree, places),) = strike.wrapped({name: inspect.getsource(module)}).values()
        found += [Call(place, callee, module) for place, callee in places.items()]
    return tuple(found)


def reached(text: str, **given: t.Any) -> list[str]:
    """The steps of `act()`, as a module of ours runs it with these names."""
    ((tree, _places),) = strike.wrapped({"a": text}).values()
    steps: list[str] = []
    space: dict[str, t.Any] = {"__name__": "ansible_collections.a", **given}

    def strike_(place: str, callee: t.Any) -> t.Any:
        return step_rules.with_faults(callee, space["__name__"], lambda when: steps.append(f"{when} {place}"))

    space["strike_"] = strike_
    exec(compile(tree, "a", "exec"), space)
    space["act"]()
    return steps


def of_another(module: str = "ansible_collections.b", **names: t.Any) -> t.Any:
    """A function, or a class, as if another module of ours had it."""
    space: dict[str, t.Any] = {"__name__": module, **names}
    exec(compile(names.pop("text", "def new(*_args): return 7"), "b.py", "exec"), space)
    return space


def test_call_that_nobody_marked_is_a_step() -> None:
    """A call that somebody adds is tried without anybody's doing, by whatever name."""
    new = of_another()["new"]
    assert reached("def act(): return len([new(), str(new(1))])", new=new) == [
        f"{when} a.act: new #{number}" for number in (1, 2) for when in ("before", "after")
    ]
    assert reached("def act(): return other()", other=functools.partial(new, 1)) == [
        "before a.act: other #1", "after a.act: other #1"
    ]  # fmt: skip


def test_call_of_an_object_of_which_nothing_is_known_is_a_step() -> None:
    """A method, a constructor that somebody wrote, and an object that can be called."""
    text = "class New:\n def __init__(self): pass\n def do(self): pass\n def __call__(self): pass"
    kind = of_another(text=text)["New"]
    assert reached("def act(): New()", New=kind)[0] == "before a.act: New #1"
    assert reached("def act(): one.do()", one=kind())[0] == "before a.act: one.do #1"
    assert reached("def act(): one()", one=kind())[0] == "before a.act: one #1"


def test_marked_function_is_no_step() -> None:
    """Nor is a method of a marked class, and how it is called does not matter."""
    new = effects.leaves_nothing(of_another()["new"])
    assert new() == 7
    assert reached("def act(): return new()", new=new) == []
    assert reached("def act(): return anything_else()", anything_else=functools.partial(new, 1)) == []
    text = "@leaves_nothing\nclass New:\n def __init__(self): pass\n def do(self): pass"
    module = types.ModuleType("ansible_collections.c")
    vars(module).update(of_another("ansible_collections.c", text=text, leaves_nothing=effects.leaves_nothing))
    sys.modules[module.__name__] = module
    try:
        assert reached("def act(): New().do()", New=module.New) == []
    finally:
        del sys.modules[module.__name__]


def test_mark_of_a_class_is_not_its_heirs() -> None:
    """Who inherits may do more."""
    text = "@leaves_nothing\nclass New:\n pass\nclass More(New):\n def __init__(self): pass"
    more = of_another(text=text, leaves_nothing=effects.leaves_nothing)["More"]
    assert reached("def act(): return More()", More=more)[0] == "before a.act: More #1"


def test_function_of_the_same_module_is_no_step_and_its_calls_are() -> None:
    """Also one that is given to another walked module."""
    text = "def act():\n inner()\ndef inner():\n new()"
    assert reached(text, new=of_another()["new"]) == ["before a.inner: new #1", "after a.inner: new #1"]


def test_class_of_values_is_no_step_without_a_mark() -> None:
    """Its constructor is nobody's own; an error is one, too."""
    text = "@frozen\nclass Value:\n at: 'a.int' = 0\nclass Bad(ValueError):\n def __init__(self, what): pass"
    space = of_another("ansible_collections.b", text=text, frozen=frozen)
    assert reached("def act(): return Value(1), Bad('x')", Value=space["Value"], Bad=space["Bad"]) == []


def test_mark_is_what_the_rules_look_for() -> None:
    """They run where the collection need not be importable."""
    assert step_rules.MARK == effects.MARK


@pytest.mark.parametrize("effect", EFFECTS, ids=[step_rules.name_of(one) for one in EFFECTS])
def test_call_with_an_effect_is_a_step(effect: t.Any) -> None:
    """By the object, whatever a module calls it."""
    assert step_rules.is_step(effect, "ansible_collections.a")


def test_opening_a_file_is_a_step_where_it_may_make_one(tmp_path: pathlib.Path) -> None:
    """Reading one is none."""
    path = tmp_path / "file"
    text = "def act(): {}.close()"
    for code in ("path.open('w')", "path.open(mode='ab')", "open(path, 'x+')"):
        assert reached(text.format(code), path=path)[0].startswith("before a.act: "), code
        assert reached(text.format("path.open()"), path=path) == []
        assert reached(text.format("open(path, 'rb')"), path=path) == []
        path.unlink()
    flags = "os.O_CREAT | os.O_WRONLY", "os.O_RDONLY"
    made, read = (reached(f"def act(): os.close(os.open(path, {one}))", path=path, os=os) for one in flags)
    assert made == [f"{when} a.act: os.open #1" for when in ("before", "after")]
    assert read == []


@pytest.mark.parametrize("suite", SUITES)
def test_every_effect_of_a_walked_module_is_a_step(suite: str) -> None:
    """Of the modules as they are: what bears the name of an effect may be one; each place has a name of its own."""
    names = {step_rules.plain(one).__name__ for one in EFFECTS}
    found = [
        one for one in calls(suite)
        if one.name in names and step_rules.lookup(one.callee, one.module) in (None, *EFFECTS)
    ]  # fmt: skip
    assert {one.name for one in found} >= {"fork", "kill", "unlink", "write"}
    assert [one.place for one in found if not step_rules.may_be_step(one.callee, one.module)] == []
    places = [one.place for one in calls(suite)]
    assert len(places) == len(set(places))


def marked() -> dict[str, t.Any]:
    """Every function that is marked in modules that were imported, and those of marked classes; by its name."""
    for suite in SUITES:
        calls(suite)
    found: dict[str, t.Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(BASE):
            of_module = [one for one in vars(module).values() if getattr(one, "__module__", "") == name]
            kinds = [one for one in of_module if isinstance(one, type)]
            methods = [step_rules.plain(one) for kind in kinds for one in vars(kind).values()]
            for one in (inspect.unwrap(one) for one in (*of_module, *methods) if isinstance(one, types.FunctionType)):
                written = not one.__code__.co_filename.startswith("<")
                if written and one.__module__ == name and step_rules.is_marked(one):
                    found[step_rules.name_of(one)] = one
    return found


ASKING = (
    bytecode_cache.open_cache,
    fileserver_probe.answers,
    iproute._read_rows,
    nft_rules._elements,
    rtnetlink._open,
)
"""A probe, a list of nft's, a question to the kernel: what these open or start ends with them.

What jinja2 compiled may be there or not: without it a template takes longer."""


def effects_in(function: types.FunctionType, above: tuple[str, ...] = ()) -> set[str]:
    """What a function does that a mark denies, and what our own functions do that it calls by name."""
    if function in ASKING:
        return set()
    names = {step_rules.plain(one).__name__ for one in EFFECTS} - set(dir(str)) - {"communicate", "wait"}
    module = sys.modules[function.__module__]
    found: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Call):
            callee = step_rules.lookup(node.func, module)
            bare = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if callee in EFFECTS or (callee is None and bare in names):
                found.add(" -> ".join((*above, function.__qualname__, ast.unparse(node.func))))
            inner = inspect.unwrap(step_rules.plain(callee)) if callee is not None else None
            ours = isinstance(inner, types.FunctionType) and inner.__module__.startswith(BASE)
            if ours and inner.__qualname__ not in (*above, function.__qualname__) and not step_rules.is_marked(inner):
                found |= effects_in(inner, (*above, function.__qualname__))
    return found


def test_marked_function_has_no_effect() -> None:
    """No call in it, nor in what it calls by name, is of an effect."""
    there = marked()
    assert len(there) > 100
    assert set().union(*map(effects_in, there.values())) == set()


def test_no_function_is_marked_that_no_step_could_be() -> None:
    """A mark stands where a walked module calls it, or at the whole of a class."""
    called = {one.name for suite in SUITES for one in calls(suite)}
    at_itself = {name: one for name, one in marked().items() if effects.MARK in vars(one)}
    assert [
        name for name, one in at_itself.items()
        if one.__qualname__.removesuffix(".__init__").rpartition(".")[2] not in called
    ] == []  # fmt: skip


@pytest.mark.parametrize("name", sorted(step_rules.NAMED | step_rules.OPENERS | step_rules.NO_AFTER | superior.SPARED))
def test_named_call_exists_and_is_called(name: str) -> None:
    """A name that comes back would not be tried."""
    found = object_of(name)
    assert name == step_rules.name_of(found)
    called = {one.name for suite in SUITES for one in calls(suite)}
    assert found.__name__ in called or (isinstance(found, type) and called & set(dir(found)))


@pytest.mark.parametrize("name", sorted(step_rules.MODULES))
def test_no_module_is_named_of_which_nobody_calls_anything(name: str) -> None:
    """By a name that is looked up, or by a method of one of its classes."""
    names: set[str] = set()
    for one in vars(importlib.import_module(name)).values():
        if getattr(one, "__module__", None) == name or step_rules.name_of(one).startswith(f"{name}."):
            names |= {getattr(one, "__name__", ""), *(dir(one) if isinstance(one, type) else ())}
    assert names & {one.name for suite in SUITES for one in calls(suite)}


def test_readers_are_methods_that_somebody_calls() -> None:
    """Of files that are open."""
    assert set(dir(io.TextIOWrapper)) & {one.name for suite in SUITES for one in calls(suite)} >= step_rules.READERS


def object_of(name: str) -> t.Any:
    """What is defined under a name, in its module."""
    parts = name.split(".")
    if parts[0] == "ctypes":
        return getattr(ctypes.CDLL(None), parts[1])
    for number in range(len(parts) - 1, 0, -1):
        try:
            found: t.Any = importlib.import_module(".".join(parts[:number]))
        except ImportError:
            continue
        return functools.reduce(getattr, parts[number:], found)
    raise AssertionError(f"{name} is in no module")


FUNCTIONS_OF_A_NODE = (
    *strike.OF_THE_WORKER, *strike.CHILDREN, *test_steps.NOT_REACHED, *test_steps.BY_CHANCE, *strike.OF_THE_END,
    *(f"{name}." for name in strike.PROCESSES),
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS_OF_A_NODE)
def test_functions_that_are_named_are_there(name: str) -> None:
    """A function with another name would be tried as any, or not at all."""
    assert any(f"{one.place.partition(': ')[0]}.".startswith(f"{name.rstrip('.')}.") for one in calls("node"))


def test_steps_that_are_named_are_there() -> None:
    """Of the mother superior, and where a worker waits."""
    places = {one.place for one in calls("superior")}
    assert {test_mother_superior.KEEPS.place, test_mother_superior.SAYS} <= places
    assert all(step_rules.name_of(object_of(name)) == name for name in strike.WATCHES)


def test_instrumented_modules_of_the_mother_superior_are_valid_python() -> None:
    """Each of its calls passes through the one function."""
    sources = {path: inspect.getsource(importlib.import_module(f"{BASE}.{path}")) for path in superior.WALKED}
    texts, places = superior.covers(sources)
    assert sorted(places) == sorted(one.place for one in calls("superior"))
    for name, text in texts.items():
        compile(text, name, "exec", dont_inherit=True)
    assert sum(text.count("strike_('") + text.count('strike_("') for text in texts.values()) == len(places)


def test_children_and_ends_are_tried_once() -> None:
    """A child says nothing of what raises in it."""
    kinds = ("killed", "raises", "disk", "hangs")
    assert strike.kinds_at("virtiofsd.run: os.fork #1", "before", kinds) == ["killed", "disk"]
    assert strike.kinds_at("user_disk._become: os.setgroups #1", "before", kinds) == ["killed", "disk"]
    assert strike.kinds_at("user_disk._become: os.setgroups #1", "after", kinds) == []
    assert strike.kinds_at("worker._share: lock.take #1", "before", kinds) == ["killed", "disk"]
    assert strike.kinds_at("worker._share: lock.take #1", "after", kinds) == ["killed"]
    assert len(strike.kinds_at("slots.take: x.write_text #1", "before", kinds)) == 4
    assert len(strike.kinds_at("slots.take: x.write_text #1", "after", kinds)) == 3


@pytest.mark.parametrize("name", sorted(step_rules.NO_AFTER))
def test_call_that_returns_twice_or_never_fails_before_it_alone(name: str) -> None:
    """After a fork two processes would."""
    steps: list[str] = []
    assert step_rules.with_faults(in_place_of(object_of(name)), "ansible_collections.a", steps.append)() == 7
    assert steps == ["before"]


def in_place_of(callee: t.Any) -> t.Any:
    """A function that is taken for another, and does nothing."""
    found = types.FunctionType((lambda: 7).__code__, {})
    found.__module__, found.__qualname__ = callee.__module__, callee.__qualname__
    return found


@pytest.mark.parametrize(
    ("arguments", "environment", "who"),
    [
        (["python", "-I", "-m", "a.cli.hook", "prologue", "yes"], {}, "hook prologue"),
        (["python", "-I", "-m", "a.cli.hook", "epilogue.parallel", "yes"], {}, "hook epilogue.parallel"),
        (["python", "-I", "-m", "a.cli.run_playbook"], {"VTORQUE_SHELL": "1.2"}, "play prologue"),
        (["python", "-I", "-m", "a.cli.run_playbook"], {}, "play epilogue"),
    ],
)
def test_step_fails_in_the_program_that_is_meant(
    arguments: list[str], environment: dict[str, str], who: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in no other, once it is told so; each says that it was reached."""
    step, armed, reached = _strike(tmp_path)
    monkeypatch.setattr(sys, "orig_argv", arguments)
    monkeypatch.delenv("VTORQUE_SHELL", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reached.touch()
    point = superior.Point("runs", "cn1", who, "a.b: c #1", "after", "raises")
    assert step("a.b: c #1", lambda: 7)() == 7
    armed.write_text(superior.armed(point._replace(who="another")))
    assert step("a.b: c #1", lambda: 7)() == 7
    armed.write_text(superior.armed(point))
    done: list[int] = []
    with pytest.raises(RuntimeError, match="on purpose"):
        step("a.b: c #1", lambda: done.append(1))()
    assert done == [1]
    armed.write_text(superior.armed(point._replace(when="before", kind="disk")))
    with pytest.raises(OSError, match="No space left"):
        step("a.b: c #1", lambda: done.append(2))()
    assert done == [1]
    armed.write_text(superior.armed(point._replace(kind="hangs")))
    assert step("a.b: c #1", lambda: 7)() == 7, "it has struck already"
    lines = reached.read_text().splitlines()
    assert lines == [f"{when} {point.word}" for when in ("before", "after", "before", "after", "before", "after",
                                                         "before", "before", "after")]  # fmt: skip


def test_call_that_raises_fails_before_it_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault after a call that does not return is one to which no job comes; after a fork, one to which two do."""
    step, _armed, reached = _strike(tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-I", "-m", "a.cli.hook", "epilogue"])
    reached.touch()
    step("a.b: c #1", lambda: 7)()
    with pytest.raises(FileNotFoundError):
        step("a.b: d.unlink #1", (tmp_path / "none").unlink)()
    step("a.b: os.fork #1", in_place_of(os.fork))()
    lines = reached.read_text().splitlines()
    points = superior.points("runs", {"cn1": lines * 2}, ("raises", "disk"))
    assert [(one.kind, one.who, one.place, one.when) for one in points] == [
        ("raises", "hook epilogue", "a.b: c #1", "after"),
        ("raises", "hook epilogue", "a.b: c #1", "before"),
        ("raises", "hook epilogue", "a.b: d.unlink #1", "before"),
        ("raises", "hook epilogue", "a.b: os.fork #1", "before"),
        ("disk", "hook epilogue", "a.b: c #1", "before"),
        ("disk", "hook epilogue", "a.b: d.unlink #1", "before"),
        ("disk", "hook epilogue", "a.b: os.fork #1", "before"),
    ]


def test_step_of_another_program_is_let_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vtorque-node, the sweep and others share modules with the hooks."""
    step, armed, reached = _strike(tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-I", "-m", "a.cli.vtorque_node", "--early"])
    reached.touch()
    armed.write_text("no JSON")
    assert step("a.b: c #1", lambda: 7)() == 7
    assert reached.read_text() == ""


def _strike(place: pathlib.Path) -> tuple[t.Any, pathlib.Path, pathlib.Path]:
    """The function that lies in a module's copy, with files of its own."""
    text = superior.STRIKE
    for path in (superior.ARMED, superior.REACHED, superior.STRUCK):
        text = text.replace(path, str(place / pathlib.Path(path).name))
    space: dict[str, t.Any] = {}
    exec(compile(text, "strike", "exec"), space)
    return space["strike_"], *(place / pathlib.Path(path).name for path in (superior.ARMED, superior.REACHED))


def test_stand_ins_are_those_of_the_benchmark() -> None:
    """Modules by the name under which they are installed."""
    assert {name.removeprefix("module_utils.node.") for name in superior.STAND_INS} == set(stand_in.WORDS)

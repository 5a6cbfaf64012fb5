# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fault suite takes for a step (tests/e2e/faults): no new one is forgotten."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins import module_utils

from tests.bench.inside import stand_in
from tests.e2e.faults import strike, superior

PLUGINS = pathlib.Path(next(iter(module_utils.__path__))).parent
OF_NODES = {"write_iso", "create", "symlink_to", "mkdir", "rmtree", "unlink", "copy_file", "touch", "write", "hold",
            "bind", "let_go", "destroy", "end_processes", "flush", "bury", "start", "make_overlay", "free",
            "make_overlay_on_socket", "serve", "serve_image", "end_holder", "fork", "execve", "Lock", "Maker",
            "take_away", "make_record_directory", "let_read"}  # fmt: skip
OF_SUPERIORS = {"enforce", "keep", "point", "make_directory", "write", "write_json", "unlink", "rmtree", "remove",
                "remove_here", "remove_run", "rename", "symlink_to", "mkfifo", "setxattr", "Popen", "play", "begin",
                "offer", "write_access", "say", "ask", "leave", "sweep_if_needed", "hand_over",
                "begin_log", "prepare", "settle", "let_use", "let_read"}  # fmt: skip
CALLER = """
def present(part):
    new_effect(part.settings.start_dir(1))
    return len(part.guests)
"""
SUITES = {
    "strike": (strike.LOOKS, [f"module_utils.node.{name}" for name in strike.WALKED.values()]),
    "superior": (superior.LOOKS, list(superior.WALKED)),
}


def sources(modules: t.Iterable[str]) -> dict[str, str]:
    """The modules that a suite looks at."""
    return {name: PLUGINS.joinpath(*name.split(".")).with_suffix(".py").read_text("utf-8") for name in modules}


def last_words(places: t.Iterable[str]) -> set[str]:
    """What is called there, without whose it is."""
    return {re.split(r"[. ]", place.partition(" #")[0])[-1] for place in places}


def test_whatever_is_not_known_to_leave_nothing_is_a_step() -> None:
    """A call that somebody adds is tried without anybody's doing."""
    ((tree, places),) = strike.wrapped({"present_absent": CALLER}).values()
    assert places == ["present_absent.present: new_effect #1"]
    assert "strike_('present_absent.present: new_effect #1', lambda: new_effect(" in ast.unparse(tree)


def test_what_leaves_something_on_a_node_is_a_step() -> None:
    """Of the modules as they are; each place has a name of its own."""
    told = {name.rpartition(".")[2]: text for name, text in sources(SUITES["strike"][1]).items()}
    places = [place for tree, there in strike.wrapped(told).values() for place in there]
    assert len(places) == len(set(places))
    assert last_words(places) >= OF_NODES


def test_what_hooks_and_actions_leave_is_a_step() -> None:
    """Of the modules as they are; what lies over them is Python, and says its steps' names."""
    texts, places = superior.covers(sources(superior.WALKED))
    assert len(places) == len(set(places))
    assert last_words(places) >= OF_SUPERIORS
    for name, text in texts.items():
        compile(text, name, "exec", dont_inherit=True)
    assert sum(text.count("strike_('") + text.count('strike_("') for text in texts.values()) == len(places)


@pytest.mark.parametrize(
    ("suite", "name"), [(suite, name) for suite, (looks, _modules) in SUITES.items() for name in sorted(looks)]
)
def test_no_call_is_taken_for_harmless_that_nobody_makes(suite: str, name: str) -> None:
    """A name that comes back would not be tried."""
    assert name in calls(suite)


@functools.cache
def calls(suite: str) -> set[str]:
    """Everything that the modules of a suite call."""
    trees = map(ast.parse, sources(SUITES[suite][1]).values())
    return {ast.unparse(node.func) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_children_and_ends_are_tried_once() -> None:
    """What comes after a fork comes twice, after execve never; a child says nothing of what raises in it."""
    kinds = ("killed", "raises", "disk", "hangs")
    assert strike.ways_of("virtiofsd.run: os.fork #1", kinds) == [("before", "killed"), ("before", "disk")]
    assert strike.ways_of("user_disk._become: os.setgroups #1", kinds) == [("before", "killed"), ("before", "disk")]
    assert strike.ways_of("worker._share: lock.take #1", kinds) == [
        ("before", "killed"), ("after", "killed"), ("before", "disk")
    ]  # fmt: skip
    assert len(strike.ways_of("slots.take: x.write_text #1", kinds)) == 7


@pytest.mark.parametrize(
    ("words", "environment", "who"),
    [
        (["python", "-I", "-m", "a.cli.hook", "prologue", "yes"], {}, "hook prologue"),
        (["python", "-I", "-m", "a.cli.hook", "epilogue.parallel", "yes"], {}, "hook epilogue.parallel"),
        (["python", "-I", "-m", "a.cli.play"], {"VTORQUE_SHELL": "1.2"}, "play prologue"),
        (["python", "-I", "-m", "a.cli.play"], {}, "play epilogue"),
    ],
)
def test_step_fails_in_the_program_that_is_meant(
    words: list[str], environment: dict[str, str], who: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in no other, once it is told so; each says that it was reached."""
    step, armed, reached = _strike(tmp_path)
    monkeypatch.setattr(sys, "orig_argv", words)
    monkeypatch.delenv("VTORQUE_SHELL", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reached.touch()
    point = superior.Point("runs", "cn1", who, "a.b: c #1", "after", "raises")
    assert step("a.b: c #1", lambda: 7) == 7
    armed.write_text(superior.armed(point._replace(who="another")))
    assert step("a.b: c #1", lambda: 7) == 7
    armed.write_text(superior.armed(point))
    done: list[int] = []
    with pytest.raises(RuntimeError, match="on purpose"):
        step("a.b: c #1", lambda: done.append(1))
    assert done == [1]
    armed.write_text(superior.armed(point._replace(when="before", kind="disk")))
    with pytest.raises(OSError, match="No space left"):
        step("a.b: c #1", lambda: done.append(2))
    assert done == [1]
    armed.write_text(superior.armed(point._replace(kind="hangs")))
    assert step("a.b: c #1", lambda: 7) == 7, "it has struck already"
    lines = reached.read_text().splitlines()
    assert lines == [f"{when} {point.word}" for when in ("before", "after", "before", "after", "before", "after",
                                                         "before", "before", "after")]  # fmt: skip


def test_what_raises_by_itself_fails_before_it_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault after a call that does not return is one to which no job comes; after a fork, one to which two do."""
    step, _armed, reached = _strike(tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-I", "-m", "a.cli.hook", "epilogue"])
    reached.touch()
    step("a.b: c #1", lambda: 7)
    with pytest.raises(FileNotFoundError):
        step("a.b: d.unlink #1", (tmp_path / "none").unlink)
    step("a.b: os.fork #1", lambda: 7)
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
    assert step("a.b: c #1", lambda: 7) == 7
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

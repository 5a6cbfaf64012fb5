# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the measurements give their programs, and read from them."""

from __future__ import annotations

import ast
import pathlib
import time
import typing as t

import pytest

from tests.bench.inside import job_watch, memory_watch
from tests.bench.recorded import read_call
from tests.bench.site import INSIDE


@pytest.mark.parametrize(("name", "count"), [("prologue", 8), ("epilogue", 11)])
def test_hooks_are_called_as_a_real_mom_called_them(name: str, count: int) -> None:
    """All arguments, empty ones too, and the whole environment; no marker of ours is among them."""
    call = read_call(name)
    assert call.argv[0] == f"/var/spool/torque/mom_priv/{name}"
    assert len(call.argv) == 1 + count
    assert "" in call.argv
    assert (call.environment["PBS_NODENUM"], call.environment["LANG"]) == ("0", "C.UTF-8")
    assert not any("vtorque" in word for word in call.argv)


@pytest.mark.parametrize("path", sorted(INSIDE.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_programs_of_a_node_need_no_file_of_the_checkout(path: pathlib.Path) -> None:
    """Their text is all that a node gets: they import the installed collection by its full name, and nothing near."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert not (node.module or "").startswith(("tests", "lab"))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/opt/vtorque/venv/bin/python", "-I", "-m", "a.b.cli.vtorque_node"], "vtorque_node"),
        (["/opt/vtorque/venv/bin/python", "-m", "ansible", "playbook"], "ansible"),
        (["/usr/bin/qemu-system-x86_64", "-m", "192"], "qemu-system-x86_64"),
        (["-bash"], "-bash"),
        (["python"], "python"),
    ],
)
def test_programs_have_short_names(words: list[str], name: str) -> None:
    """A module's for Python, so that the hypervisor with its own `-m` stays one."""
    assert memory_watch.name_of("\0".join(words).encode() + b"\0") == name


def test_only_what_came_with_the_job_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what was there, nor its copies, nor the hypervisor."""
    before = {1: b"init\0", 2: b"mom\0"}
    now = {**before, 3: b"mom\0", 4: b"hook\0", 5: b"ssh\0", 6: b"ssh\0", 7: b"/usr/bin/qemu-system-x86_64\0"}
    monkeypatch.setattr(memory_watch, "command_lines", lambda: now)
    monkeypatch.setattr(memory_watch, "pss_kib", lambda _pid: 2048)
    assert memory_watch.look(before) == {"hook": 2.0, "ssh": 4.0}


def test_first_line_is_the_first_write_and_the_end_is_when_the_file_goes(tmp_path: pathlib.Path) -> None:
    """The empty file that the MOM makes is no line; what the other stream gets is none either."""
    import inotify_simple

    flags = inotify_simple.flags
    out = tmp_path / "7.fe.OU"

    class Watcher:
        """Plays what happens, a step a read."""

        def __init__(self) -> None:
            self.steps = iter((self.made, self.other, self.written, self.gone))

        def made(self) -> tuple[str, int]:
            out.touch()
            return out.name, flags.MODIFY

        def other(self) -> tuple[str, int]:
            (tmp_path / "7.fe.ER").write_text("complaint")
            return "7.fe.ER", flags.MODIFY

        def written(self) -> tuple[str, int]:
            out.write_text("begun\n")
            return out.name, flags.MODIFY

        def gone(self) -> tuple[str, int]:
            self.modified = out.stat().st_mtime
            out.unlink()
            return out.name, flags.DELETE

        def read(self) -> list[t.Any]:
            name, mask = next(self.steps)()
            return [inotify_simple.Event(0, mask, 0, name)]

    watcher = Watcher()
    job_id, first, over = job_watch.watch(tmp_path, watcher)
    assert job_id == "7.fe"
    assert first == pytest.approx(watcher.modified)
    assert over <= time.time()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the measurements give their programs, and read from them."""

from __future__ import annotations

import ast
import os
import pathlib
import time
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import agent, readiness

from tests.bench.inside import job_watch, memory_watch, ready_watch, stand_in
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
    ("arguments", "name"),
    [
        (["/opt/vtorque/venv/bin/python", "-I", "-m", "a.b.cli.vtorque_node"], "vtorque_node"),
        (["/opt/vtorque/venv/bin/python", "-m", "ansible", "playbook"], "ansible"),
        (["/usr/bin/qemu-system-x86_64", "-m", "192"], "qemu-system-x86_64"),
        (["-bash"], "-bash"),
        (["python"], "python"),
    ],
)
def test_programs_have_short_names(arguments: list[str], name: str) -> None:
    """A module's for Python, so that the hypervisor with its own `-m` stays one."""
    assert memory_watch.name_of("\0".join(arguments).encode() + b"\0") == name


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


@pytest.mark.parametrize("module", [readiness, agent])
def test_stand_in_replaces_one_function_that_is_there(module: types.ModuleType) -> None:
    """The rest of the module is as it is installed; a function that was renamed is no more replaced in silence."""
    name = module.__name__.removeprefix(f"{stand_in.PACKAGE}.")
    text = pathlib.Path(str(module.__file__)).read_text(encoding="utf-8")
    tree = ast.parse(stand_in.replaced(text, name))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(functions) == len(set(functions)) + 1
    assert functions.count(functions[-1]) == 2
    with pytest.raises(ValueError, match=f"{name} has no"):
        stand_in.replaced(text.replace(f"def {functions[-1]}(", "def renamed("), name)


def test_stand_in_for_firmware_stops_the_processor_where_it_begins(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_in, "ROM", tmp_path / "halt.rom")
    monkeypatch.setattr(stand_in, "TEMPLATES", tmp_path / "templates")
    stand_in.put_rom()
    rom = stand_in.ROM.read_bytes()
    assert (len(rom), rom[-16:-12]) == (0x10000, stand_in.HALT)
    template = (tmp_path / "templates/domain.xml.j2").read_text()
    assert template.count(f"<loader readonly='yes' type='rom'>{stand_in.ROM}</loader>") == 1
    with pytest.raises(ValueError, match="otherwise"):
        stand_in.with_rom("<domain/>")


def test_stand_in_answers_at_once_for_every_guest() -> None:
    """No two guests have one address, for their MACs differ; every order is done."""
    spaces: dict[str, dict[str, t.Any]] = {name: {"OrderResult": agent.OrderResult} for name in stand_in.WORDS}
    for name, arguments in stand_in.WORDS.items():
        exec(arguments, spaces[name])
    guests = [types.SimpleNamespace(name=f"vcn{n}-1", mac=f"52:54:00:00:{n:02x}:01") for n in (1, 0x20)]
    found = spaces["guest.readiness"]["wait_ready"](guests, None, None, None, ssh_timeout_s=5.0)
    assert found == {"vcn1-1": "10.0.1.1", "vcn32-1": "10.0.32.1"}
    orders = [(agent.Channel("vcn1-1", pathlib.Path("/none"), "token"), "script")]
    assert spaces["guest.agent"]["order_all"](orders, None) == {"vcn1-1": agent.OrderResult(0, "")}


def test_prologue_is_what_the_shell_to_be_has_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, while the prologue runs; then its processor time and that of all that it waited for."""
    rest = "S 1 7 7 0 -1 0 0 0 0 0 3 4 {waited} 0 20 0 1 0 99"
    seen = iter([rest.format(waited="0 0"), rest.format(waited="0 0"), rest.format(waited="150 50")])
    monkeypatch.setattr(ready_watch, "fields_of", lambda _pid: next(seen).split())
    monkeypatch.setattr(ready_watch, "LOOK_S", 0.0)
    assert ready_watch.prologue_s(7) == pytest.approx(200 * ready_watch.TICK_S)
    assert ready_watch.own_s(rest.format(waited="0 0").split()) == pytest.approx(7 * ready_watch.TICK_S)


def test_fields_of_a_process_are_those_of_the_kernel() -> None:
    """Counted behind the command's name: the parent is the second; none of a process that is gone."""
    assert ready_watch.fields_of(os.getpid())[1] == str(os.getppid())
    assert ready_watch.fields_of(2**22 + 1) == []


def test_prologue_of_a_process_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for for ever."""
    monkeypatch.setattr(ready_watch, "fields_of", lambda _pid: [])
    with pytest.raises(SystemExit, match="ended before its prologue"):
        ready_watch.prologue_s(7)


def test_ready_record_of_the_next_start_is_found(tmp_path: pathlib.Path) -> None:
    """By the directory that is made for it, and what is renamed to the record's name there."""
    import inotify_simple

    flags = inotify_simple.flags

    class Watcher:
        """Plays what happens, a step a read."""

        def __init__(self) -> None:
            self.watched: list[str] = []
            self.steps = iter(((1, flags.CREATE | flags.ISDIR, "7.fe.1"), (2, flags.CREATE, "job.json"),
                               (2, flags.MOVED_TO, "ready.json")))  # fmt: skip

        def add_watch(self, path: str, _mask: int) -> int:
            self.watched.append(path)
            return len(self.watched)

        def read(self) -> list[t.Any]:
            wd, mask, name = next(self.steps)
            return [inotify_simple.Event(wd, mask, 0, name)]

    assert ready_watch.wait_ready(Watcher(), tmp_path) == tmp_path / "7.fe.1/ready.json"

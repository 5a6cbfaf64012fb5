# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that a hook starts before it has loaded itself: clean, reachable, and only where it will be asked."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import start
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import environment
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import hook
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import mark, spawn


def read_all(fd: int) -> bytes:
    with socket.socket(fileno=fd) as peer:
        return b"".join(iter(lambda: peer.recv(4096), b""))


def said_by(*command: str) -> tuple[spawn.EarlyProgram, bytes, bytes]:
    program = spawn.begin(command, {"A": "1"})
    assert program is not None
    answer = read_all(program.socket)
    with os.fdopen(program.complaint, "rb") as stream:
        stream.seek(0)
        return program, answer, stream.read()


def test_early_program_answers_complains_and_ends() -> None:
    program, answer, complaint = said_by("/bin/sh", "-c", 'echo "$A$B"; echo bad >&2; exit 7')
    assert (answer, complaint) == (b"1\n", b"bad\n")
    assert program.wait(60) == 7
    assert program.wait(60) is None


def test_signal_is_told_as_one() -> None:
    assert said_by("/bin/sh", "-c", "kill -9 $$")[0].wait(60) == -9


def test_one_that_is_not_there_is_none() -> None:
    before = set(os.listdir("/proc/self/fd"))
    assert spawn.begin(["/nonexistent/program"], {}) is None
    assert set(os.listdir("/proc/self/fd")) <= before  # what others left may be closed meanwhile


def test_early_program_inherits_no_signal_and_no_group() -> None:
    """A MOM ignores and blocks some, and what a hook starts is ended as a group."""
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGCHLD)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        _program, answer, _complaint = said_by(
            "/bin/sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status; cut -d' ' -f1,5 /proc/$$/stat"
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, action in former.items():
            signal.signal(number, action)
    blocked, ignored, group = answer.decode().splitlines()
    assert int(blocked.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0
    pid, leader = group.split()
    assert pid == leader != str(os.getpgrp())


@pytest.mark.parametrize(
    ("arguments", "allowed", "begun"),
    [
        (["prologue", "yes"], True, True),
        (["prologue", "unknown"], True, False),
        (["epilogue", "yes"], True, False),
        (["prologue", "yes"], False, False),
        ([], True, False),
    ],
)
def test_only_a_prologue_that_will_ask_begins_it(
    tmp_path: pathlib.Path, arguments: list[str], allowed: bool, begun: bool
) -> None:
    place, config = tmp_path / "fast_start", tmp_path / "vtorque.yml"
    config.touch()
    if allowed:
        mark.set_to(mark.name_of(config), place)
    program = hook.begin_node(arguments, ["/bin/echo"], place, config)
    assert (program is not None) == begun
    if program is not None:
        assert read_all(program.socket) == b"--early\n"
        os.close(program.complaint)
        assert program.wait(60) == 0


def test_early_hook_loads_no_slow_module() -> None:
    """None of what takes its time: that is what the program is started before."""
    code = f"import sys, {hook.__name__}; print(' '.join(sys.modules))"
    place = pathlib.Path(hook.__file__).parents[6]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env={"PYTHONPATH": str(place)},
    )  # fmt: skip
    assert not {"re", "json", "subprocess", "dataclasses", "typing", "pathlib", "yaml"} & set(done.stdout.split())


def test_early_program_has_the_environment_of_root(tmp_path: pathlib.Path) -> None:
    place, config = tmp_path / "fast_start", tmp_path / "vtorque.yml"
    config.touch()
    mark.set_to(mark.name_of(config), place)
    program = hook.begin_node(["prologue", "yes"], ["/bin/sh", "-c", "exec /usr/bin/env"], place, config)
    assert program is not None
    found = dict(line.split("=", 1) for line in read_all(program.socket).decode().splitlines())
    os.close(program.complaint)
    assert program.wait(60) == 0
    assert {name: found[name] for name in found if name not in ("PWD", "OLDPWD", "SHLVL", "_")} == (
        environment.ROOT_ENVIRONMENT
    )


def test_early_program_has_the_same_constants_as_the_others() -> None:
    """It cannot afford to import them."""
    assert start.Places().node == hook.NODE
    assert str(layout.RUN_DIR / mark.NAME) == mark.MARK
    assert str(start.Places().config) == mark.CONFIG

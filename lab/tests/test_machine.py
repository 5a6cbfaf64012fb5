# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine with KVM, as far as it need not boot (tests/e2e/kvm has it booted)."""

from __future__ import annotations

import pathlib
import shlex

import pytest

from lab.machine import hardware, machine
from lab.state import Facts, LabError, Process, State


def test_command_without_a_machine_says_how_to_boot_it(tmp_path: pathlib.Path) -> None:
    state = machine.state_of(State(tmp_path / "lab"))
    with pytest.raises(LabError, match="python -m lab machine up"):
        machine.command(state, ["true"], "/", terminal=False)
    assert not machine.down(state)
    assert not state.directory.exists()


def test_command_brings_words_as_they_are(tmp_path: pathlib.Path) -> None:
    state = machine.state_of(State(tmp_path / "lab"))
    state.claim()
    state.save(Facts({machine.NAME: "127.0.0.1"}, "", "", True, {machine.NAME: Process.of(1)}, up=True))
    *_ssh, name, line = machine.command(state, ["printf", "%s|", "a  b", "$HOME", "it's"], "/a b", terminal=False)
    assert name == machine.NAME
    words = shlex.split(line)
    assert words[:3] == ["/usr/bin/env", "-i", "--chdir=/a b"]
    assert words[-5:] == ["printf", "%s|", "a  b", "$HOME", "it's"]


def test_options_divide_processors_and_memory_over_cells(tmp_path: pathlib.Path) -> None:
    words = hardware.options(hardware.Size(processors=8, memory_mib=4096), tmp_path)
    assert "memory-backend-ram,id=cell1,size=2048M" in words
    assert "node,nodeid=1,cpus=4-7,memdev=cell1" in words


def test_machine_that_does_not_fit_is_refused_with_both_sizes(tmp_path: pathlib.Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n", encoding="ascii")
    machine.require_memory(hardware.Size(memory_mib=4096), meminfo)
    with pytest.raises(LabError, match="6144 MiB are needed, and 4096 MiB are available"):
        machine.require_memory(hardware.Size(memory_mib=6144), meminfo)

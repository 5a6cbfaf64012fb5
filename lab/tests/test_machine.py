# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine with KVM, as far as it need not boot (tests/e2e/kvm has it booted)."""

from __future__ import annotations

import pathlib
import shlex
import subprocess

import pytest

from lab.machine import hardware, machine, patience
from lab.system import cgroups
from lab.system.state import Facts, LabError, Process, State


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
    fields = shlex.split(line)
    assert fields[:3] == ["/usr/bin/env", "-i", "--chdir=/a b"]
    assert fields[-5:] == ["printf", "%s|", "a  b", "$HOME", "it's"]


def test_options_divide_processors_and_memory_over_cells(tmp_path: pathlib.Path) -> None:
    arguments = hardware.options(hardware.Size(processors=8, memory_mib=4096), tmp_path)
    assert "memory-backend-ram,id=cell1,size=2048M" in arguments
    assert "node,nodeid=1,cpus=4-7,memdev=cell1" in arguments


def test_machine_that_does_not_fit_is_refused_with_both_sizes(tmp_path: pathlib.Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n", encoding="ascii")
    machine.require_memory(hardware.Size(memory_mib=4096), meminfo)
    with pytest.raises(LabError, match="6144 MiB are needed, and 4096 MiB are available"):
        machine.require_memory(hardware.Size(memory_mib=6144), meminfo)


def test_machine_is_up_when_its_first_program_has_written_its_whole_line() -> None:
    assert machine.booted_after(b"[    2.7] shpchp\nlab machine: ready after ") == 0.0
    assert machine.booted_after(b"[    2.7] shpchp\nlab machine: ready after 20.33 s\n") == 20.33


STALL = b"[  243.4] INFO: task mount:153 blocked for more than 120 seconds.\n"


def test_machine_whose_kernel_waits_for_a_device_before_it_is_up_has_stalled() -> None:
    with pytest.raises(machine.StalledError, match="does not go on"):
        machine.booted_after(b"[    2.7] shpchp\n" + STALL)
    assert machine.booted_after(b"lab machine: ready after 20.33 s\n" + STALL) == 20.33


@pytest.mark.parametrize(("stalls", "boots"), [(1, 2), (machine.BOOTS, machine.BOOTS)])
def test_machine_that_has_stalled_is_booted_again_and_not_for_ever(
    stalls: int, boots: int, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    state = machine.state_of(State(tmp_path / "lab"))
    happened: list[str] = []

    def boot(*_arguments: object) -> float:
        happened.append("boot")
        if happened.count("boot") <= stalls:
            raise machine.StalledError("it waits")
        return 20.0

    monkeypatch.setattr(machine, "_boot", boot)
    monkeypatch.setattr(machine, "require_memory", lambda _size: None)
    monkeypatch.setattr(machine.image, "make", lambda *_places: tmp_path)
    monkeypatch.setattr(machine.lifecycle, "down", lambda _state: happened.append("down"))
    if stalls < machine.BOOTS:
        assert machine.up(state, hardware.Size(), 1) == 20.0
    else:
        with pytest.raises(machine.StalledError):
            machine.up(state, hardware.Size(), 1)
    assert happened == ["down", *["boot", "down"] * (boots - 1), "boot", *["down"] * (stalls == machine.BOOTS)]


def test_machine_that_uses_its_processors_and_says_nothing_has_stalled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A loop in place of a kernel that waits in one; it ends with the test."""
    monkeypatch.setattr(machine, "BOOT_CPU_S", 0.1)
    state = machine.state_of(State(tmp_path / "lab"))
    console = tmp_path / "console.log"
    console.touch()
    with subprocess.Popen(["sh", "-c", "while kill -0 $PPID; do :; done"]) as process:
        try:
            with pytest.raises(machine.StalledError, match="of processor time, and has not booted"):
                machine._wait(state, process, console)
        finally:
            process.kill()


def test_machine_whose_qemu_emulates_no_svm_is_refused_with_the_reason() -> None:
    console = b"lab machine: no module kvm_amd\nlab machine: no /dev/kvm\nlab machine: ready after 20.33 s\n"
    with pytest.raises(LabError, match="no /dev/kvm: this qemu emulates no SVM"):
        machine.booted_after(console)


def test_group_of_the_machine_has_the_share_of_its_processors(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either version of cgroups; what a hierarchy has no file for is none of its matters."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    places = {"cpu": "cpu.shares", "unified": "cpu.weight", "memory": ""}
    monkeypatch.setattr(
        cgroups, "hierarchies", lambda: tuple(cgroups.Hierarchy(place, "cgroup", place) for place in places)
    )
    for place, file in places.items():
        (tmp_path / place / "machine").mkdir(parents=True)
        if file:
            (tmp_path / place / "machine" / file).touch()
    cgroups.weigh("machine", 4)
    assert (tmp_path / "cpu/machine/cpu.shares").read_text(encoding="ascii") == "4096"
    assert (tmp_path / "unified/machine/cpu.weight").read_text(encoding="ascii") == "400"
    assert not list((tmp_path / "memory/machine").iterdir())


def test_lab_in_the_machine_is_set_to_wait_by_lines_that_may_be_given_twice(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "vtorque.yml"
    config.write_text("timeout: 5\nvm_network: br0\n", encoding="ascii")
    for _time in range(2):
        line = patience.front_end().replace(patience.CONFIG, str(config))
        subprocess.run(["/bin/sh", "-c", line], check=True)
    lines = config.read_text(encoding="ascii").splitlines()
    assert lines == ["vm_network: br0", *(f"{name}: {value}" for name, value in patience.PARAMETERS.items())]

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process uses, from the kernel's files."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import process_figures

STAT = "7 (qemu (x) ) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 100 0 0\n"
STATUS = "Name:\tqemu\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n"
THREADS = {"7": ("qemu-system-x86", 10**12), "8": ("CPU 0/KVM", 1_500_000_000), "9": ("CPU 1/KVM", 500_000_000)}


def make_process(proc: pathlib.Path, threads: dict[str, tuple[str, int]]) -> None:
    place = proc / "7"
    for tid, (name, waited) in threads.items():
        (place / "task" / tid).mkdir(parents=True)
        (place / "task" / tid / "comm").write_text(f"{name}\n")
        (place / "task" / tid / "schedstat").write_text(f"5000 {waited} 3\n")
    (place / "stat").write_text(STAT)
    (place / "status").write_text(STATUS)


def test_figures_count_all_threads_and_waits_of_vcpus_alone(tmp_path: pathlib.Path) -> None:
    make_process(tmp_path, THREADS)
    found = process_figures.read_figures(7, tmp_path)
    ticks = os.sysconf("SC_CLK_TCK")
    assert found == process_figures.ProcessFigures(300 / ticks, 2.0, 1 << 20, 2 << 20)


@pytest.mark.parametrize("name", ["CPU 0/KVM", "CPU 12/TCG", "ALL CPUs/TCG"])
def test_figures_know_vcpus_of_every_kind(tmp_path: pathlib.Path, name: str) -> None:
    make_process(tmp_path, {"8": (name, 10**9)})
    found = process_figures.read_figures(7, tmp_path)
    assert found is not None
    assert found.wait_s == 1.0


def test_figures_without_named_threads_know_no_waits(tmp_path: pathlib.Path) -> None:
    make_process(tmp_path, {"7": ("qemu-system-x86", 10**9)})
    found = process_figures.read_figures(7, tmp_path)
    assert found is not None
    assert found.wait_s is None


def test_figures_of_a_process_that_has_ended_are_none(tmp_path: pathlib.Path) -> None:
    assert process_figures.read_figures(7, tmp_path) is None


def test_figures_of_a_living_process_are_the_kernels() -> None:
    found = process_figures.read_figures(os.getpid())
    assert found is not None
    assert found.peak_bytes >= found.memory_bytes > 1 << 20


def test_pid_is_what_libvirt_has_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vcn1-1.pid").write_text("4711\n")
    (tmp_path / "vcn1-2.pid").write_text("nonsense")
    assert [process_figures.read_pid(f"vcn1-{slot}", tmp_path) for slot in (1, 2, 3)] == [4711, None, None]

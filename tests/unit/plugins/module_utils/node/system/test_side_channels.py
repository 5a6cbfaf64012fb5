# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host does against jobs that watch each other, by trees of /sys as kernels make them; and whole cores."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import process_figures, side_channels
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import event_log
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import prctl

MITIGATED = {
    "meltdown": "Not affected",
    "spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling",
    "mds": "Mitigation: Clear CPU buffers; SMT vulnerable",
}


def host(
    place: pathlib.Path, smt: str = "off", ksm: str = "0", weak: dict[str, str] | None = None, threads: int = 2
) -> pathlib.Path:
    """A tree of eight processors on four cores, whose siblings are four apart; or on eight."""
    cpu = place / "devices/system/cpu"
    (cpu / "smt").mkdir(parents=True)
    (cpu / "smt/control").write_text(f"{smt}\n", "ascii")
    (cpu / "vulnerabilities").mkdir()
    for name, text in {**MITIGATED, **(weak or {})}.items():
        (cpu / "vulnerabilities" / name).write_text(f"{text}\n", "ascii")
    (place / "kernel/mm/ksm").mkdir(parents=True)
    (place / "kernel/mm/ksm/run").write_text(f"{ksm}\n", "ascii")
    for number in range(8):
        (cpu / f"cpu{number}/topology").mkdir(parents=True)
        siblings = f"{number % 4},{number % 4 + 4}" if threads == 2 else str(number)
        (cpu / f"cpu{number}/topology/thread_siblings_list").write_text(f"{siblings}\n", "ascii")
    return place


@pytest.mark.parametrize(
    ("cores", "threads", "whole"),
    [
        ((0, 1, 4, 5), 2, (0, 1, 4, 5)),
        ((0, 1, 2, 4), 2, (0, 4)),
        ((1, 2, 3, 4, 5, 6, 7), 2, (1, 2, 3, 5, 6, 7)),
        ((0, 1, 2, 3), 2, ()),
        ((2, 3), 1, (2, 3)),
    ],
)
def test_job_has_whole_cores_alone(
    tmp_path: pathlib.Path, cores: tuple[int, ...], threads: int, whole: tuple[int, ...]
) -> None:
    place = host(tmp_path, threads=threads)
    assert side_channels.find_whole_cores(cores, place) == whole
    if whole:
        assert side_channels.select_whole_cores(cores, "cn1", place) == whole
    else:
        with pytest.raises(SiteFault, match="other jobs may have their siblings"):
            side_channels.select_whole_cores(cores, "cn1", place)


def test_two_jobs_of_any_processors_never_share_a_core(tmp_path: pathlib.Path) -> None:
    place = host(tmp_path)
    for mask in range(256):
        first = tuple(core for core in range(8) if mask & 1 << core)
        second = tuple(core for core in range(8) if core not in first)
        used = [{core % 4 for core in side_channels.find_whole_cores(one, place)} for one in (first, second)]
        assert not used[0] & used[1]


def test_kernel_that_does_not_tell_of_siblings_is_a_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="siblings of processor 9"):
        side_channels.find_whole_cores((9,), host(tmp_path))


def test_host_that_is_as_strict_wants_it_has_no_objections(tmp_path: pathlib.Path) -> None:
    assert side_channels.find_objections("strict", host(tmp_path)) == ()


@pytest.mark.parametrize("smt", ["off", "forceoff", "notsupported", "notimplemented"])
def test_processor_of_one_thread_a_core_is_good_by_any_name(tmp_path: pathlib.Path, smt: str) -> None:
    assert side_channels.find_objections("strict", host(tmp_path, smt=smt)) == ()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"smt": "on"}, "its cores have several threads (smt/control: on)"),
        ({"ksm": "1"}, "KSM merges pages"),
        ({"weak": {"mds": "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable"}}, "mds: Vulnerable"),
        ({"weak": {"itlb_multihit": "KVM: Vulnerable"}}, "itlb_multihit: KVM: Vulnerable"),
        ({"weak": {"itlb_multihit": "Processor vulnerable"}}, "itlb_multihit: Processor vulnerable"),
    ],
)
def test_strict_names_what_breaks_it_and_other_levels_do_not_ask(
    tmp_path: pathlib.Path, tree: dict[str, str], message: str
) -> None:
    place = host(tmp_path, **tree)  # type: ignore[arg-type]
    (objection,) = side_channels.find_objections("strict", place)
    assert objection.startswith(message)
    for level in ("off", "exclusive", "cores"):
        assert side_channels.find_objections(level, place) == ()


def test_strict_believes_no_host_that_does_not_tell(tmp_path: pathlib.Path) -> None:
    assert len(side_channels.find_objections("strict", tmp_path)) == 2


class Kernel:
    """A kernel that is asked by prctl(2), and a guest whose process is 4711."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.refuses: dict[object, int] = {}
        self.reports: list[str] = []
        monkeypatch.setattr(prctl, "_call", self._call)
        monkeypatch.setattr(process_figures, "read_pid", lambda name: 4711 if name == "vcn1-1" else None)
        monkeypatch.setattr(event_log, "report", lambda text, *_level: self.reports.append(text))

    def _call(self, option: int, command: int, *arguments: object) -> None:
        if number := self.refuses.get(command):
            raise OSError(number, os.strerror(number))
        if command:
            self.calls.append((option, command, *arguments))


@pytest.mark.parametrize(("level", "separates"), [("off", 0), ("exclusive", 0), ("cores", 1), ("strict", 1)])
def test_process_of_a_guest_gets_cores_where_no_other_thread_runs_beside_it(
    monkeypatch: pytest.MonkeyPatch, level: str, separates: int
) -> None:
    kernel = Kernel(monkeypatch)
    side_channels.separate_threads("vcn1-1", level)
    # linux/prctl.h: PR_SCHED_CORE, PR_SCHED_CORE_CREATE, and PR_SCHED_CORE_SCOPE_THREAD_GROUP
    assert kernel.calls == [(62, 1, 4711, 1, 0)] * separates
    side_channels.separate_threads("vcn1-2", level)
    assert len(kernel.calls) == separates


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENODEV])
def test_kernel_without_core_scheduling_is_asked_for_none(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    kernel = Kernel(monkeypatch)
    kernel.refuses = {0: number, 1: number}
    side_channels.separate_threads("vcn1-1", "cores")
    assert (kernel.calls, kernel.reports) == ([], [])


@pytest.mark.parametrize(
    ("number", "reports"),
    [(errno.ESRCH, []), (errno.EPERM, ["guest vcn1-1 has no core scheduling: Operation not permitted"])],
)
def test_core_scheduling_that_fails_ends_no_start(
    monkeypatch: pytest.MonkeyPatch, number: int, reports: list[str]
) -> None:
    kernel = Kernel(monkeypatch)
    kernel.refuses = {1: number}
    side_channels.separate_threads("vcn1-1", "cores")
    assert kernel.reports == reports

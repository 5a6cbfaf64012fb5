# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node becomes degrading at once and well again slowly; what cannot be read changes nothing."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import degrading
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import health_sources
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

DAY = 86_400.0


class Looks:
    """A node with sources, which is looked at again and again."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.settings = NodeSettings(
            node_name="cn1", node_number=1, run_dir=directory / "run", state_dir=directory / "state"
        )
        self.message: str | SiteFault = ""
        self.now = 1e9

    def lines(self, *lines: str) -> None:
        found = health_sources.sources_on(lines, "cn1")
        self.settings = dataclasses.replace(self.settings, health_sources=found)

    def write(self, text: str) -> None:
        (self.directory / "count").write_text(text, "utf-8")

    def look(self) -> degrading.NodeHealth:
        self.now += 120
        _before, after = degrading.read_sources(self.settings, self._read_message, Deadline.after(60), self.now)
        known = degrading.read_health(self.settings)
        assert (known.sources, known.counters) == (after.sources, after.counters)
        return after

    def _read_message(self) -> str:
        if isinstance(self.message, SiteFault):
            raise self.message
        return self.message


@pytest.fixture
def looks(tmp_path: pathlib.Path) -> Looks:
    found = Looks(tmp_path)
    found.lines("message mom", f"counter memory {tmp_path}/count limit=10")
    found.write("100\n")
    return found


def test_report_counts_at_once_and_well_after_three_looks(looks: Looks) -> None:
    assert looks.look().degrading == ()
    looks.message = "EVENT: fan 3 is slow"
    first = looks.look()
    assert first.why == "mom: fan 3 is slow"
    looks.message = ""
    assert [bool(looks.look().degrading) for _look in range(3)] == [True, True, False]


def test_report_that_returns_begins_the_wait_anew_and_leaves_its_begin(looks: Looks) -> None:
    looks.message = "ERROR: disk"
    since = looks.look().degrading[0].since
    for message in ("", "", "ERROR: disk", "", ""):
        looks.message = message
        (one,) = looks.look().degrading
    assert (one.since, one.why, one.well_looks) == (since, "ERROR: disk", 2)


def test_source_that_cannot_be_read_changes_nothing_and_is_named(looks: Looks) -> None:
    looks.message = SiteFault("pbsnodes", "gave no answer")
    found = looks.look()
    assert (found.degrading, found.sources[0].unknown) == ((), "pbsnodes: gave no answer")
    looks.message = "ERROR: disk"
    looks.look()
    looks.message = SiteFault("pbsnodes", "gave no answer")
    assert all(looks.look().why == "mom: ERROR: disk" for _look in range(5))


def test_counter_of_the_past_is_no_report_and_its_growth_is(looks: Looks) -> None:
    assert looks.look().degrading == ()
    looks.write("109\n")
    assert looks.look().degrading == ()
    looks.write("110\n")
    assert looks.look().why.endswith("count has grown by 10 in 24 hours")
    looks.now += DAY
    assert [bool(looks.look().degrading) for _look in range(3)] == [True, True, False]


def test_counter_that_vanishes_or_begins_anew_is_not_well_by_that(looks: Looks) -> None:
    looks.look()
    looks.write("150\n")
    assert looks.look().degrading
    (looks.directory / "count").unlink()
    for _look in range(4):
        found = looks.look()
        assert found.degrading
        assert "no such file" in found.sources[1].unknown
    looks.write("3\n")
    assert "has grown by 53 in" in looks.look().why


def test_one_of_several_files_that_vanishes_still_counts(looks: Looks) -> None:
    looks.lines(f"counter memory {looks.directory}/mc*/ce_count limit=10")
    for name in ("mc0", "mc1"):
        (looks.directory / name).mkdir()
        (looks.directory / name / "ce_count").write_text("0", "ascii")
    looks.look()
    (looks.directory / "mc0/ce_count").write_text("10", "ascii")
    assert "mc0" in looks.look().why
    (looks.directory / "mc0/ce_count").unlink()
    assert "mc0" in looks.look().why


def test_source_that_is_forgotten_after_a_repair_counts_anew(looks: Looks) -> None:
    looks.look()
    looks.write("150\n")
    assert looks.look().degrading
    assert degrading.forget_source("memory", looks.settings)
    assert not degrading.forget_source("other", looks.settings)
    assert degrading.read_health(looks.settings).degrading == ()
    looks.write("155\n")
    assert looks.look().degrading == ()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "sources": [{"x": 1}], "counters": {}}']
)
def test_file_that_is_garbage_is_begun_anew(looks: Looks, text: str) -> None:
    looks.look()
    path = looks.settings.state_dir / degrading.FILE
    path.unlink()
    path.write_text(text, "utf-8")
    assert degrading.read_health(looks.settings) == degrading.NodeHealth()
    assert looks.look().degrading == ()


def test_source_that_the_site_has_no_more_makes_no_node_degrading(looks: Looks) -> None:
    looks.message = "ERROR: disk"
    assert looks.look().degrading
    looks.lines(f"counter memory {looks.directory}/count limit=10")
    assert degrading.read_health(looks.settings).degrading == ()
    assert looks.look().degrading == ()


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("", ""),
        ("all is well", ""),
        ("  no ERROR here", ""),
        ("EVENT: fan 3\nmore", "fan 3"),
        ("EVENT:", "EVENT:"),
        ("ERROR", "ERROR"),
        ("\n ERROR: nhc: Health check failed:  check_fs\n", "ERROR: nhc: Health check failed: check_fs"),
        ("ERROR \x1b[2J\x07\u202egnp", "ERROR ?[2J??gnp"),
    ],
)
def test_output_of_a_node_check_is_a_report_by_its_first_word(output: str, complaint: str) -> None:
    assert degrading.complaint_of(output) == complaint


def test_report_without_an_end_is_cut() -> None:
    assert len(degrading.complaint_of("ERROR " + "x" * 100_000)) == degrading.WHY_LENGTH


PROGRAMS: dict[str, tuple[str, str, str]] = {
    "well": ("exit 0", "", ""),
    "event": ("echo EVENT: fan 3; exit 0", "check: fan 3", ""),
    "error": ("echo ERROR: nhc: disk; exit 1", "check: ERROR: nhc: disk", ""),
    "garbage": ("head -c 100000 /dev/urandom | tr -d EV; exit 0", "", ""),
    "silent failure": ("exit 4", "", "status 4 and reports neither"),
    "killed": ("kill -9 $$", "", "status -9 and reports neither"),
    "hangs": ("sleep 1000", "", "did not end within"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_reports_or_is_not_known(looks: Looks, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text, why, unknown = PROGRAMS[name]
    path = looks.directory / "check"
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    looks.directory.chmod(0o755)
    monkeypatch.setattr(degrading, "PROGRAM_S", 1.0 if name == "hangs" else 60.0)
    looks.lines(f"program check {path}")
    found = looks.look()
    assert found.why == why
    assert unknown in found.sources[0].unknown
    assert bool(unknown) == bool(found.sources[0].unknown)


def test_time_that_is_over_reads_no_source(looks: Looks) -> None:
    looks.message = "ERROR: disk"
    _before, found = degrading.read_sources(looks.settings, looks._read_message, Deadline.after(0), 1e9)
    assert found.degrading == ()
    assert all("no time was left" in one.unknown for one in found.sources)


def _finding(settings: NodeSettings) -> tuple[str, str, str]:
    found = degrading.check_health(settings)
    return found.state, found.cell, found.problem


def test_doctor_finds_what_the_last_sweep_found(looks: Looks) -> None:
    assert _finding(dataclasses.replace(looks.settings, health_sources=())) == ("none", "-", "")
    assert _finding(looks.settings) == ("ok", "new", "")
    looks.look()
    assert _finding(looks.settings) == ("ok", "2", "")
    looks.message = t.cast("t.Any", SiteFault("pbsnodes", "silent"))
    looks.look()
    assert _finding(looks.settings) == ("warn", "unknown", "mom: pbsnodes: silent")
    looks.message = "ERROR: disk"
    looks.look()
    assert _finding(looks.settings) == ("bad", "degrading", "mom: ERROR: disk")

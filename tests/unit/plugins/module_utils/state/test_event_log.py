# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log: who sees which line, in which form, and what the site's own file and program get of it."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import stat
import syslog
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import event_log
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.event_log import (
    DEBUG,
    ERROR,
    INFO,
    TRACE,
    WARNING,
    LogSettings,
)

HEAD = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} [^ ]+ hook\[\d+\] info prologue: "
JOB = "4711.head"


@pytest.fixture(autouse=True)
def _log_of_this_test(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    monkeypatch.setattr(event_log._Current, "calls", [])
    monkeypatch.setattr(event_log._Current, "missed", 0)
    event_log.configure(LogSettings(), program="hook", component="prologue", job="", job_level=INFO)
    yield
    event_log.configure(LogSettings(), program="vtorque", component="worker", job="", job_level=INFO)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("all is well", ["all is well"]),
        ("", [""]),
        ("\x1b[2Jgone", ["?[2Jgone"]),
        ("one\r2026-01-01T00:00:00+0000 two", ["one?2026-01-01T00:00:00+0000 two"]),
        ("one\u2028two\x85three\x0bfour", ["one?two?three?four"]),
        ("Traceback:\n  File x\n\traise\n", ["Traceback:", "  |   File x", "  |         raise"]),
        ("x\n2026-01-01T00:00:00+0000 y", ["x", "  | 2026-01-01T00:00:00+0000 y"]),
        ("not\udcff UTF-8, but \u00fc", ["not? UTF-8, but \u00fc"]),
    ],
)
def test_line_of_a_log_is_harmless_and_alone_has_a_head(text: str, lines: list[str]) -> None:
    output = event_log.format_text(text, INFO).decode()
    assert output.endswith("\n")
    first, *more = output.removesuffix("\n").split("\n")
    head = re.match(HEAD, first)
    assert head
    assert [first[head.end() :], *more] == lines
    assert not any(re.match(HEAD[:40], line) for line in more)


def test_line_names_host_program_process_level_and_component() -> None:
    line = event_log.format_text("no room", WARNING, "placement").decode()
    host = os.uname().nodename.partition(".")[0]
    assert line.split(" ", 1)[1] == f"{host} hook[{os.getpid()}] warning placement: no room\n"


def logged(levels: tuple[str, ...] = (), job_level: str = INFO) -> list[tuple[str, str]]:
    """Return which levels of two components the job's log has."""
    event_log.configure(LogSettings(levels=levels), job_level=job_level)
    stream = io.BytesIO()
    for component in ("readiness", "cache"):
        for level in event_log.LEVELS:
            event_log.write(stream, "x", level, component)
    found = [line.split()[3:5] for line in stream.getvalue().decode().splitlines()]
    return [(component.rstrip(":"), level) for level, component in found]


def both(readiness: t.Sequence[str], cache: t.Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of `logged`."""
    return [*(("readiness", level) for level in readiness), *(("cache", level) for level in cache)]


def test_component_without_a_level_logs_from_info_on() -> None:
    assert logged() == both((INFO, WARNING, ERROR), (INFO, WARNING, ERROR))


def test_component_with_a_level_logs_from_that_on_and_no_other_does() -> None:
    levels = logged(("readiness trace", "cache error"))
    assert levels == both((TRACE, DEBUG, INFO, WARNING, ERROR), (ERROR,))


def test_job_with_a_level_of_its_own_shows_what_the_site_hides() -> None:
    levels = logged(("readiness warning",), DEBUG)
    assert levels == both((DEBUG, INFO, WARNING, ERROR), (DEBUG, INFO, WARNING, ERROR))


@pytest.mark.parametrize("line", ["", "cache", "cache loud", "caches debug", "cache debug now"])
def test_level_of_no_component_is_refused_with_all_that_there_are(line: str) -> None:
    with pytest.raises(ValueError, match=r"readiness.*trace, debug, info, warning, error"):
        event_log.read_level(line)
    assert event_log.read_level(" cache  debug ") == "cache debug"


def test_file_of_the_site_gets_lines_of_all_jobs_by_the_sites_levels_alone(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "vtorque.log"
    event_log.configure(LogSettings(file=file), job=JOB, job_level=TRACE)
    event_log.write(io.BytesIO(), "a step", TRACE)
    event_log.write(io.BytesIO(), "one\ntwo", WARNING)
    event_log.add(tmp_path / "log/hooks.log", "no job", ERROR, "verdict")
    first, second, third = file.read_text().splitlines()
    assert first.endswith(f"warning prologue {JOB}: one")
    assert second == "  | two"
    assert third.endswith(f"error verdict {JOB}: no job")
    assert third in (tmp_path / "log/hooks.log").read_text()


def test_file_of_json_has_an_object_a_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "vtorque.log"
    event_log.configure(LogSettings(file=file, form=event_log.JSON), job=JOB)
    event_log.write(io.BytesIO(), "one\ntwo \u00fc\x1b", WARNING, "cache")
    event_log.write(io.BytesIO(), "three")
    first, second = map(json.loads, file.read_text().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", first.pop("time"))
    assert first == {
        "host": os.uname().nodename.partition(".")[0], "program": "hook", "pid": os.getpid(), "level": "warning",
        "component": "cache", "job": JOB, "message": "one\ntwo \u00fc?",
    }  # fmt: skip
    assert second["message"] == "three"


def test_file_that_was_renamed_is_begun_anew_and_its_readers_are_the_group(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "vtorque.log"
    event_log.configure(LogSettings(file=file))
    event_log.note(io.BytesIO(), "one")
    file.rename(tmp_path / "vtorque.log.1")
    event_log.note(io.BytesIO(), "two")
    assert file.read_text().endswith("two\n")
    assert stat.S_IMODE(file.stat().st_mode) & 0o177 == 0o040 & ~os.umask(os.umask(0o022))


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "missing"])
def test_file_that_cannot_be_written_stops_no_line_of_the_job(tmp_path: pathlib.Path, kind: str) -> None:
    file, victim = tmp_path / "a" / "vtorque.log", tmp_path / "victim"
    victim.write_text("")
    if kind != "missing":
        file.parent.mkdir()
    if kind == "link":
        file.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    event_log.configure(LogSettings(file=file))
    stream = io.BytesIO()
    began = time.monotonic()
    event_log.write(stream, "one")
    assert time.monotonic() - began < 5
    assert stream.getvalue().endswith(b"one\n")
    assert victim.read_text() == ""


def test_report_reaches_the_system_log_at_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, text: found.append((priority, text)))
    event_log.configure(LogSettings(levels=("sweep debug",)))
    event_log.report("gone \x1b", component="sweep")
    event_log.report("late", WARNING)
    event_log.report("a start", DEBUG)
    event_log.report("a start", DEBUG, "sweep")
    assert found == [
        (syslog.LOG_NOTICE, "gone ?"), (syslog.LOG_WARNING, "late"), (syslog.LOG_DEBUG, "a start"),
    ]  # fmt: skip


class SitesProgram:
    """A program of the site that writes what it gets, and as whom, below a directory that anybody may write to."""

    def __init__(self, tmp_path: pathlib.Path, then: str = "") -> None:
        # nobody must be able to reach it
        self.place = pathlib.Path(f"/tmp/vtorque-log-{os.getpid()}-{time.monotonic_ns()}")
        self.place.mkdir(mode=0o777)
        self.place.chmod(0o777)
        self.path = self.place / "program"
        self.path.write_text(
            f"#!/bin/sh\nout={self.place}/$$\n{{ id -u; id -G; pwd; echo ${event_log.MISSED}; cat; }} >$out.new\n"
            f"mv $out.new $out.got\n{then}\n"
        )
        self.path.chmod(0o755)

    def calls(self, count: int, within_s: float = 30.0) -> list[list[str]]:
        """Return what was received, once there is as much of it."""
        until = time.monotonic() + within_s
        while len(found := sorted(self.place.glob("*.got"))) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} calls"
            time.sleep(0.02)
        return [path.read_text().splitlines() for path in found]

    def remove(self) -> None:
        """Remove all of it."""
        for path in self.place.iterdir():
            path.unlink()
        self.place.rmdir()


@pytest.fixture
def program(tmp_path: pathlib.Path) -> t.Iterator[SitesProgram]:
    made = SitesProgram(tmp_path)
    yield made
    made.remove()


def test_program_of_the_site_gets_each_line_of_its_level_as_nobody(program: SitesProgram) -> None:
    event_log.configure(LogSettings(program=program.path, levels=("cache debug",)), job=JOB)
    event_log.write(io.BytesIO(), "not this", WARNING)
    event_log.write(io.BytesIO(), "it broke\nhere", ERROR, "cache")
    ((uid, groups, directory, missed, line),) = program.calls(1)
    assert (uid, groups, directory, missed) == ("65534", "65534", "/", "0")
    fields = json.loads(line)
    assert (fields["message"], fields["job"], fields["level"]) == ("it broke\nhere", JOB, "error")
    assert (fields["component"], fields["program"]) == ("cache", "hook")


def test_program_of_the_site_at_a_lower_level_gets_more(program: SitesProgram) -> None:
    event_log.configure(LogSettings(program=program.path, program_level=WARNING))
    event_log.note(io.BytesIO(), "not this")
    event_log.note(io.BytesIO(), "this", WARNING)
    assert [json.loads(call[-1])["message"] for call in program.calls(1)] == ["this"]


def test_program_of_the_site_that_hangs_holds_up_nobody_and_is_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "LOG_PROGRAM_S", 1.0)
    monkeypatch.setattr(event_log, "LOG_PROGRAM_GRACE_S", 1.0)
    program = SitesProgram(tmp_path, "echo $$ >$out.pid.new; mv $out.pid.new $out.pid; trap '' TERM; exec sleep 600")
    try:
        event_log.configure(LogSettings(program=program.path))
        began = time.monotonic()
        event_log.note(io.BytesIO(), "it broke", ERROR)
        assert time.monotonic() - began < 5
        program.calls(1)
        until = time.monotonic() + 30
        while not (found := list(program.place.glob("*.pid"))):
            assert time.monotonic() < until
            time.sleep(0.02)
        process = pathlib.Path("/proc") / found[0].read_text().strip()
        assert (process / "stat").read_text().split()[5] != str(os.getsid(0)), "it shares our session"
        while process.exists() and "Z" not in (process / "stat").read_text().split()[2]:
            assert time.monotonic() < until, "it was not ended"
            time.sleep(0.05)
    finally:
        program.remove()


def test_program_of_the_site_is_called_so_often_and_learns_how_many_lines_it_missed(
    program: SitesProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "CALLS", 2)
    event_log.configure(LogSettings(program=program.path))
    for number in range(5):
        event_log.note(io.BytesIO(), f"line {number}", ERROR)
    assert sorted(json.loads(call[-1])["message"] for call in program.calls(2)) == ["line 0", "line 1"]
    event_log._Current.calls.clear()  # a minute later
    event_log.note(io.BytesIO(), "line 5", ERROR)
    assert {(json.loads(call[-1])["message"], call[-2]) for call in program.calls(3)} == {
        ("line 0", "0"), ("line 1", "0"), ("line 5", "3"),
    }  # fmt: skip


@pytest.mark.parametrize("what", ["missing", "not executable"])
def test_program_of_the_site_that_cannot_run_stops_nothing(tmp_path: pathlib.Path, what: str) -> None:
    path = tmp_path / "program"
    if what == "not executable":
        path.write_text("")
    event_log.configure(LogSettings(program=path))
    stream = io.BytesIO()
    event_log.write(stream, "it broke", ERROR)
    assert stream.getvalue().endswith(b"it broke\n")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records are found by short ids, read with the caller's rights, and shown as far as they go."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files

from .job_records import GUEST, keep


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """Some jobs: one with two starts, an array, one of another server."""
    for key in ("4711.head.1", "4711.head.2", "47.head.1", "72-1.head.1", "72-12.head.1", "8.head.1", "8.other.1"):
        job_id, start = layout.start_of(key) or ("", 0)
        keep(tmp_path, key, {"job_id": job_id, "start": start, "user": "alice", "guests": [GUEST], "nodes": ["cn1"]})
    (tmp_path / "lost+found").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("4711", ("4711.head", 2)),
        ("4711.head", ("4711.head", 2)),
        ("4711.head.example.org", ("4711.head", 2)),
        ("47", ("47.head", 1)),
        ("72[1]", ("72[1].head", 1)),
        ("72[12].head", ("72[12].head", 1)),
        ("8.other", ("8.other", 1)),
    ],
)
def test_job_is_found_by_what_people_call_it(place: pathlib.Path, named: str, found: tuple[str, int]) -> None:
    record = job_record.find(named, place)
    assert (record.job_id, record.start) == found


def test_start_can_be_asked_for(place: pathlib.Path) -> None:
    assert job_record.find("4711", place, start=1).start == 1
    with pytest.raises(UserFault, match=r"start 3 .*there are: 1, 2"):
        job_record.find("4711", place, start=3)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("8", r"means 2 jobs.*8\.head, 8\.other"),
        ("72", r"means 2 jobs.*72\[1\]"),
        ("72[]", "means 2 jobs"),
        ("72[2]", "no record"),
        ("9", "no record"),
        ("4711.tail", "no record"),
        ("../etc", "not of the form"),
        ("\x1b[31m", r"\?\[31m: not of the form"),
        ("", "not of the form"),
    ],
)
def test_argument_that_names_no_job_is_refused(place: pathlib.Path, named: str, message: str) -> None:
    with pytest.raises(UserFault, match=message):
        job_record.find(named, place)


def test_array_means_all_its_members(place: pathlib.Path) -> None:
    assert [record.job_id for record in job_record.find_all("72[]", place)] == ["72[1].head", "72[12].head"]
    assert [record.start for record in job_record.find_all("4711", place)] == [1, 2]


def test_all_records_and_the_last_ones(place: pathlib.Path) -> None:
    found, more = job_record.read_all(place)
    assert (len(found), more) == (7, 0)
    found, more = job_record.read_all(place, last=3)
    assert (len(found), more) == (3, 4)
    assert job_record.read_all(place / "none") == ((), 0)


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "{}", '"text"', "[" * 100_000,
        {"guests": "many", "phases": [], "nodes": 3, "verdict": 7, "ended": "soon", "exit_status": True},
        {"guests": [3, {}, {"rank": "x", "seconds": [], "used": {"cpu_s": "much"}}], "phases": {"a": 1, "b": {}}},
        {"refusal": [], "lost": {"guest": 3}, "error": {"what": None, "lines": 3}, "user": {"a": 1}, "name": "\x1b[2J"},
        {"phases": {"prologue": {"began": True, "seconds": "x"}, "p": {"began": 1e300, "seconds": 1}}},
    ],
)  # fmt: skip
def test_garbage_is_unknown_and_never_a_crash(tmp_path: pathlib.Path, content: t.Any) -> None:
    keep(tmp_path, "1.head.1", content)
    record = job_record.find("1", tmp_path)
    assert record.state in ("unknown", "end not known", "refused", "guest lost")
    output = [record.user, record.name, *record.nodes, *record.reasons, record.state]
    output += [text for guest in record.guests for text in (guest.name, guest.node, guest.image, guest.address)]
    assert all(text.isprintable() for text in output)
    assert (record.began, record.ended, record.exit_status) == (None, None, None)
    assert record.phases == {}


def test_record_that_others_could_have_written_is_not_believed(tmp_path: pathlib.Path) -> None:
    (keep(tmp_path, "1.head.1", {"user": "alice"}) / "record.json").chmod(0o606)
    record = job_record.find("1", tmp_path)
    assert "not believed" in record.wrong
    assert record.user == ""


def test_record_without_a_file_yet_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "1.head.1").mkdir()
    assert job_record.find("1", tmp_path).wrong == "there is no record here, only consoles"
    (tmp_path / "1.head.1/vtorque.log").write_text("")
    assert job_record.find("1", tmp_path).wrong == "there is no record yet"


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        ({}, "end not known"),
        ({"ended": 3.0}, "finished"),
        ({"ended": 3.0, "lost": {"guest": "v"}}, "guest lost"),
        ({"ended": 3.0, "refusal": {"what": "x"}}, "refused"),
        ({"ended": 3.0, "refusal": {"what": "x"}, "verdict": {"action": "refuse"}}, "refused"),
        ({"refusal": {"what": "x"}, "verdict": {"action": "requeue"}}, "did not run: tried again"),
        ({"refusal": {"what": "x"}, "verdict": {"action": "hold"}}, "did not run: held"),
    ],
)
def test_states(raw: dict[str, t.Any], state: str) -> None:
    assert job_record.JobRecord("1.head", 1, pathlib.Path("/"), "", raw).state == state


def test_job_that_is_still_there_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "run_directory", lambda job_id, start: tmp_path / layout.job_key(job_id, start))
    record = job_record.JobRecord("1.head", 1, pathlib.Path("/"), "", {})
    assert record.state == "end not known"
    (tmp_path / "1.head.1").mkdir()
    assert record.state == "running"


def test_reasons_are_told_once_and_harmless() -> None:
    output = {"what": "no \x1b[2Jguest", "why": "it is gone", "hint": ""}
    raw = {"refusal": {**output, "lines": ["try again"]}, "error": output}
    record = job_record.JobRecord("1.head", 1, pathlib.Path("/"), "", raw)
    assert record.reasons == ("no ?[2Jguest: it is gone", "try again")


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        ({"action": "requeue", "lines": ["cn2 is set offline: vtorque: bridge", "the job is tried again"]}, ...),
        ({"action": "hold", "lines": ["the job is held: qrls 1.head releases it"]}, ...),
        ({"action": "requeue"}, []),  # of a former version
        ({"action": "refuse", "lines": ["cn2 is set offline: vtorque: bridge"]}, ["tell the administrator"]),
        ({}, ["tell the administrator"]),
    ],
)
def test_reasons_of_a_job_that_did_not_run_end_with_what_becomes_of_it(verdict: dict[str, t.Any], lines: t.Any) -> None:
    """The refusal's own lines are for who has a job that ended."""
    raw = {"refusal": {"what": "br99", "why": "is missing", "lines": ["tell the administrator"]}, "verdict": verdict}
    record = job_record.JobRecord("1.head", 1, pathlib.Path("/"), "", raw)
    assert record.reasons == ("br99: is missing", *(verdict["lines"] if lines is ... else lines))


def test_of_many_records_only_those_are_read_that_are_shown(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of the last ones, one job, and one that is not there: what is opened does not grow with what is kept."""
    opened: list[pathlib.Path] = []
    read_json = files.read_json

    def counted(path: pathlib.Path, *, limit: int) -> dict[str, t.Any]:
        opened.append(path)
        return read_json(path, limit=limit)

    monkeypatch.setattr(files, "read_json", counted)
    for number in range(10_000):
        (tmp_path / f"{number}.head.1").mkdir()
    for number in range(9_970, 10_000):
        (tmp_path / f"{number}.head.1/record.json").write_text("{}")
        os.utime(tmp_path / f"{number}.head.1", (2e9 + number,) * 2)
    found, more = job_record.read_all(tmp_path, last=25)
    assert [record.job_id for record in found] == [f"{number}.head" for number in range(9_999, 9_974, -1)]
    assert (more, len(opened)) == (9_975, 25)
    opened.clear()
    assert job_record.find("9990", tmp_path).job_id == "9990.head"
    assert opened == [tmp_path / "9990.head.1/record.json"]
    opened.clear()
    with pytest.raises(job_record.NoRecord):
        job_record.find("10000", tmp_path)
    assert opened == []


def test_member_of_an_array_is_found_by_what_its_batch_system_calls_it(tmp_path: pathlib.Path) -> None:
    """Slurm gives it a number of its own, and its user writes 33_1."""
    for number, alias in ((34, "33_1"), (35, "33_12"), (33, "33_2"), (40, "39+1")):
        keep(tmp_path, f"{number}.lab.1", {"job_id": f"{number}.lab", "start": 1, "user": "alice", "alias": alias})
    for named in ("33_1", "33[1]", "34", "34.lab"):
        assert job_record.find(named, tmp_path).job_id == "34.lab"
    assert job_record.find("39+1", tmp_path).job_id == "40.lab"
    assert [record.job_id for record in job_record.find_all("33[]", tmp_path)] == ["33.lab", "34.lab", "35.lab"]
    with pytest.raises(job_record.NoRecord):
        job_record.find("33_3", tmp_path)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records end when the site says, and never while their job is there."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import retention
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.retention import (
    DAY_S,
    LOOK_S,
    RetentionReport,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer.archive import COMING
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue

NOW = 1_000 * DAY_S


class Host:
    """Directories of a host."""

    def __init__(self, place: pathlib.Path) -> None:
        self.state_dir, self.run_dir = place / "state", place / "run"
        (self.state_dir / "records").mkdir(parents=True)

    def keep(self, name: str, age_days: float, log_age_days: float | None = None) -> pathlib.Path:
        directory = self.state_dir / "records" / name
        directory.mkdir()
        log = directory / "vtorque.log"
        log.write_text("x")
        for path, age in ((log, age_days if log_age_days is None else log_age_days), (directory, age_days)):
            os.utime(path, (NOW - age * DAY_S,) * 2)
        return directory

    def retire(self, days: int = 90, now: float = NOW) -> RetentionReport:
        return retention.retire(days, state_dir=self.state_dir, run_dir=self.run_dir, now=now)


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


def test_only_what_is_older_goes(host: Host) -> None:
    host.keep("1.head.1", 91)
    young = host.keep("2.head.1", 89)
    assert host.retire() == RetentionReport(("1.head.1",))
    assert [path.name for path in (host.state_dir / "records").glob("[0-9]*")] == [young.name]


def test_record_in_which_something_was_written_lately_stays(host: Host) -> None:
    host.keep("1.head.1", 91, log_age_days=1)
    assert host.retire().removed == ()


@pytest.mark.parametrize("place", ["run/jobs", "state/guests"])
def test_record_of_what_is_still_there_stays(host: Host, place: str) -> None:
    directory = host.keep("1.head.1", 1000)
    (host.run_dir.parent / place / "1.head.1").mkdir(parents=True)
    assert host.retire().removed == ()
    assert directory.exists()


def test_record_that_the_front_end_has_not_got_is_kept_longer_and_then_named(host: Host) -> None:
    for name, age_days in (("1.head.1", 181), ("2.head.1", 179), ("3.head.1", 91)):
        host.keep(name, age_days)
    for name in ("1.head.1", "2.head.1"):
        delivery_queue.mark_pending(name, host.state_dir)
    assert host.retire() == RetentionReport(("1.head.1", "3.head.1"), (), ("1.head.1",))
    assert [path.name for path in (host.state_dir / "spool").iterdir()] == ["2.head.1"]


def test_incomplete_transfer_is_removed(host: Host) -> None:
    coming = [host.keep(f"{COMING}{number}.head.1.77", age_days) for number, age_days in ((1, 1), (2, 0))]
    assert host.retire() == RetentionReport()
    assert [path.exists() for path in coming] == [False, True]


def test_file_that_is_no_record_is_not_removed(host: Host, tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("")
    os.utime(tmp_path / "elsewhere", (0, 0))
    records = host.state_dir / "records"
    (records / "9.head.1").symlink_to(tmp_path / "elsewhere")
    (records / "8.head.1").write_text("")
    host.keep("lost+found", 1000)
    assert host.retire() == RetentionReport()
    assert (tmp_path / "elsewhere/file").exists()
    assert {path.name for path in records.iterdir()} == {"9.head.1", "8.head.1", "lost+found", ".looked"}


def test_looks_once_an_hour(host: Host) -> None:
    host.retire()
    host.keep("1.head.1", 91)
    stamp = host.state_dir / "records/.looked"
    os.utime(stamp, (NOW, NOW))
    assert host.retire(now=NOW + LOOK_S - 1) == RetentionReport()
    assert host.retire(now=NOW + LOOK_S).removed == ("1.head.1",)


def test_clock_that_was_set_back_does_not_stop_it(host: Host) -> None:
    host.keep("1.head.1", 91)
    stamp = host.state_dir / "records/.looked"
    stamp.touch()
    os.utime(stamp, (NOW + DAY_S,) * 2)
    assert host.retire().removed == ("1.head.1",)


def test_log_that_has_grown_becomes_its_own_predecessor(host: Host) -> None:
    place = host.state_dir / "log"
    place.mkdir()
    (place / "small.log").write_text("x")
    (place / "hooks.log").write_bytes(b"x" * (retention.LOG_BYTES + 1))
    (place / "hooks.log.1").write_text("older")
    (place / "gone.log").symlink_to(place / "nothing")
    retention.bound_logs(host.state_dir)
    assert {path.name for path in place.iterdir()} == {"small.log", "hooks.log.1", "gone.log"}
    assert (place / "hooks.log.1").stat().st_size == retention.LOG_BYTES + 1


def test_host_without_records_has_nothing_to_do(tmp_path: pathlib.Path) -> None:
    assert retention.retire(1, state_dir=tmp_path / "none", run_dir=tmp_path) == RetentionReport()
    retention.bound_logs(tmp_path / "none")


def test_record_that_cannot_be_removed_is_reported(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.keep("1.head.1", 91)

    def fails(_path: pathlib.Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(retention.shutil, "rmtree", fails)
    (failed,) = host.retire().failed
    assert "1.head.1 was not removed" in failed

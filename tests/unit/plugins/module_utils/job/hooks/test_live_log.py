# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A log is shown while it grows, and whoever does not read it holds nobody up."""

from __future__ import annotations

import os
import pathlib
import subprocess
import typing as t

import inotify_simple
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import live_log


@pytest.fixture
def log(tmp_path: pathlib.Path) -> t.Iterator[t.IO[bytes]]:
    """A log as hooks open it, with a line in it."""
    path = tmp_path / "vtorque.log"
    path.write_bytes(b"earlier\n")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    with os.fdopen(fd, "ab", buffering=0) as stream:
        yield stream


def test_lines_of_whoever_writes_them_are_shown_while_it_is_written(log: t.IO[bytes]) -> None:
    reading, writing = os.pipe()
    with live_log.follow_log(log, True, writing), os.fdopen(reading, "rb") as seen:
        log.write(b"ours\n")
        assert seen.readline() == b"vtorque: ours\n"
        subprocess.run(["echo", "a program's\x1b[2J"], stdout=log, check=True)
        assert seen.readline() == b"vtorque: a program's?[2J\n"
        log.write(b"\n\nha")
        log.write(b"lf\nno end")
        assert seen.readline() == b"vtorque: half\n"
    os.close(writing)


def test_last_words_are_shown_too(log: t.IO[bytes], tmp_path: pathlib.Path) -> None:
    with (tmp_path / "shown").open("wb", buffering=0) as target:
        with live_log.follow_log(log, True, target.fileno()):
            log.write(b"x" * 10_000 + b"\nlast")
        log.write(b"later\n")
    lines = (tmp_path / "shown").read_text().splitlines()
    assert lines == [f"vtorque: {'x' * 4096}", "vtorque: last"]


def test_live_log_that_is_not_wanted_prints_nothing(log: t.IO[bytes], tmp_path: pathlib.Path) -> None:
    with (tmp_path / "shown").open("wb") as target, live_log.follow_log(log, False, target.fileno()):
        log.write(b"line\n")
    assert (tmp_path / "shown").read_bytes() == b""


def test_reader_who_does_not_read_holds_nobody_up(log: t.IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_log, "LIVE_LOG_END_S", 0.01)
    reading, writing = os.pipe()
    with live_log.follow_log(log, True, writing):
        for _line in range(100):
            log.write(b"x" * 4000 + b"\n")  # more than a pipe holds
    assert os.fstat(log.fileno()).st_size > 100 * 4000
    os.close(reading)


def test_reader_who_went_away_is_no_fault(log: t.IO[bytes]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    before = os.fstat(log.fileno()).st_size
    with live_log.follow_log(log, True, writing):
        log.write(b"line\n")
    os.close(writing)
    assert os.fstat(log.fileno()).st_size == before + len(b"line\n")


def test_live_log_without_inotify_prints_nothing(log: t.IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_words: object, **_more: object) -> t.NoReturn:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(inotify_simple, "INotify", fails)
    before = os.fstat(log.fileno()).st_size
    with live_log.follow_log(log, True):
        log.write(b"line\n")
    assert os.fstat(log.fileno()).st_size == before + len(b"line\n")

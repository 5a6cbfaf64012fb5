# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of an array that a node refused within a minute are counted, and nothing else."""

from __future__ import annotations

import fcntl
import pathlib
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict import array_brake
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict.array_brake import (
    array_of,
    record_refusal,
)


@pytest.mark.parametrize(
    ("job_id", "array"),
    [("72[1].th", "72[].th"), ("72[12].th", "72[].th"), ("72[].th", ""), ("72.th", ""), ("7[1].th", "7[].th")],
)
def test_array_of_a_member(job_id: str, array: str) -> None:
    assert array_of(job_id) == array


@pytest.mark.parametrize(
    ("refusals", "counts"),
    [
        ([("72[1].th", 0), ("72[2].th", 1), ("72[3].th", 2), ("72[4].th", 3)], [0, 1, 2, 3]),
        # a minute forgets
        ([("72[1].th", 0), ("72[2].th", 59), ("72[3].th", 61), ("72[4].th", 200)], [0, 1, 1, 0]),
        # other arrays and other jobs
        ([("72[1].th", 0), ("7[2].th", 1), ("72.th", 2), ("72[2].head", 3), ("72[2].th", 4)], [0, 0, 0, 0, 1]),
        # in one millisecond
        ([("72[1].th", 0.0006), ("72[2].th", 0.0007), ("72[3].th", 0.00071)], [0, 1, 2]),
        # the same member again is one
        ([("72[1].th", 0), ("72[1].th", 1), ("72[2].th", 2), ("72[2].th", 3)], [0, 0, 1, 1]),
    ],
)
def test_other_members_within_a_minute(
    tmp_path: pathlib.Path, refusals: list[tuple[str, float]], counts: list[int]
) -> None:
    assert [record_refusal(job_id, tmp_path, 1000.0 + when) for job_id, when in refusals] == counts


def test_brake_counts_the_first_writer_of_the_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are refused at the same moment, and one waits for the other's lock."""
    lock = fcntl.flock

    def after_another(fd: int, operation: int) -> None:
        lock(fd, operation)
        time.sleep(0.01)  # more than is rounded
        (tmp_path / array_brake.FILE).write_text(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.3f} 72[1].th\n")

    monkeypatch.setattr(array_brake.fcntl, "flock", after_another)
    assert record_refusal("72[2].th", tmp_path) == 1


def test_file_is_roots_alone_and_stays_small(tmp_path: pathlib.Path) -> None:
    for number in range(300):
        record_refusal(f"72[{number}].th", tmp_path, 1000.0 + number)
    file = tmp_path / array_brake.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_text().splitlines()) == 60


@pytest.mark.parametrize("content", ["", "nonsense\n1 2 3\n\0\xff", "1000.000 72[1].th", "99999.000 72[1].th\n"])
def test_brake_without_a_readable_file_counts_nothing(tmp_path: pathlib.Path, content: str) -> None:
    """A clock of an earlier boot among them."""
    (tmp_path / array_brake.FILE).write_text(content, encoding="latin-1")
    assert record_refusal("72[2].th", tmp_path, 1010.0) == (1 if content.startswith("1000.000") else 0)


def test_no_place_to_count_keeps_no_verdict(tmp_path: pathlib.Path) -> None:
    assert record_refusal("72[1].th", tmp_path / "missing", 1.0) == 0
    (tmp_path / array_brake.FILE).mkdir()
    assert record_refusal("72[1].th", tmp_path, 1.0) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / array_brake.FILE).symlink_to(tmp_path / "elsewhere")
    assert record_refusal("72[1].th", tmp_path / "other", 1.0) == 0
    assert not (tmp_path / "elsewhere").exists()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of the kernel: growth in 24 hours, files that vanish, numbers that begin anew, texts that are none."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import counters
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health.counters import Counter
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.health_sources import HealthSource

HOUR = counters.HOUR_S
NOW = 500_000 * HOUR
AER = "RxErr 3\nBadTLP 0\nTOTAL_ERR_COR 17\n"


def source(path: pathlib.Path, field: str = "") -> HealthSource:
    return HealthSource("counter", "one", str(path), 10, field)


def test_growth_is_that_of_the_last_24_hours() -> None:
    counter = Counter(100, {}).read(103, NOW).read(103, NOW + HOUR).read(108, NOW + 2 * HOUR)
    assert counter.in_a_day == 8
    assert counter.read(108, NOW + 23.9 * HOUR).in_a_day == 8
    assert counter.read(108, NOW + 24.1 * HOUR).in_a_day == 5
    assert counter.read(108, NOW + 27 * HOUR).in_a_day == 0


def test_number_that_was_set_back_counts_from_zero() -> None:
    counter = Counter(1000, {}).read(4, NOW)
    assert (counter.last, counter.in_a_day) == (4, 4)


def test_clock_that_was_set_back_leaves_nothing_that_stays_for_ever() -> None:
    counter = Counter(0, {}).read(9, NOW + 1000 * HOUR)
    assert counter.read(9, NOW).in_a_day == 0


@pytest.mark.parametrize(
    ("text", "field", "number"), [("7\n", "", 7), (" 0 ", "", 0), (AER, "TOTAL_ERR_COR", 17), (AER, "BadTLP", 0)]
)
def test_file_is_a_number_or_has_one_after_its_field(
    tmp_path: pathlib.Path, text: str, field: str, number: int
) -> None:
    (tmp_path / "mc0").write_text(text, "ascii")
    assert counters.read_numbers(source(tmp_path / "mc*", field)) == {str(tmp_path / "mc0"): number}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", ""),
        ("many", ""),
        ("-1", ""),
        ("1 2", ""),
        (AER, ""),
        (AER, "TOTAL"),
        (AER, "BadDLLP"),
        ("\x00\xff" * 5000, ""),
        ("9" * 30, ""),
    ],
)
def test_text_that_is_no_counter_is_reported(tmp_path: pathlib.Path, text: str, field: str) -> None:
    (tmp_path / "mc0").write_text(text, "utf-8")
    with pytest.raises(SiteFault, match="has no number"):
        counters.read_numbers(source(tmp_path / "mc0", field))


def test_file_that_is_missing_or_none_is_reported_and_no_pipe_is_waited_for(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="no such file"):
        counters.read_numbers(source(tmp_path / "mc*"))
    os.mkfifo(tmp_path / "mc0")
    with pytest.raises(SiteFault, match="no regular file"):
        counters.read_numbers(source(tmp_path / "mc*"))


def test_counters_outlive_their_file_of_json_and_garbage_is_left_out() -> None:
    found = {"/a": Counter(5, {10: 2, 11: 3})}
    data = json.loads(json.dumps(counters.write_counters(found)))
    assert counters.read_counters({**data, "/b": {"last": "x"}, "/c": 7, "/d": {"last": 1, "growth": [1]}}) == found
    assert counters.read_counters(["/a"]) == {}

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of samples: bounded whatever is written, its length stays, its resolution halves."""

from __future__ import annotations

import itertools
import json
import pathlib
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import sample_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = {"began": 1.8e9, "every_s": 30, "guests": {"vcn1-1": [0, "tag-a"], "vcn1-2": [1, "tag-b"]}}


def sample(number: int, energy: list[float] | None = None) -> dict[str, t.Any]:
    figures = [number * 1.5, None, 1 << 20, 10 * number, None, 3, 4]
    return {"at": 30.0 * number, "guests": {"vcn1-1": figures, "vcn1-2": figures}, "energy": energy}


def numbers_in(record: pathlib.Path) -> list[int]:
    lines = (record / layout.SAMPLES).read_text().splitlines()
    return [round(json.loads(line)["at"] / 30) for line in lines[1:]]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(2_000, 8_000))
def test_file_never_exceeds_its_limit_and_spans_the_whole_time(count: int, limit: int) -> None:
    place = pathlib.Path(tempfile.mkdtemp())
    try:
        one = sample_file.SampleFile(place, HEAD, None, limit)
        for number in range(count):
            one.append(sample(number), last=number == count - 1)
            assert (place / layout.SAMPLES).stat().st_size <= limit
        found = numbers_in(place)
        assert (found[0], found[-1]) == (0, count - 1)
        steps = {after - before for before, after in itertools.pairwise(found[:-1])}
        assert len(steps) <= 1, "evenly spaced, but for the last"
    finally:
        for path in place.glob("*"):
            path.unlink()
        place.rmdir()


def test_sample_larger_than_a_quarter_of_the_file_is_left_out(tmp_path: pathlib.Path) -> None:
    one = sample_file.SampleFile(tmp_path / "r", HEAD, None, 2000)
    one.append({"at": 0.0, "guests": {f"v{n}": [0.0] * 7 for n in range(100)}, "energy": None})
    one.append(sample(1))
    assert numbers_in(tmp_path / "r") == [1]


def test_half_a_file_after_a_full_disk_is_no_sample_and_the_next_is_written(tmp_path: pathlib.Path) -> None:
    one = sample_file.SampleFile(tmp_path, HEAD, None)
    one.append(sample(0))
    (tmp_path / layout.SAMPLES).unlink()
    with pytest.raises(OSError, match="No such file"):
        one.append(sample(1))


@pytest.mark.parametrize(
    ("others", "how", "joules"), [([], series.MEASURED, 90.0), (["5.head"], series.ESTIMATED, 30.0)]
)
def test_series_of_a_node_is_what_was_written(
    tmp_path: pathlib.Path, others: list[str], how: str, joules: float
) -> None:
    files.write(tmp_path / layout.ALONE, json.dumps({"others": others}))
    one = sample_file.SampleFile(tmp_path, HEAD, None)
    for number in range(3):
        one.append(sample(number, [30.0 * (number + 1), 10.0 * (number + 1)]))
    found = sample_file.read_series(tmp_path, "cn1")
    assert found is not None
    assert (found.energy_j, found.energy_how, found.node, found.every_s) == (joules, how, "cn1", 30)
    assert [(guest.name, guest.rank, guest.tag) for guest in found.guests] == [
        ("vcn1-1", 0, "tag-a"),
        ("vcn1-2", 1, "tag-b"),
    ]
    assert series.read_points(found.guests[1].points)[2] == (60.0, (3.0, None, 1 << 20, 20.0, None, 3.0, 4.0))


def test_node_that_may_not_have_been_alone_estimates(tmp_path: pathlib.Path) -> None:
    one = sample_file.SampleFile(tmp_path, HEAD, None)
    one.append(sample(0, [30.0, 10.0]))
    found = sample_file.read_series(tmp_path, "cn1")
    assert found is not None
    assert (found.energy_how, found.energy_j) == (series.ESTIMATED, 10.0)


@pytest.mark.parametrize(
    "text", ["", "{}\n", "[]\n[]\n", '{"began": 1}\n', "\xff", '{"began":1,"every_s":1,"guests":[]}\n3\n']
)
def test_file_that_is_none_gives_no_series(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / layout.SAMPLES).write_text(text, encoding="latin-1")
    assert sample_file.read_series(tmp_path, "cn1") is None
    assert sample_file.read_series(tmp_path / "nowhere", "cn1") is None

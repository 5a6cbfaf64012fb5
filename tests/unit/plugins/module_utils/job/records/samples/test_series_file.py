# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Series of all nodes of a job in one file: joined, strict, and handed over to a front end that believes nobody."""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.samples import series_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import transfer_format
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, to_dict


def of_node(node: str, how: str = series.MEASURED, joules: float = 100.0) -> series.NodeSeries:
    guest = series.GuestSeries(f"v{node}-1", 0, "tag", "0 1 - 1024 1 2 3 4;30 2 0.5 2048 1 2 3 4")
    return series.NodeSeries(node, 1.8e9, 30, joules, how, (guest,))


def hand_over(steps: pathlib.Path, one: series.NodeSeries) -> None:
    text = json.dumps({layout.StepFile.SERIES: [to_dict(one)]})
    files.write(steps / layout.StepFile.SERIES.of(one.node), text)


def test_series_of_all_nodes_are_in_one_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "record").mkdir()
    report = [of_node("cn1"), of_node("cn2", series.ESTIMATED, 50.25)]
    for one in report:
        hand_over(tmp_path, one)
    files.write(tmp_path / layout.StepFile.SERIES.of("cn3"), "garbage")
    nodes = series_file.write_series(tmp_path, tmp_path / "record", None)
    assert list(nodes) == report
    found = series_file.read_series(tmp_path / "record")
    assert found is not None
    assert list(found.nodes) == report
    energy = series_file.energy_of(nodes)
    assert energy == {"cn1": {"joules": 100.0, "how": "measured"}, "cn2": {"joules": 50.2, "how": "estimated"}}
    record = {"version": schema.VERSION, "job_id": "7.head", "start": 1, "energy": energy}
    schema.check(json.dumps(record).encode(), "7.head", 1)


def test_nodes_that_cannot_measure_energy_are_absent() -> None:
    assert series_file.energy_of([of_node("cn1", "", series.NOT_KNOWN)]) == {}


def test_job_without_samples_has_no_file(tmp_path: pathlib.Path) -> None:
    assert series_file.write_series(tmp_path, tmp_path, None) == ()
    assert list(tmp_path.iterdir()) == []
    assert series_file.read_series(tmp_path) is None


def test_series_travel_with_the_record(tmp_path: pathlib.Path) -> None:
    files.write(tmp_path / layout.RECORD, json.dumps({"version": 1, "job_id": "7.head", "start": 1}))
    (tmp_path / layout.LOG).write_text("log\n")
    for slot in range(40):
        (tmp_path / f"vcn1-{slot}{layout.CONSOLE_END}").write_text("end\n")
    hand_over(tmp_path, of_node("cn1"))
    series_file.write_series(tmp_path, tmp_path, None)
    parcel = transfer_format.pack("7.head", 1, tmp_path)
    assert len(parcel.files) == transfer_format.MOST_FILES
    assert transfer_format.staying(tmp_path) == 8
    stream = io.BytesIO(transfer_format.format_parcel(parcel))
    assert transfer_format.read(stream, transfer_format.Announcement("7.head", 1)) == parcel


def changed(**changes: t.Any) -> bytes:
    data = json.loads(json.dumps(to_dict(series.JobSeries(1, (of_node("cn1"),)))))
    data["nodes"][0] |= changes
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"version": 2, "nodes": []}', changed(node="a/b"), changed(more=1), changed(energy_how="no"),
     changed(began="1"), changed(guests=[{}]), b"[" * 5000, b"\xff", b" " * (series_file.LIMIT + 1)],
)  # fmt: skip
def test_front_end_takes_no_other_form(content: bytes) -> None:
    with pytest.raises(FormError):
        series_file.check_series(content)
    record = json.dumps({"version": 1, "job_id": "7.head", "start": 1}).encode()
    parcel = transfer_format.Parcel("7.head", 1, {layout.RECORD: record, layout.SERIES: content})
    stream = io.BytesIO(transfer_format.format_parcel(parcel))
    with pytest.raises(FormError):
        transfer_format.read(stream, transfer_format.Announcement("7.head", 1))


def test_file_of_a_job_on_many_nodes_stays_within_its_limit(tmp_path: pathlib.Path) -> None:
    (tmp_path / "record").mkdir()
    wide = ";".join(["999999 999999.999 999999.999 1099511627776 1 2 3 4"] * series.MOST_POINTS)
    one = of_node("cn1")
    for number in range(120):
        guests = tuple(series.GuestSeries(f"vcn{number}-{slot}", slot, "t" * 200, wide) for slot in range(4))
        hand_over(tmp_path, dataclasses.replace(one, node=f"cn{number}", guests=guests))
    series_file.write_series(tmp_path, tmp_path / "record", None)
    assert 100_000 < (tmp_path / "record" / layout.SERIES).stat().st_size <= series_file.LIMIT
    assert series_file.read_series(tmp_path / "record") is not None

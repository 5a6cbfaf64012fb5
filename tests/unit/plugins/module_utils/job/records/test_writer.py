# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written of a start is a record, and none is lost because it is none."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record, schema, writer
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import transfer_format


def write(directory: pathlib.Path, record: dict[str, t.Any]) -> str:
    return writer.write(directory, "7.head", 2, record, reader_uid=None)


def test_record_is_what_a_front_end_takes(tmp_path: pathlib.Path) -> None:
    record = {"user": "alice", "nodes": ["cn1"], "exit_status": 0, "version": 9, "job_id": "8.head"}
    assert write(tmp_path, record) == ""
    content = transfer_format.pack("7.head", 2, tmp_path).files["record.json"]
    found = schema.check(content, "7.head", 2)
    assert found == {**record, "version": 1, "job_id": "7.head", "start": 2}
    assert writer.read_former(tmp_path) == found


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"surplus": 1}, "holds 'surplus'"),
        ({"user": 7}, "user is not a text"),
        ({"ended": float("nan")}, "is not JSON"),
        ({"left": ["x" * 50_000] * 30}, "is longer than"),
    ],
)
def test_record_out_of_form_is_written_and_said_to_be(
    tmp_path: pathlib.Path, record: dict[str, t.Any], message: str
) -> None:
    wrong = write(tmp_path, {"nodes": ["cn1"], **record})
    assert message in wrong
    assert "kept on this node alone" in wrong
    assert json.loads((tmp_path / "record.json").read_text())["nodes"] == ["cn1"]


def test_start_without_a_record_has_none_and_a_broken_one_is_said_to_be(tmp_path: pathlib.Path) -> None:
    assert writer.read_former(tmp_path) == {}
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(VTorqueError):
        writer.read_former(tmp_path)


def test_reader_shows_a_record_out_of_form_as_far_as_it_goes(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "7.head.2"
    directory.mkdir()
    write(directory, {"user": "alice", "guests": "none"})
    record = job_record.find("7", tmp_path)
    assert (record.user, record.guests) == ("alice", ())

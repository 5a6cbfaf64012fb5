# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record on its way to the front end: bounded, strict, and no path in it."""

from __future__ import annotations

import io
import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import transfer_format
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError

RECORD = json.dumps({"version": 1, "job_id": "72[1].head", "start": 2}).encode()
CONSOLE = "vcn1-1.console.log"


def wire(files: t.Sequence[tuple[t.Any, t.Any]] | None = None, rest: bytes = RECORD, **changes: t.Any) -> bytes:
    """What would come over the connection."""
    sizes = (
        [["record.json", len(RECORD)]]
        if files is None
        else [one if isinstance(one, str) else list(one) for one in files]
    )
    first = {"version": 2, "job_id": "72[1].head", "start": 2}
    first |= {key: one for key, one in changes.items() if key in first or key == "more"}
    second = {"files": sizes, **{key: one for key, one in changes.items() if key not in first}}
    lines = [{key: one for key, one in line.items() if one != "left out"} for line in (first, second)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines) + rest


def read(data: bytes) -> transfer_format.Parcel:
    stream = io.BytesIO(data)
    return transfer_format.read(stream, transfer_format.read_announcement(stream))


def test_packed_record_is_unpacked_as_it_was(tmp_path: pathlib.Path) -> None:
    (tmp_path / "record.json").write_bytes(RECORD)
    (tmp_path / "vtorque.log").write_bytes(b"a" * 10 + b"z" * transfer_format.TEXT_LIMIT)
    (tmp_path / CONSOLE).write_bytes(b"Linux\xff\n")
    (tmp_path / "used.json").write_bytes(b"{}")
    parcel = read(
        transfer_format.format_announcement("72[1].head", 2)
        + transfer_format.format_parcel(transfer_format.pack("72[1].head", 2, tmp_path))
    )
    assert parcel.files == {
        "record.json": RECORD, "vtorque.log": b"z" * transfer_format.TEXT_LIMIT, CONSOLE: b"Linux\xff\n"
    }  # fmt: skip


def test_nothing_is_handed_over_without_a_record_or_by_a_link(tmp_path: pathlib.Path) -> None:
    with pytest.raises(VTorqueError):
        transfer_format.pack("1.head", 1, tmp_path)
    (tmp_path / "record.json").symlink_to("/etc/passwd")
    with pytest.raises(VTorqueError):
        transfer_format.pack("1.head", 1, tmp_path)


BAD: dict[str, bytes] = {
    "nothing": b"",
    "no line": b"{" * 100,
    "a list": b"[]\n",
    "nested without end": b"[" * 10_000 + b"\n",
    "an older version": wire(version=1),
    "a later version": wire(version=3),
    "a key too many": wire(more=1),
    "a key too many with the files": wire(other=1),
    "only the announcement": transfer_format.format_announcement("72[1].head", 2),
    "a key missing": wire(start="left out"),
    "a path for a job": wire(job_id="../../etc"),
    "a start below": wire(start=-1),
    "a start that is none": wire(start=True),
    "no files": wire(files=[]),
    "files in a word": wire(files="x" * 3),
    "no record": wire(files=[("vtorque.log", 0)], rest=b""),
    "a path": wire(files=[("../record.json", len(RECORD))]),
    "a file of another name": wire(files=[("record.json", len(RECORD)), ("authorized_keys", 0)]),
    "a console of a path": wire(files=[("record.json", len(RECORD)), ("a/b.console.log", 0)]),
    "a file twice": wire(files=[("record.json", len(RECORD))] * 2, rest=RECORD * 2),
    "a name that is none": wire(files=[(3, 3)]),
    "a size that is none": wire(files=[("record.json", "3")]),
    "a size below": wire(files=[("record.json", -1)]),
    "a record too long": wire(files=[("record.json", schema.LIMIT + 1)]),
    "a log too long": wire(files=[("record.json", len(RECORD)), ("vtorque.log", transfer_format.TEXT_LIMIT + 1)]),
    "too many files": wire(files=[(f"v{i}.console.log", 0) for i in range(transfer_format.MOST_FILES + 1)]),
    "an end too early": wire(rest=RECORD[:-1]),
    "more than it says": wire(rest=RECORD + b"x"),
    "a record of another job": wire(rest=RECORD.replace(b"72", b"73")),
    "a record that is none": wire(files=[("record.json", 4)], rest=b"null"),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(FormError):
        read(data)


def test_good_one_among_them_is_taken() -> None:
    assert read(wire()).start == 2


def test_no_more_is_read_than_may_come() -> None:
    """A line without an end fills no memory."""

    class Endless(io.RawIOBase):
        taken = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: t.Any) -> int:
            self.taken += len(buffer)
            buffer[:] = b"{" * len(buffer)
            return len(buffer)

    endless = Endless()
    with pytest.raises(FormError):
        transfer_format.read_announcement(io.BufferedReader(endless))
    assert endless.taken <= 2 * transfer_format.LINE_LIMIT

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record that another host hands over is of the form, or nothing of it is kept."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError

GUEST = {
    "rank": 0, "name": "vcn1-1", "node": "cn1", "address": "10.77.0.194", "mac": "52:54:00:00:01:01",
    "image": "tiny@3", "vcpus": 1, "ram_mib": 192, "seconds": {"disk": 0.1444, "address": 4.1},
    "used": {"cpu_s": 4.53, "ram_peak_bytes": 306733056, "read_bytes": 428544},
}  # fmt: skip
RECORD: dict[str, t.Any] = {
    "version": 1, "job_id": "7.head", "start": 2, "user": "alice", "nodes": ["cn1"], "bare": [], "guests": [GUEST],
    "phases": {"plan": {"began": 1795328004.7, "seconds": 0.0081}, "present.cn1": {"began": 1795328004, "seconds": 7}},
    "error": None, "ended": 1795328014.68, "name": "STDIN", "request": {"vcpus": "2"}, "exit_status": -11,
    "left": [],
}  # fmt: skip
"""As the epilogue of a job in the lab closed it."""
ALSO: dict[str, t.Any] = {
    "refusal": {"job_id": "7.head", "start": 2, "fault": "user", "what": "w", "why": "", "hint": "", "lines": ["a"]},
    "verdict": {"fault": "node", "action": "requeue", "try": 1, "of": 3, "node": "cn1", "note": "vtorque: disk"},
    "lost": {"guest": "vcn1-1", "node": "cn1", "reason": "crashed", "console": "", "when": 1795328014.5},
    "vm_epilogue": {"path": "/home/a/x", "ended": "with status 3", "began": 1.5, "seconds": 2.5},
    "error": {"fault": "node", "what": "w", "why": "y", "hint": "", "cause": "disk"},
    "ended": None,
    "phases": {"prologue": {"began": 1795328004.7, "seconds": 20.5, "given_back": 60}},
    "left": ["guests of the job: vcn1-1 is still there"],
}


def check(record: t.Mapping[str, t.Any] | bytes) -> dict[str, t.Any]:
    content = record if isinstance(record, bytes) else json.dumps(record).encode()
    return schema.check(content, "7.head", 2)


def test_record_of_an_epilogue_is_of_the_schema() -> None:
    assert check(RECORD) == RECORD
    assert check({**RECORD, **ALSO}) == {**RECORD, **ALSO}
    least = {"version": 1, "job_id": "7.head", "start": 2}  # the prologue did nothing, and its record was lost
    assert check(least) == least


BAD: dict[str, t.Any] = {
    "nothing": b"",
    "no text": b"\xff\xfe{\x00}\x00",
    "no object": b"[]",
    "nested without end": b"[" * 100_000,
    "a key twice": b'{"version": 1, "job_id": "7.head", "start": 2, "start": 2}',
    "no number": b'{"version": 1, "job_id": "7.head", "start": 2, "ended": NaN}',
    "no end": b'{"version": 1, "job_id": "7.head", "start": 2, "ended": 1e999}',
    "another version": {**RECORD, "version": 2},
    "another job": {**RECORD, "job_id": "8.head"},
    "another start": {**RECORD, "start": 1},
    "truth for a start": {**RECORD, "start": True},
    "an unknown key": {**RECORD, "owner": "root"},
    "an unknown key of a guest": {**RECORD, "guests": [{**GUEST, "password": "x"}]},
    "a number for a name": {**RECORD, "name": 3},
    "a long name": {**RECORD, "name": "x" * (schema.TEXT + 1)},
    "many nodes": {**RECORD, "nodes": ["n"] * (schema.MANY + 1)},
    "nodes in a word": {**RECORD, "nodes": "cn1"},
    "guests in an object": {**RECORD, "guests": {"0": GUEST}},
    "a list in a request": {**RECORD, "request": {"img": ["a"]}},
    "a path for a key": {**RECORD, "request": {"../img": "a"}},
    "words for seconds": {**RECORD, "phases": {"plan": {"began": 1, "seconds": "2"}}},
    "a large use": {**RECORD, "guests": [{**GUEST, "used": {"cpu_s": 10**30}}]},
    "a status that is none": {**RECORD, "exit_status": 1.5},
    "nested facts": {**RECORD, "lost": {"reason": {"a": 1}}},
    "many facts": {**RECORD, "verdict": {str(i): 1 for i in range(schema.FACTS + 1)}},
    "no refusal": {**RECORD, "refusal": None},
}


@pytest.mark.parametrize("record", BAD.values(), ids=BAD)
def test_another_form_is_refused(record: t.Any) -> None:
    with pytest.raises(FormError):
        check(record)

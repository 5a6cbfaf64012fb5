# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a record holds that another host or an earlier version left: it is of the form, or nothing of it is kept.

Seen to fail: with a check of records that takes keys which it does not know.
"""

from __future__ import annotations

import json
import typing as t

import hypothesis.strategies as st
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError
from hypothesis import given

from .inputs import TEXTS, as_bytes, check_message, damaged, spoiled, tried

GUEST = {
    "rank": 0, "name": "vcn1-1", "node": "cn1", "address": "10.77.0.194", "mac": "52:54:00:00:01:01",
    "image": "tiny@3", "vcpus": 1, "ram_mib": 192, "seconds": {"disk": 0.1444}, "used": {"cpu_s": 4.53},
}  # fmt: skip
RECORD: dict[str, t.Any] = {
    "version": 1, "job_id": "7.head", "start": 2, "user": "alice", "nodes": ["cn1"], "bare": [], "guests": [GUEST],
    "phases": {"plan": {"began": 1795328004.7, "seconds": 0.0081}}, "error": None, "ended": 1795328014.68,
    "name": "STDIN", "request": {"vcpus": "2"}, "exit_status": -11, "left": [],
}  # fmt: skip


def checked(content: bytes) -> dict[str, t.Any] | None:
    """The record; None: it was refused."""
    try:
        return schema.check(content, "7.head", 2)
    except FormError as error:
        check_message(error)
        return None


@tried
@given(spoiled(RECORD))
def test_any_record_is_of_this_start_and_of_the_form_or_refused(record: t.Any) -> None:
    found = checked(as_bytes(record))
    if found is not None:
        assert (found["job_id"], found["start"], found["version"]) == ("7.head", 2, 1)
        assert set(found) <= set(schema.FORM)
        assert json.loads(json.dumps(found, allow_nan=False)) == found


@tried
@given(damaged(as_bytes(RECORD)))
def test_any_damaged_record_is_read_or_refused(content: bytes) -> None:
    checked(content)


@tried
@given(st.one_of(TEXTS, st.text(st.sampled_from("0123456789[].-ab/"), max_size=20)), st.integers(0, 2**31))
def test_any_job_id_is_one_name_of_one_start_or_refused(job_id: str, start: int) -> None:
    try:
        key = layout.job_key(job_id, start)
    except VTorqueError as error:
        check_message(error)
    else:
        assert "/" not in key
        assert key not in (".", "..")
        assert layout.start_of(key) == (job_id, start)

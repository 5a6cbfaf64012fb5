# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever stands in a job's attribute `x`, behind `-vm` or in a script: a request, or an error of the user's.

Seen to fail: with a message about a key that is given twice which showed the first value as it was.
"""

from __future__ import annotations

import base64
import json
import typing as t

import hypothesis.strategies as st
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import keys, request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.value_types import encode_value
from hypothesis import given

from .inputs import JSON, TEXTS, as_bytes, check_message, spoiled, tried

GOOD = {
    "v": 1, "k": {"img": "tiny@3", "ram": "2G", "vcpus": "2", "vm_prologue": "/home/a/p", "pci": "gpu:1"},
    "s": "/bin/bash", "d": {"vm_prologue": "0f" * 32}, "l": {"show": True, "debug": False},
}  # fmt: skip
WORDS = ["2", "4G", "yes", "/home/a", "tiny", "kvm", "gpu:1", "0"]
ITEMS = st.tuples(
    st.one_of(st.sampled_from([*keys.KEYS, "IMG", "imgs"]), TEXTS),
    st.sampled_from(["=", "", " = "]),
    st.one_of(TEXTS, st.sampled_from(WORDS)),
).map("".join)
LINES = st.lists(ITEMS, max_size=4).map(",".join)


def part(data: bytes) -> str:
    return request.PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(attribute: str) -> request.Request | None:
    """The request; None: none, or refused in words that can be shown."""
    try:
        return request.Request.decode(attribute)
    except UserFault as error:
        check_message(error)
        return None


def require_same_again(found: request.Request | None) -> None:
    """What was read means the same when it is written and read again; None: it was refused."""
    if found is None:
        return
    again = decoded(found.encode())
    assert again is not None
    assert (again.values, again.shell, again.digests, again.log) == (
        found.values,
        found.shell,
        found.digests,
        found.log,
    )


@tried
@given(st.one_of(TEXTS, TEXTS.map(request.PREFIX.__add__), st.binary(max_size=60).map(part),
                 st.lists(TEXTS, max_size=3).map(";".join)))  # fmt: skip
def test_any_attribute_is_a_request_or_refused(attribute: str) -> None:
    require_same_again(decoded(attribute))


@tried
@given(spoiled(GOOD))
def test_request_decoded_and_encoded_again_is_the_same(wire: t.Any) -> None:
    found = decoded(part(as_bytes(wire)))
    require_same_again(found)
    if found is not None:
        assert set(found.values) <= set(wire["k"])


@tried
@given(st.text(st.sampled_from('{}[]",:01vks\\u0e9-+.'), max_size=60))
def test_any_text_like_json_is_a_request_or_refused(text: str) -> None:
    require_same_again(decoded(part(text.encode())))


@tried
@given(LINES, LINES)
def test_any_words_are_read_or_all_faults_told_and_the_command_line_wins(line: str, script: str) -> None:
    found = []
    for text, origin in ((line, "command line"), (script, "script")):
        try:
            found.append(request.parse([(text, origin)]))
        except request.RequestErrors as error:
            check_message(error)
            return
    merged = found[0].merged_over(found[1])
    assert dict(merged.values) == {**found[1].values, **found[0].values}
    again = request.parse([(f"{key}={encode_value(value)}", "") for key, value in merged.values.items()])
    assert dict(again.values) == dict(merged.values)


@tried
@given(JSON)
def test_any_json_in_place_of_a_wire_is_refused(wire: t.Any) -> None:
    assert decoded(part(json.dumps(wire).encode())) is None

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A text of JSON from anybody is read as far as its bound, or refused by name."""

from __future__ import annotations

import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, parse_json


@pytest.mark.parametrize("text", ['{"a": 1}', b'{"a": 1}'])
def test_text_of_the_bound_is_read(text: str | bytes) -> None:
    assert parse_json(text, 8, "the answer") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1}', "the answer: is longer than 7 characters: not read"),
        (b'{"a": 1}', "the answer: is longer than 7 bytes: not read"),
        ("{a: 1}", "the answer: is not JSON: Expecting property name"),
        (b"\xff\xff", "the answer: is not JSON"),
    ],
)
def test_text_that_is_longer_or_no_json_is_refused_by_name(text: str | bytes, why: str) -> None:
    with pytest.raises(FormError, match=re.escape(why)):
        parse_json(text, 7, "the answer")


def test_text_of_many_brackets_ends_no_reader() -> None:
    with pytest.raises(FormError, match="is not JSON"):
        parse_json("[" * 100_000, 1 << 20, "the answer")

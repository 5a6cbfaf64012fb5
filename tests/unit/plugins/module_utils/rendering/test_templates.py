# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What templates write is read as what it was by libyaml, and by the reader of PyYAML, which is cloud-init's."""

from __future__ import annotations

import datetime
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file, policy_writer
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import as_yaml

TEXTS = [
    "\U0001f600",
    "\U00010000/\U0010ffff",
    "\u00e9\uffee",
    "\x7f\x85\u2028\n\t\0",
    "\\ud83d\\ude00",
    '"\\"',
    "\\\U0001f600",
]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize("text", TEXTS)
def test_text_is_the_same_for_each_reader_of_yaml(text: str, loader: t.Any) -> None:
    written = as_yaml({"path": [text]})
    assert written.isascii()
    assert "\n" not in written
    assert yaml.load(written, Loader=loader) == {"path": [text]}


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize("number", [1e16, -1e300, 1e-7, 1.5e-7, 1.5e300, 0.1, -0.0, 12.0, float("inf"), float("-inf")])
def test_number_is_the_same_for_each_reader_of_yaml(number: float, loader: t.Any) -> None:
    """`1e+16`, as Python and JSON write it, is a text to PyYAML."""
    read = yaml.load(as_yaml({"a": [number, "1e+16"]}), Loader=loader)
    assert read == {"a": [number, "1e+16"]}
    assert isinstance(read["a"][0], float)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize("key", ["k" * 1030, "\U0001f600" * 103, '": ' * 400])
def test_long_key_is_the_same_for_each_reader_of_yaml(key: str, loader: t.Any) -> None:
    assert yaml.load(as_yaml([{key: {key: key}}]), Loader=loader) == [{key: {key: key}}]


def test_half_of_a_character_is_refused() -> None:
    with pytest.raises(SiteFault, match=r"U\+DC80"):
        as_yaml({"a": "\udc80"})


def test_value_without_a_form_in_json_is_converted_or_refused() -> None:
    day = datetime.date(2026, 1, 2)
    assert as_yaml([day], str) == '["2026-01-02"]'
    with pytest.raises(TypeError):
        as_yaml([day])


def test_configuration_with_a_character_beyond_u_ffff_is_written_as_it_was_read() -> None:
    found = policy_file.parse("regex_fe: '\U0001f600'\n", "x.yml").policy
    assert found.regex_fe == "\U0001f600"
    assert policy_file.parse(policy_writer.policy_text({"regex_fe": found.regex_fe}), "x.yml").policy == found

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What YAML made of a configuration is kept, and is never another's word, of another text, or another thing."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file, policy_parser
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_parser import (
    NotEntries,
    read_compiled,
    read_entries,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TEXT = "bridge: br7\nmac_prefix: 52:54:00\nparallel: no\nhost_os_core_count: 0x2\nntp_server_1: [a, 1, 2.5]\n"


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "policy.json"


def unread(_text: str) -> list[policy_parser.Entry]:
    raise AssertionError("the text was read again")


def test_configuration_in_the_cache_is_not_parsed_again(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_compiled(TEXT, place)
    assert first == read_entries(TEXT)
    assert [(entry.name, entry.raw, entry.line) for entry in first][3:] == [
        ("host_os_core_count", 2, 4),
        ("ntp_server_1", ["a", 1, 2.5], 5),
    ]
    assert place.stat().st_mode & 0o777 == 0o400
    monkeypatch.setattr(policy_parser, "read_entries", unread)
    assert read_compiled(TEXT, place) == first
    with pytest.raises(AssertionError, match="read again"):
        read_compiled(f"{TEXT}domain: x\n", place)


@pytest.mark.parametrize(
    "spoiled",
    ["", "{", "[]", '{"form": 2}', '{"form": 1, "text": TEXT, "entries": []}',
     '{"form": 2, "text": TEXT, "entries": [{"nobody": 1}]}', '{"form": 2, "text": TEXT, "entries": 7}'],
)  # fmt: skip
def test_configuration_changed_since_is_parsed_again(place: pathlib.Path, spoiled: str) -> None:
    wanted = read_compiled(TEXT, place)
    place.chmod(0o600)
    place.write_text(spoiled.replace("TEXT", json.dumps(TEXT)))
    assert read_compiled(TEXT, place) == wanted
    assert json.loads(place.read_text())["entries"][0]["name"] == "bridge"


@pytest.mark.parametrize(("mode", "compiled_mode"), [(0o644, 0o444), (0o640, 0o400), (0o600, 0o400)])
def test_cache_may_be_read_by_those_who_may_read_the_configuration(
    tmp_path: pathlib.Path, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mode: int, compiled_mode: int
) -> None:
    path = tmp_path / "vtorque.yml"
    path.write_text(TEXT.replace("mac_prefix: 52:54:00\nparallel: no\n", "").partition("ntp_")[0])
    path.chmod(mode)
    monkeypatch.setattr(policy_file, "PATH", path)
    monkeypatch.setattr(policy_file, "KEPT", place)
    policy = policy_file.load(path)
    assert place.stat().st_mode & 0o777 == compiled_mode
    monkeypatch.setattr(policy_parser, "read_entries", unread)
    assert policy_file.load(path) == policy


def test_cache_that_others_can_write_is_not_used(place: pathlib.Path) -> None:
    wanted = read_compiled(TEXT, place)
    place.write_text(place.read_text().replace('"raw": "br7"', '"raw": "br8"'))
    assert read_compiled(TEXT, place)[0].raw == "br8"  # root may say so
    place.chmod(0o666)
    assert read_compiled(TEXT, place) == wanted
    link = place.with_name("link.json")
    link.symlink_to(place)
    assert read_compiled(TEXT, link) == wanted


def test_no_directory_and_no_room_are_no_fault(tmp_path: pathlib.Path) -> None:
    assert read_compiled(TEXT, tmp_path / "none" / "policy.json") == read_entries(TEXT)
    (tmp_path / "policy.json").mkdir()
    assert read_compiled(TEXT, tmp_path / "policy.json") == read_entries(TEXT)


@pytest.mark.parametrize(
    "value", ["2026-11-22", ".nan", ".inf", "0x" + "f" * 6000, "!!binary aGVsbG8=", "2026-11-22 10:00:00"]
)
def test_value_without_a_form_in_json_is_not_cached(place: pathlib.Path, value: str) -> None:
    for _again in range(2):
        (stored,), (wanted,) = read_compiled(f"bridge: {value}\n", place), read_entries(f"bridge: {value}\n")
        assert (type(stored.raw), stored.text, stored.wrong) == (type(wanted.raw), wanted.text, wanted.wrong)
    assert not place.exists() or "!!" in value


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=30), max_size=4), st.booleans())
def test_kept_is_what_is_read(tmp_path: pathlib.Path, arguments: dict[str, str], quoted: bool) -> None:
    """Of whatever text: the same entries with their types, or the same complaint."""
    text = "".join(f"{json.dumps(key)}: {json.dumps(value) if quoted else value}\n" for key, value in arguments.items())
    place = tmp_path / "policy.json"
    place.unlink(missing_ok=True)
    try:
        wanted = repr(read_entries(text))
    except NotEntries as error:
        with pytest.raises(NotEntries, match=f"^{re.escape(str(error))}$"):
            read_compiled(text, place)
    else:
        assert repr(read_compiled(text, place)) == wanted
        assert repr(read_compiled(text, place)) == wanted

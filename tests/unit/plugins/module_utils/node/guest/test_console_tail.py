# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node tells of the consoles of guests that have gone."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.console_tail import LIMIT, read_ends
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import from_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import GuestConsole


def test_short_console_is_told_whole(tmp_path: pathlib.Path) -> None:
    (tmp_path / "vn1-2.console.log").write_text("one\ntwo ü\n")
    (tmp_path / "vn1-1.console.log").write_text("")
    (tmp_path / "record.json").write_text("{}")
    assert read_ends(tmp_path) == (GuestConsole("vn1-2", "one\ntwo ü\n"),)
    assert read_ends(tmp_path / "none") == ()


@pytest.mark.parametrize("text", ["plain", '"\\', "\ufffd", "\U0001f600", "x" * 2_000_000], ids=ascii)
@pytest.mark.parametrize("count", [1, 4, 100])
def test_long_one_is_told_from_the_beginning_of_a_line_and_all_fit_into_an_answer(
    tmp_path: pathlib.Path, text: str, count: int
) -> None:
    """Whatever a guest writes: an answer that is too long would not be read at all."""
    lines = "".join(f"{text} {line}\n" for line in range(1 if len(text) > 1000 else 100_000))
    for number in range(count):
        (tmp_path / f"vn1-{number}.console.log").write_text(lines)
    ends = read_ends(tmp_path)
    report = [dataclasses.asdict(one) for one in ends]
    assert [from_dict(GuestConsole, one) for one in report] == list(ends)
    assert len(ends) == count
    assert 0 < len(json.dumps([one["end"] for one in report])) <= LIMIT + 4 * count
    for one in ends:
        assert lines.endswith(one.end)
        assert one.end.startswith(text) or len(text) > 1000


def test_link_is_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there").write_text("secret\n")
    (tmp_path / "vn1-1.console.log").symlink_to("there")
    assert read_ends(tmp_path) == ()

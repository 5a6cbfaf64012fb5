# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that moved while their job ran stand in its record, wherever they were, and that is handed over."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import moves, schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.moves import note_moved
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import MovedGuest

FIRST = MovedGuest("vcn1-1", "52:54:00:00:01:01", "cn1", "cn3", 100.0, 1.25, 0.2)
SECOND = MovedGuest("vcn2-1", "52:54:00:00:02:01", "cn2", "cn4", 50.0, 1.0)


def test_collect_moves_joins_what_left_this_node_and_others_by_time(tmp_path: pathlib.Path) -> None:
    record, steps = tmp_path / "record", tmp_path / "steps"
    steps.mkdir()
    assert moves.collect_moves(record, steps) == []
    note_moved(record, FIRST, None)
    answered = steps / "moves.cn2.json"
    answered.write_text(json.dumps({"moves": [to_dict(SECOND), {"guest": 1}]}))
    answered.chmod(0o600)
    (steps / "moves.cn1.json").write_text(json.dumps({"moves": [to_dict(FIRST)]}))
    (steps / "moves.cn1.json").chmod(0o600)
    rows = moves.collect_moves(record, steps)
    assert rows == [to_dict(SECOND), to_dict(FIRST)]
    text = {"version": 1, "job_id": "7.head", "start": 1, "moves": rows}
    schema.check(json.dumps(text).encode(), "7.head", 1)
    assert moves.read_moves(text) == (SECOND, FIRST)
    with pytest.raises(FormError, match="none of this version holds"):
        schema.check(json.dumps({**text, "moves": [{"why": "x"}]}).encode(), "7.head", 1)


@pytest.mark.parametrize("record", [{}, {"moves": None}, {"moves": "x"}, {"moves": [1, {"guest": "a b"}]}])
def test_read_moves_of_another_form_are_none(record: dict[str, object]) -> None:
    assert moves.read_moves(record) == ()


def test_describe_move_names_both_nodes_and_what_is_known_of_the_time() -> None:
    assert moves.describe_move(FIRST).startswith("from cn1 to cn3 at 1970-01-01 ")
    assert moves.describe_move(FIRST).endswith(" in 1.2 s, standing still for 0.20 s")
    assert moves.describe_move(SECOND).endswith(" in 1.0 s")

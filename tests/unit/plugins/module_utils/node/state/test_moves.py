# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest that leaves is neither lost nor forgotten: the order, what has become of it, and who says so."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import moves
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import MovedGuest

ROW = MovedGuest("vcn1-1", "52:54:00:00:01:01", "cn1", "cn3", 1795700440.5, 1.25, 0.2)


@pytest.fixture
def start(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "guests" / "vcn1-1").mkdir(parents=True)
    return tmp_path / "guests"


@pytest.fixture
def leaving(start: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> moves.Leaving:
    monkeypatch.setattr(moves, "LOOK_S", 0.0)
    return moves.Leaving(start, tmp_path / "record")


def test_guest_without_an_order_does_not_leave(leaving: moves.Leaving) -> None:
    assert not leaving.begins("vcn1-1")
    assert (leaving.names, leaving.finish_moves(), leaving.due_s()) == (frozenset(), (), float("inf"))


def test_guest_that_has_moved_stays_gone_after_the_end_of_the_order(
    leaving: moves.Leaving, start: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    moves.order_move(start / "vcn1-1", "cn3")
    assert leaving.begins("vcn1-1")
    assert leaving.finish_moves() == ()
    moves.note_moved(tmp_path / "record", ROW, None)
    moves.end_move(start / "vcn1-1")
    assert leaving.finish_moves() == ()
    assert leaving.names == leaving.gone == {"vcn1-1"}
    assert leaving.begins("vcn1-1")
    assert leaving.due_s() == float("inf")


def test_guest_whose_move_was_undone_is_handed_back_once(leaving: moves.Leaving, start: pathlib.Path) -> None:
    moves.order_move(start / "vcn1-1", "cn3")
    leaving.begins("vcn1-1")
    moves.end_move(start / "vcn1-1")
    assert leaving.finish_moves() == ("vcn1-1",)
    assert leaving.finish_moves() == ()
    assert not leaving.begins("vcn1-1")


def test_order_names_its_target_until_it_ends(start: pathlib.Path) -> None:
    guest = start / "vcn1-1"
    assert moves.target_of(guest) == ""
    moves.order_move(guest, "cn3")
    moves.order_move(guest, "cn4")
    assert moves.target_of(guest) == "cn4"
    moves.end_move(guest)
    assert moves.target_of(guest) == ""
    assert not (guest / moves.MOVE).exists()


def test_rows_of_what_has_moved_add_up_and_name_each_target_once(tmp_path: pathlib.Path) -> None:
    assert moves.read_moved(tmp_path) == ()
    moves.note_moved(tmp_path, ROW, None)
    moves.note_moved(tmp_path, ROW, None)
    assert moves.read_moved(tmp_path) == (ROW, ROW)
    assert moves.targets_of(tmp_path) == ("cn3",)


def test_rows_that_are_of_another_form_count_for_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "moved.json").write_text('{"moves": [{"guest": "x"}]}')
    (tmp_path / "moved.json").chmod(0o600)
    assert moves.read_moved(tmp_path) == ()


def test_source_of_a_start_is_where_its_guest_came_from(start: pathlib.Path) -> None:
    assert moves.source_of(start) == ""
    moves.note_arrival(start / "vcn1-1", "cn1")
    assert moves.source_of(start) == "cn1"


def test_guest_whose_making_was_not_saved_says_so(start: pathlib.Path) -> None:
    with pytest.raises(VTorqueError, match="by what it was made was not saved"):
        moves.read_part(start / "vcn1-1")

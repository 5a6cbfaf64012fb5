# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that wait for the front end: marked once, tried at growing intervals, by one at a time."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.delivery_queue import FIRST_S, MOST_S, Mark

KEY = "7.head.1"


def test_mark_stands_until_it_is_done(tmp_path: pathlib.Path) -> None:
    assert delivery_queue.list_pending(tmp_path) == ()
    delivery_queue.mark_pending(KEY, tmp_path)
    path = tmp_path / "spool" / KEY
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, 0)
    assert delivery_queue.is_marked(KEY, tmp_path)
    delivery_queue.done(KEY, tmp_path)
    delivery_queue.done(KEY, tmp_path)
    assert not delivery_queue.is_marked(KEY, tmp_path)
    assert delivery_queue.list_pending(tmp_path) == ()


def test_mark_says_why_and_one_more_mark_does_not_forget_it(tmp_path: pathlib.Path) -> None:
    delivery_queue.mark_pending(KEY, tmp_path)
    os.utime(tmp_path / "spool" / KEY, (5, 5))
    delivery_queue.tried(KEY, "a longer word than the next one", tmp_path)
    delivery_queue.tried(KEY, "no\x1b way " + "x" * 2 * delivery_queue.WORDS, tmp_path)
    delivery_queue.mark_pending(KEY, tmp_path)
    (mark,) = delivery_queue.list_pending(tmp_path)
    assert mark.why.startswith("no? way xxx")
    assert len(mark.why) <= delivery_queue.WORDS
    assert mark.tried > 5
    delivery_queue.tried("8.head.1", "never marked", tmp_path)
    assert not delivery_queue.is_marked("8.head.1", tmp_path)


def test_oldest_record_is_the_first(tmp_path: pathlib.Path) -> None:
    """By the record, however often it was tried; what is no mark is left out."""
    for age, key in enumerate(("9.head.1", "72-1.head.2", "7.head.1")):
        delivery_queue.mark_pending(key, tmp_path)
        record = tmp_path / "records" / key / "record.json"
        record.parent.mkdir(parents=True)
        record.write_text("{}")
        os.utime(record, (1000 - age,) * 2)
    (tmp_path / "spool/lost+found").mkdir()
    found = delivery_queue.list_pending(tmp_path)
    assert [(mark.key, mark.since) for mark in found] == [("7.head.1", 998), ("72-1.head.2", 999), ("9.head.1", 1000)]


@pytest.mark.parametrize(
    ("waited_s", "due_after_s"),
    [(-5.0, FIRST_S), (0.0, FIRST_S), (FIRST_S, FIRST_S), (10 * FIRST_S, 10 * FIRST_S), (1e7, MOST_S)],
)
def test_next_try_is_when_it_has_waited_as_long_again(waited_s: float, due_after_s: float) -> None:
    mark = Mark(KEY, 1e9, 1e9 + waited_s, "")
    assert not mark.is_due(mark.tried)
    assert not mark.is_due(mark.tried + due_after_s - 1)
    assert mark.is_due(mark.tried + due_after_s)
    assert mark.is_due(mark.tried - 1)  # the clock was set back


def test_one_at_a_time_has_a_mark(tmp_path: pathlib.Path) -> None:
    with delivery_queue.claimed(KEY, tmp_path) as ours:
        assert not ours
    delivery_queue.mark_pending(KEY, tmp_path)
    with delivery_queue.claimed(KEY, tmp_path) as first:
        with delivery_queue.claimed(KEY, tmp_path) as second:
            assert (first, second) == (True, False)
        delivery_queue.done(KEY, tmp_path)
    with delivery_queue.claimed(KEY, tmp_path) as ours:
        assert not ours


def test_link_is_no_mark(tmp_path: pathlib.Path) -> None:
    (tmp_path / "spool").mkdir()
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "spool" / KEY).symlink_to(target)
    with pytest.raises(VTorqueError):
        delivery_queue.mark_pending(KEY, tmp_path)
    delivery_queue.tried(KEY, "why", tmp_path)
    with delivery_queue.claimed(KEY, tmp_path) as ours:
        assert not ours
    assert target.read_text() == "mine"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that went to another node while their job ran, in its record."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import typing as t

from ...errors import VTorqueError
from ...state import layout
from ...system import files
from ...wire.form import from_dict, to_dict
from ...wire.moves import MovedGuest

MOVES = "moves"


def collect_moves(record: pathlib.Path, steps: pathlib.Path) -> list[dict[str, t.Any]]:
    """Return the rows of a job's record of guests that have moved, by time.

    Args:
        record: the directory of the job's record on this node, with what has left it.
        steps: the run directory of the start, with what the other nodes have answered.
    """
    found: dict[str, MovedGuest] = {}
    for path in (record / layout.MOVED, *sorted(steps.glob(layout.StepFile.MOVES.pattern))):
        with contextlib.suppress(OSError, VTorqueError, TypeError):
            found |= {one.guest: one for one in _rows(files.read_json(path).get(MOVES))}
    return [to_dict(one) for one in sorted(found.values(), key=lambda one: one.at)]


def read_moves(record: t.Mapping[str, t.Any]) -> tuple[MovedGuest, ...]:
    """Return the guests of a job's record that have moved; what is not of the form is left out.

    Args:
        record: as it was read.
    """
    return tuple(_rows(record.get(MOVES)))


def describe_move(moved: MovedGuest) -> str:
    """Return a clause on a move: from where to where, when, and what it took."""
    when = datetime.datetime.fromtimestamp(moved.at).astimezone().isoformat(" ", "seconds")
    pause = f", standing still for {moved.paused_s:.2f} s" if moved.paused_s >= 0 else ""
    took = f" in {moved.seconds:.1f} s" if moved.seconds else ""
    return f"from {moved.source} to {moved.target} at {when}{took}{pause}"


def _rows(found: object) -> t.Iterator[MovedGuest]:
    for one in found if isinstance(found, list) else ():
        with contextlib.suppress(VTorqueError):
            yield from_dict(MovedGuest, one)

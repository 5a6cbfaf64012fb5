# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest that leaves this node for another while its job runs, and one that came from there.

    <guest>/part.json       by which the guest was made; root 0400; written when it is ready
    <guest>/move/           sockets of a move that is under way, and `target`: the node to which it goes
    <guest>/arrived         it came from the node that is named there
    <record>/moved.json     the guests that have left, with their new nodes: outlives the start

The order (`move/target`) is there before anything else of a move, and gone after it.  Until then the worker takes
neither a pause nor the end of the domain for a loss.  libvirt decides whether a guest has moved; `moved.json` says so.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import time

from ...errors import VTorqueError
from ...state import layout
from ...system import files
from ...wire.form import FormError, from_dict, to_dict
from ...wire.messages import NodePart
from ...wire.moves import MovedGuest
from .directories import entries

PART, MOVE, TARGET, ARRIVED = "part.json", "move", "target", "arrived"
LOOK_S = 0.5
"""Between two looks of a worker for what has become of a move."""
LIMIT = 1 << 22


def save_part(start: pathlib.Path, part: NodePart) -> None:
    """Save with each guest of a start by what all of them were made; where it cannot be written, they cannot be moved.

    Args:
        start: the directory of the start.
        part: as it was asked for; it holds keys.
    """
    for guest in entries(start):
        with contextlib.suppress(OSError, VTorqueError):
            files.write(guest / PART, json.dumps(to_dict(part), ensure_ascii=True))


def read_part(guest: pathlib.Path) -> NodePart:
    """Return by what a guest was made.

    Raises:
        VTorqueError: that was not saved, or cannot be read.
    """
    try:
        return from_dict(NodePart, files.read_json(guest / PART, limit=LIMIT))
    except (OSError, FormError) as error:
        why = f"by what it was made was not saved: {error}"
        raise VTorqueError(f"guest {guest.name}", why, "it begins, or began before this version") from error


def order_move(guest: pathlib.Path, target: str) -> pathlib.Path:
    """Note that a guest is about to go to another node; returns the directory for the sockets of the move.

    Raises:
        VTorqueError: it was not noted.
        OSError: the same.
    """
    place = guest / MOVE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o711)
    files.write(place / TARGET, json.dumps({"target": target}))
    return place


def target_of(guest: pathlib.Path) -> str:
    """Return where a guest is to go; "": nowhere."""
    with contextlib.suppress(OSError, VTorqueError, AttributeError):
        return str(files.read_json(guest / MOVE / TARGET).get("target", ""))
    return ""


def end_move(guest: pathlib.Path) -> None:
    """The guest is here and stays; or all of it that was here goes now."""
    with contextlib.suppress(FileNotFoundError):
        (guest / MOVE / TARGET).unlink()
    shutil.rmtree(guest / MOVE, ignore_errors=True)


def note_arrival(guest: pathlib.Path, source: str) -> None:
    """Note from which node a guest came.

    Raises:
        VTorqueError: it was not noted.
    """
    files.write(guest / ARRIVED, json.dumps({"source": source}))


def has_arrived(guest: pathlib.Path) -> bool:
    """Return whether a guest came from another node, and is watched here since: whatever its state is, it is here."""
    return all((guest / name).exists() for name in (ARRIVED, PART)) and not (guest / MOVE).exists()


def source_of(start: pathlib.Path) -> str:
    """Return from which node the guests of a start came while their job ran; "": they began here."""
    for path in sorted(start.glob(f"*/{ARRIVED}")):
        with contextlib.suppress(OSError, VTorqueError, AttributeError):
            return str(files.read_json(path).get("source", ""))
    return ""


def note_moved(record: pathlib.Path, moved: MovedGuest, reader_uid: int | None) -> None:
    """Note for the life of the job, and for its record, that a guest runs on another node from now on.

    Args:
        record: the directory of the job's record on this node.
        moved: what became of it.
        reader_uid: the job's owner.

    Raises:
        VTorqueError: it was not noted.
        OSError: the same.
    """
    rows = [to_dict(one) for one in (*read_moved(record), moved)]
    files.make_record_directory(record, reader_uid)
    files.write(record / layout.MOVED, json.dumps({"moves": rows}), reader_uid=reader_uid)


def read_moved(record: pathlib.Path) -> tuple[MovedGuest, ...]:
    """Return the guests of a start that have left this node; () where none has.

    Args:
        record: the directory of the job's record on this node.
    """
    with contextlib.suppress(OSError, FormError, VTorqueError, TypeError, AttributeError):
        return tuple(from_dict(MovedGuest, one) for one in files.read_json(record / layout.MOVED).get("moves", ()))
    return ()


def targets_of(record: pathlib.Path) -> tuple[str, ...]:
    """Return the nodes that have guests of a start which have left this one."""
    return tuple(dict.fromkeys(one.target for one in read_moved(record)))


class Leaving:
    """Which guests of a start are on their way to another node, or there; as its worker follows it.

    Args:
        start: the directory of the start.
        record: the directory of the job's record on this node.
    """

    def __init__(self, start: pathlib.Path, record: pathlib.Path) -> None:
        self._start, self._record = start, record
        self._names: set[str] = set()
        self.gone: set[str] = set()
        self._look_at = 0.0

    @property
    def names(self) -> frozenset[str]:
        """The guests that are on their way, or gone: what becomes of their domains here is no loss."""
        return frozenset(self._names | self.gone)

    def begins(self, name: str) -> bool:
        """Return whether a guest has left, or is leaving by an order; from now on it is followed."""
        if name in self.gone or target_of(self._start / name) or self._has_moved(name):
            self._names.add(name)
            return True
        return False

    def _has_moved(self, name: str) -> bool:
        """What libvirt says of it may be heard after all of it is gone here."""
        if any(one.guest == name for one in read_moved(self._record)):
            self.gone.add(name)
        return name in self.gone

    def due_s(self) -> float:
        """Seconds until `finish_moves` has something to do."""
        return max(0.0, self._look_at - time.monotonic()) if self._names - self.gone else float("inf")

    def finish_moves(self) -> tuple[str, ...]:
        """Return the guests whose move has ended and that have not left."""
        if not self._names - self.gone or time.monotonic() < self._look_at:
            return ()
        self._look_at = time.monotonic() + LOOK_S
        ended = {name for name in self._names - self.gone if not target_of(self._start / name)}
        self.gone |= self._names.intersection(one.guest for one in read_moved(self._record))
        back = ended - self.gone
        self._names -= back
        return tuple(sorted(back))

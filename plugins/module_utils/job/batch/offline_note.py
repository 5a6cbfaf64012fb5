# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our own note on this node, taken back when the cause that it names tests good."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...errors import CAUSES, DEGRADING, NodeFault
from .api import NOTE_PREFIX, BatchSystem

SPARE_NOTE = f"{NOTE_PREFIX}spare"
"""What the note of a spare node of the site begins with: no fault, and nothing to be taken back."""


@dataclasses.dataclass(frozen=True, slots=True)
class NoteWord:
    """What became of a note.

    Attributes:
        note: what is written about the node; "" when there is nothing of ours.
        taken_back: whether it is gone, and the node in use again.
        why: what is still wrong, or what was found good.
    """

    note: str = ""
    taken_back: bool = False
    why: str = ""


def is_spare_note(note: str) -> bool:
    """Return whether a note sets a node aside as a spare one, free or for a job."""
    return note == SPARE_NOTE or note.startswith(f"{SPARE_NOTE} for ")


def cause_of(note: str) -> str:
    """The cause that a note of ours names (`vtorque: <cause>: ...`); "" when it names none that can be tested."""
    found = re.match(r"([a-z]+):", note.removeprefix(NOTE_PREFIX))
    return found[1] if note.startswith(NOTE_PREFIX) and found and found[1] in (*CAUSES, DEGRADING) else ""


def take_back(batch: BatchSystem, node: str, troubles: t.Callable[[str], t.Sequence[NodeFault]]) -> NoteWord:
    """Test the cause of our note on this node, and take the note back when it tests good.

    A note of an administrator is left alone, and so is a node without one.

    Args:
        batch: who keeps the note.
        node: this node.
        troubles: what is wrong for this cause; "" asks for every cause.

    Returns:
        What became of it.

    Raises:
        SiteFault: the server did not answer, or the note was still there when it was read back.
    """
    note = batch.note(node)
    if not note.startswith(NOTE_PREFIX) or is_spare_note(note):
        return NoteWord()
    cause = cause_of(note)
    wrong = troubles(cause)
    if wrong:
        return NoteWord(note, why="; ".join(map(str, wrong)))
    if not batch.clear(node, note):
        return NoteWord(note, why="somebody changed it meanwhile")
    return NoteWord(note, taken_back=True, why=f"{cause or 'everything'} tests good")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set a node offline with a note of ours, and take both back: the same for every batch system but the commands.

No batch system has "set if unset": between our look and our order an administrator may write a note, which ours would
replace.  The look comes immediately before the order, and what became of it is read back.
"""

from __future__ import annotations

import typing as t

from ....errors import SiteFault
from ..api import NOTE_PREFIX, BatchNode

NOTE_LENGTH = 200

if t.TYPE_CHECKING:

    class Nodes(t.Protocol):
        """The one thing asked of a batch system here."""

        def node(self, name: str) -> BatchNode:
            """See `BatchSystem.node`."""


def one_line(note: str) -> str:
    """Return a note as batch systems take it: ours by its prefix, one line, no longer than people read.

    Torque lists notes in lines and takes a lone `n` for "clear"; the prefix rules that out.
    """
    text = note if note.startswith(NOTE_PREFIX) else NOTE_PREFIX + note
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:NOTE_LENGTH].rstrip()


def set_offline(batch: Nodes, name: str, note: str, order: t.Callable[[str, str], object], command: str) -> BatchNode:
    """Keep new jobs away from a node, with our note; see `BatchSystem.offline`.

    Args:
        batch: tells of the node.
        name: of the node.
        note: why.
        order: sets the node of the first name offline, with the second text for its note.
        command: that `order` calls, for messages.

    Raises:
        SiteFault: see `BatchSystem.offline`.
    """
    text = one_line(note)
    seen = batch.node(name)
    if (seen.note or seen.offline) and not seen.note.startswith(NOTE_PREFIX):
        return seen
    if seen.offline and seen.note == text:
        return seen
    order(seen.name, text)
    seen = batch.node(seen.name)
    if not seen.offline or seen.note != text:
        raise SiteFault(f"node {seen.name} is not offline", f"{command} was called; its note is {seen.note!r}")
    return seen


def clear(batch: Nodes, name: str, note: str, order: t.Callable[[str], object], command: str) -> bool:
    """Take back `set_offline` with this very note; anything else is left alone, and False returned.

    Args:
        batch: tells of the node.
        name: of the node.
        note: as it was given to `set_offline`.
        order: takes note and state from the node of this name.
        command: that `order` calls, for messages.

    Raises:
        SiteFault: see `BatchSystem.clear`.
    """
    seen = batch.node(name)
    if seen.note != one_line(note):
        return False
    order(seen.name)
    seen = batch.node(seen.name)
    if seen.offline or seen.note:
        raise SiteFault(f"node {seen.name} is still offline", f"{command} was called; its note is {seen.note!r}")
    return True

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on this node and belongs to no living start, and its removal.  Who lives is for the caller to know."""

from __future__ import annotations

import typing as t

from ..records import Deadline
from . import guests
from .domain import Domains
from .locks import is_held, start_lock
from .remains import Remain, remains, start_of
from .settings import NodeSettings

IsAlive = t.Callable[[str, int], bool]
"""Does this start of this job live?  It raises when that is not known: unknown is never "no"."""


def orphans(settings: NodeSettings, is_alive: IsAlive) -> dict[str, tuple[Remain, ...]]:
    """What belongs to no living start, by the key of the start it belonged to.

    What somebody holds the lock of is at work and left alone, and so is what cannot be told whose it is.

    Raises:
        NodeFault: libvirt does not answer.
        VTorqueError: whatever `is_alive` raises.
    """
    with Domains(settings.libvirt_uri) as domains:
        there = remains(settings, domains)
    found: dict[str, tuple[Remain, ...]] = {}
    for key in sorted({remain.key for remain in there}):
        start = start_of(key)
        if start is not None and not is_held(start_lock(settings, key)) and not is_alive(*start):
            found[key] = tuple(remain for remain in there if remain.key == key)
    return found


def sweep(settings: NodeSettings, is_alive: IsAlive, deadline: Deadline) -> tuple[str, ...]:
    """Remove what `orphans` finds.

    Returns:
        What was removed.

    Raises:
        VTorqueError: see `orphans` and `guests.absent`.
    """
    removed: list[str] = []
    for key in orphans(settings, is_alive):
        job_id, start = t.cast("tuple[str, int]", start_of(key))
        removed += guests.absent(job_id, start, settings, deadline)
    return tuple(removed)

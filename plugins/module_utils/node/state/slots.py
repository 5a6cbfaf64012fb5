# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slots: the numbers that this node gives its guests, each to one at a time; name and MAC follow from them."""

from __future__ import annotations

import contextlib
import itertools
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...system.clock import Deadline
from . import saved_memory
from .directories import entries
from .settings import MAX_SLOT, NodeSettings
from .start_lock import lock_alone

LOCK = "slots"
"""Of all that one guest of this node has and no other: slots, and cores of its own."""


@leaves_nothing
def read_slots(settings: NodeSettings) -> dict[int, str]:
    """Every slot that is taken, and by whom: `<job>.<start>/<guest>`.

    Raises:
        NodeFault: they cannot be read.
    """
    found: dict[int, str] = {}
    for path in entries(settings.slots_dir):
        # another start may give its slot back while we look
        with contextlib.suppress(FileNotFoundError):
            if path.name.isdecimal() and path.is_symlink():
                found[int(path.name)] = str(path.readlink())
    return dict(sorted(found.items()))


def take(
    settings: NodeSettings,
    key: str,
    count: int,
    deadline: Deadline,
    *,
    busy: t.Callable[[int], bool],
    names: t.Sequence[str] = (),
) -> tuple[int, ...]:
    """Take slots for the guests of a start, the lowest that are free.

    Args:
        key: `state.layout.job_key` of the start.
        busy: returns whether something of a former guest of this slot is still there, although no start has it.
        names: of guests that bring theirs along; (): they follow from the slots.

    Raises:
        VTorqueError: the node bears no more guests.
    """
    settings.slots_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    with lock_alone(settings.run_dir / "locks" / LOCK, settings, deadline):
        now = read_slots(settings)
        here = running(settings, now)
        if len(here) + count > settings.max_guests:
            owners = ", ".join(sorted(here)) or "none"
            raise VTorqueError(
                f"{count} more guests on {settings.node_name}",
                f"it bears {settings.max_guests}, and has {len(here)}: {owners}",
                "see max_vms_per_node in vtorque.yml; what belongs to no job is taken away by vtorque-sweep",
            )
        candidates = (slot for slot in range(1, MAX_SLOT + 1) if slot not in now and not busy(slot))
        free = list(itertools.islice(candidates, count))
        if len(free) < count:
            raise VTorqueError(f"{count} more guests on {settings.node_name}", "no slot is free", "see vtorque-sweep")
        for slot, name in zip(free, names or map(settings.guest_name, free), strict=True):
            # fails when it is there, so that a lock that failed us would show
            (settings.slots_dir / str(slot)).symlink_to(f"{key}/{name}")
    return tuple(free)


@leaves_nothing
def running(settings: NodeSettings, now: t.Mapping[int, str]) -> list[str]:
    """Return who of these has a guest here that needs the node; one that is saved keeps its slot, and no more.

    Args:
        now: as `read_slots` has them.
    """
    return [owner for owner in now.values() if not saved_memory.needs_nothing(settings.guests_dir / owner)]


def free(settings: NodeSettings, key: str) -> tuple[int, ...]:
    """Give back every slot of a start; the last thing that is done for it."""
    mine = tuple(slot for slot, owner in read_slots(settings).items() if owner.partition("/")[0] == key)
    for slot in mine:
        (settings.slots_dir / str(slot)).unlink(missing_ok=True)
    return mine

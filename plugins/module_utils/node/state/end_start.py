# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a start on this node, whoever works for it."""

from __future__ import annotations

import contextlib
import typing as t

from ...system.clock import Deadline
from . import start_lock
from .settings import NodeSettings

HUNG_SHARE = 2 / 3
"""How much of its time `end_start` waits for whoever holds the lock, before it ends that process."""

_With = t.TypeVar("_With")


def end_start(
    settings: NodeSettings,
    key: str,
    deadline: Deadline,
    remove_leftovers: t.Callable[[_With], tuple[str, ...]],
    *,
    meanwhile: t.Callable[[], contextlib.AbstractContextManager[_With]],
) -> tuple[str, ...]:
    """Say that a start is over, wait for whoever works for it to take it away, and take away what is left.

    Who works on the start or watches its guests hears the tombstone, takes them away and ends; what was killed left
    that to us.  What does not end is ended.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.
        deadline: when there must be an answer.
        remove_leftovers: removes what is left, under the lock, with what `meanwhile` gives; returns what it removed.
        meanwhile: gives what is opened once the start is buried: the worker is at work then, and it costs nothing.

    Returns:
        What was removed by whomever, as words; () when there was nothing.

    Raises:
        LockTimeout: somebody else held the lock until the deadline, and could not be ended.
        VTorqueError: something would not go.
    """
    lock = start_lock.start_lock(settings, key)
    start_lock.bury(settings, key)

    def remove_under_lock(patience: Deadline, opened: _With) -> tuple[str, ...]:
        with start_lock.lock_alone(lock, settings, patience) as before:
            removed = remove_leftovers(opened)
            lock.unlink(missing_ok=True)
            return tuple(dict.fromkeys((*before, *removed)))

    with meanwhile() as opened:
        try:
            return remove_under_lock(Deadline.after(deadline.left_s() * HUNG_SHARE), opened)
        except start_lock.LockTimeout:
            start_lock.end_holder(lock)
        return remove_under_lock(deadline, opened)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clocks of guests that stood still: each is behind by exactly that time, until the node sets it.

Daemons that keep a clock refuse a big step, or take hours for it (timesyncd, chrony).
"""

from __future__ import annotations

import time
import typing as t

from ...system.clock import Deadline
from ..state.settings import NodeSettings
from .agent import order_all
from .join import channel_to, with_channel

RECONNECT = "! command -v ss >/dev/null 2>&1 || ss -K dport = :2049 >/dev/null 2>&1 || :\n"
"""Ends the guest's connections to file servers, of which NFS makes new ones at once.  A server has heard on them what
the guest has not said yet, since it is back in the past; each would wait minutes for the other (seen with NFS 4.2: no
login for five minutes).  A guest without `ss` waits for that time."""
SET = 'date -u -s "@{seconds:.3f}" >/dev/null 2>&1 || date -u -s "@{seconds:.0f}"\n'
"""The date of busybox takes whole seconds alone."""


def set_clocks(
    job_id: str,
    start: int,
    settings: NodeSettings,
    names: t.Collection[str],
    deadline: Deadline,
    *,
    reconnect: bool = False,
) -> tuple[str, ...]:
    """Give guests this node's time, by their root.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        names: which of its guests.
        deadline: when it must be done.
        reconnect: they have returned from a checkpoint, after which they had gone on (`RECONNECT`).

    Returns:
        What went wrong, as words.

    Raises:
        VTorqueError: a guest does not answer.
    """
    guests = [guest for guest in with_channel(job_id, start, settings) if guest.name in names]
    script = (RECONNECT if reconnect else "") + SET.format(seconds=time.time())
    done = order_all([(channel_to(guest, settings), script) for guest in guests], deadline) if guests else {}
    return tuple(f"the clock of guest {name}: {one.output[-200:]}" for name, one in done.items() if one.status != 0)

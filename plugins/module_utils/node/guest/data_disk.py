# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's own disk in their guest: mounted on /data before the job, and given back whole after it.

The guest's side is `templates/guest/data.sh`.
"""

from __future__ import annotations

from ...errors import UserFault, VTorqueError
from ...system.clock import Deadline
from ...time_budget import DISK_UNMOUNT_S
from ..state.settings import NodeSettings
from ..storage.user_disk import LOG
from .agent import OrderResult, order_all
from .join import channel_to, guests_of

PROGRAM = "/usr/lib/vtorque/data"
USERS = 90
"""Exit status of the guest's program: the user can mend it."""


def mount(job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> None:
    """Have it mounted where there is one; a new disk gets a file system first.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        deadline: when it must be there.

    Raises:
        UserFault: what is on the disk cannot be mounted.
        VTorqueError: the guest does not answer, or has no such disk.
    """
    for name, done in _order("mount", job_id, start, settings, deadline).items():
        if done.status != 0:
            kind = UserFault if done.status == USERS else VTorqueError
            raise kind(f"disk in guest {name}", _message_of(done))


def unmount(job_id: str, start: int, settings: NodeSettings) -> tuple[str, ...]:
    """Have it unmounted before its guest goes, whoever still works there.

    Returns:
        What went wrong, as words; the file system's journal is for that.

    Raises:
        VTorqueError: the guest does not answer any more.
    """
    done = _order("unmount", job_id, start, settings, Deadline.after(DISK_UNMOUNT_S))
    return tuple(f"disk in guest {name}: {_message_of(one)}" for name, one in done.items() if one.status != 0)


def _order(what: str, job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> dict[str, OrderResult]:
    directory = settings.start_dir(job_id, start)
    guests = [guest for guest in guests_of(job_id, start, settings) if (directory / guest.name / LOG).exists()]
    orders = [(channel_to(guest, settings), f"exec {PROGRAM} {what}\n") for guest in guests]
    return order_all(orders, deadline) if orders else {}


def _message_of(done: OrderResult) -> str:
    lines = [line for line in done.output.splitlines() if line.strip()]
    return lines[-1][-500:] if lines else f"ended with status {done.status}"

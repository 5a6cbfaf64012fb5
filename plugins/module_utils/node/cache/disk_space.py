# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The space of a disk that guests and arriving images are promised."""

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

from ...frozen import frozen
from ...system.clock import Deadline
from ..pool.images import PART
from ..state import saved_memory, start_lock
from ..state.directories import guest_directories
from ..state.settings import NodeSettings


@frozen
class DiskUse:
    """What is taken of a node's disk.

    Attributes:
        held_bytes: by its guests' overlays.
        promised_bytes: by what these, memory that is being saved, and a copy of an image on its way may still grow.
    """

    held_bytes: int = 0
    promised_bytes: int = 0


NOTHING_TAKEN = DiskUse()


@contextlib.contextmanager
def counted(settings: NodeSettings, deadline: Deadline) -> t.Iterator[DiskUse]:
    """Make an overlay in here: until it is there, nobody else on this node is promised what it may take.

    A start holds a lock of its own alone, and on a shared node two may begin in the same second.

    Args:
        settings: NodeSettings of this node.
        deadline: of the wait for another's overlay, which is a matter of milliseconds where the pool answers.

    Yields:
        What is taken by the overlays of this node.

    Raises:
        LockTimeout: another start made its overlay until the deadline.
    """
    with start_lock.lock_alone(settings.run_dir / "locks" / "disk", settings, deadline):
        taken = read_disk_use(settings.guests_dir)
        yield DiskUse(taken.held_bytes, taken.promised_bytes + arriving_bytes(settings))


def arriving_bytes(settings: NodeSettings) -> int:
    """What is still to come of a copy of an image that is being fetched to the same disk.

    Its own room was looked for when it began; guests that were promised it since would be lost when they want it.
    """
    if not any((settings.images_dir / "copies").glob(f"{PART}*")):
        return 0
    from ..cache import copy_queue  # 5 ms that only those pay who make a guest meanwhile

    now = copy_queue.progress(settings)
    return now.total - now.done if now is not None and now.want.fs_type == "local" else 0


def read_disk_use(guests_dir: pathlib.Path) -> DiskUse:
    """What is taken by the overlays of this node: nothing else may count on it.

    Args:
        guests_dir: one directory a start of a job, one below it a guest.
    """
    held = promised = 0
    for guest in guest_directories(guests_dir):
        overlay = guest / "disk.qcow2"
        promised += saved_memory.coming_bytes(guest)
        # another start's may be taken away at any time
        with contextlib.suppress(OSError):
            with overlay.open("rb") as stream:
                header = stream.read(32)
                size = os.fstat(stream.fileno()).st_blocks * 512
            held += size
            # qcow2: the size that a guest sees is a big-endian number at byte 24 (QEMU, docs/interop/qcow2.txt)
            promised += max(0, int.from_bytes(header[24:32], "big") - size)
    return DiskUse(held, promised)

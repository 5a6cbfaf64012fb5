# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of guests that is on the node's disk while their job is suspended.

    <directory of the guest>/suspended/    root 0700; goes with the guest's directory, whoever removes that
        order.json                         written before anything is saved; away from the moment the guest is to return
        memory                             root 0600; libvirt's own file
        addresses                          empty; its time is when no other host had got the guest's addresses, or 0

Nothing else holds it: what is here of a start, its removal takes away.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import time

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...frozen import frozen
from ...system import files
from . import start_lock
from .directories import entries
from .settings import NodeSettings

DIRECTORY, MEMORY, ORDER, ADDRESSES = "suspended", "memory", "order.json", "addresses"
ADDRESSES_BELIEVED_S = 5.0
"""For so long nobody asks again who has the addresses: nodes are asked together before a job is resumed, and workers
that have its guests back within the seconds after that need not wait for answers of the network once more."""
COMPLETE = b"LibvirtQemudSave"
"""How libvirt's file begins when all of it is there; until then it says `LibvirtQemudPart` (qemu_saveimage.h)."""


@frozen
class SavedGuest:
    """A guest whose memory is, or is about to be, on the disk.

    Attributes:
        name: of the guest.
        since: when that was ordered, in seconds since the epoch.
        expected_bytes: that its memory may take at most.
        disk_bytes: that it takes now.
        complete: all of it is there.
    """

    name: str
    since: float
    expected_bytes: int
    disk_bytes: int
    complete: bool


def memory_file(guest: pathlib.Path) -> pathlib.Path:
    """Return where the memory of a guest is saved.

    Args:
        guest: its directory.
    """
    return guest / DIRECTORY / MEMORY


def order_save(guest: pathlib.Path, expected_bytes: int) -> None:
    """Note that a guest is about to be saved, and make room for the file.

    Args:
        guest: its directory.
        expected_bytes: that its memory may take.

    Raises:
        OSError: it was not written.
        VTorqueError: it was not written.
    """
    directory = guest / DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    (directory / MEMORY).unlink(missing_ok=True)
    (directory / ADDRESSES).touch(mode=0o600)
    os.utime(directory / ADDRESSES, (0, 0))
    files.write(directory / ORDER, json.dumps({"since": round(time.time(), 3), "bytes": expected_bytes}))


def order_return(guest: pathlib.Path) -> None:
    """Note that a guest is to return: from now on it needs its cores and its memory again."""
    (guest / DIRECTORY / ORDER).unlink(missing_ok=True)


def note_free_addresses(guest: pathlib.Path) -> None:
    """Note that no other host has the addresses of a saved guest now; nothing is made of one that has just returned.

    Args:
        guest: its directory.

    Raises:
        OSError: it has returned, or is removed.
    """
    os.utime(guest / DIRECTORY / ADDRESSES)


def has_free_addresses(guest: pathlib.Path) -> bool:
    """Return whether no other host had the addresses of a saved guest a moment ago (`ADDRESSES_BELIEVED_S`).

    Args:
        guest: its directory.
    """
    try:
        age_s = time.time() - (guest / DIRECTORY / ADDRESSES).stat().st_mtime
    except OSError:
        return False
    return 0.0 <= age_s < ADDRESSES_BELIEVED_S


def forget(guest: pathlib.Path) -> None:
    """Take the saved memory of a guest away, which runs or was never saved."""
    shutil.rmtree(guest / DIRECTORY, ignore_errors=True)


def is_complete(guest: pathlib.Path) -> bool:
    """Return whether all memory of a guest is on the disk."""
    try:
        with memory_file(guest).open("rb") as stream:
            return stream.read(len(COMPLETE)) == COMPLETE
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_away(guest: pathlib.Path) -> bool:
    """Return whether a guest is on the disk, or on its way from or to it: it answers nobody."""
    return (guest / DIRECTORY).is_dir()


@leaves_nothing
def needs_nothing(guest: pathlib.Path) -> bool:
    """Return whether a guest needs neither cores nor memory, because both are on the disk until its job is resumed."""
    return (guest / DIRECTORY / ORDER).exists() and is_complete(guest)


def read_saved(start: pathlib.Path) -> tuple[SavedGuest, ...]:
    """Return the guests of a start that are saved, or about to be, by name.

    Args:
        start: the directory of its guests.
    """
    found = []
    for guest in entries(start):
        # who is removed meanwhile, or broken, is not there
        with contextlib.suppress(OSError, VTorqueError, KeyError, TypeError, ValueError):
            order = files.read_json(guest / DIRECTORY / ORDER)
            taken = 0
            with contextlib.suppress(FileNotFoundError):
                taken = memory_file(guest).stat().st_blocks * 512
            found.append(SavedGuest(guest.name, float(order["since"]), int(order["bytes"]), taken, is_complete(guest)))
    return tuple(found)


def on_their_way(settings: NodeSettings) -> tuple[str, ...]:
    """Return the guests of this node that leave memory at this moment: more of it will be free soon.

    What a worker that was killed had begun to save, nobody saves any more.

    Args:
        settings: NodeSettings of this node.
    """
    return tuple(
        one.name
        for start in entries(settings.guests_dir)
        for one in read_saved(start)
        if not one.complete and start_lock.is_locked(start_lock.start_lock(settings, start.name))
    )


def coming_bytes(guest: pathlib.Path) -> int:
    """Return what the memory of a guest that is being saved may still take of the disk."""
    return sum(
        max(0, one.expected_bytes - one.disk_bytes)
        for one in read_saved(guest.parent)
        if one.name == guest.name and not one.complete
    )

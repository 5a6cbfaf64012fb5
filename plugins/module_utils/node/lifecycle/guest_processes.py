# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes without which a guest is lost: its qemu, the virtiofsd of each directory that it shares, and what
serves an own image of its user's."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import time
import typing as t

from ...errors import VTorqueError
from ...wire.messages import Owner
from ..removal import leftovers
from ..state.settings import NodeSettings
from ..storage import shares, user_disk, virtiofsd
from ..system.cpus import Cores

QEMU = ""
LOG = re.compile(r"(vtorque[0-9]+)\.log")
"""What a virtiofsd says; it is there from before it starts, so it tells which ones a guest was given."""
OWN_IMAGE = user_disk.IMAGE


@dataclasses.dataclass
class Lifeline:
    """One such process of a guest.

    Attributes:
        how: that it ended, in words.
        process: a descriptor of it; None: it was not found.
        ended_at: when that was heard, in seconds of the monotonic clock; None: it lives, or nobody knows.
    """

    how: str
    process: int | None = None
    ended_at: float | None = None

    def close(self) -> None:
        """Nobody listens to it any more."""
        if self.process is not None:
            os.close(self.process)
            self.process = None


def of_guests(directory: pathlib.Path, settings: NodeSettings, owner: Owner) -> dict[pathlib.Path, list[Lifeline]]:
    """What each guest of a start needs, as it is now, its qemu first; a virtiofsd that is gone has ended just now.

    Args:
        directory: of the start; holds one directory a guest.
        settings: NodeSettings of this node.
        owner: the guests'.
    """
    guests = sorted(directory.iterdir()) if directory.is_dir() else []
    found = {guest: {QEMU: Lifeline("its process ended"), **_shares(guest, settings, owner)} for guest in guests}
    for pid, key in leftovers.processes(settings):
        if key == directory.name:
            with contextlib.suppress(OSError):  # it ended meanwhile
                _open_process(pid, found)
    for needed in found.values():
        for name, one in needed.items():
            if name != QEMU and one.process is None:
                one.ended_at = time.monotonic()
    return {guest: list(needed.values()) for guest, needed in found.items()}


def processes_of(guest: pathlib.Path, settings: NodeSettings) -> tuple[int, tuple[int, ...]] | None:
    """Return the number of a guest's qemu, and those of what serves it; None: it has no process.

    Args:
        guest: its directory.
        settings: NodeSettings of this node.

    Raises:
        VTorqueError: the processes cannot be looked at.
    """
    return pick_processes(guest, read_processes(guest.parent.name, settings))


def read_processes(key: str, settings: NodeSettings) -> dict[int, tuple[str, bool]]:
    """Return the command lines of a start's processes, and of each whether it serves a guest's qemu."""
    found = {}
    for number, owner in leftovers.processes(settings):
        if owner == key:
            with contextlib.suppress(OSError):  # it ended meanwhile
                text = pathlib.Path(f"/proc/{number}/cmdline").read_bytes().decode("utf-8", "replace")
                found[number] = (text, text.startswith((virtiofsd.NAME, user_disk.NAME)))
    return found


def pick_processes(
    guest: pathlib.Path, processes: t.Mapping[int, tuple[str, bool]]
) -> tuple[int, tuple[int, ...]] | None:
    """Return those of one guest, as `processes_of`, of what `read_processes` has returned."""
    own = {number: server for number, (text, server) in processes.items() if f"{guest}/" in text}
    qemu = next((number for number, server in own.items() if not server), None)
    return None if qemu is None else (qemu, tuple(number for number, server in own.items() if server))


def confine(key: str, settings: NodeSettings, cores: Cores) -> None:
    """Keep every thread of the processes of a start on these cores; libvirt does so for qemu's alone.

    Args:
        key: `layout.job_key` of the start.
        settings: NodeSettings of this node.
        cores: of this node.

    Raises:
        OSError: the kernel refuses it.
    """
    for pid, whose in leftovers.processes(settings):
        if whose == key:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it ended meanwhile
                for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
                    os.sched_setaffinity(int(task.name), cores)


def _shares(guest: pathlib.Path, settings: NodeSettings, owner: Owner) -> dict[str, Lifeline]:
    names = sorted(path.name for path in guest.iterdir()) if guest.is_dir() else []
    tags = [match[1] for match in map(LOG.fullmatch, names) if match]
    targets: dict[str, str] = {}
    with contextlib.suppress(VTorqueError):  # then the tag must do
        targets = {mount.source: mount.target for mount in shares.plan_mounts(settings, owner).mounts}
    where = f"the virtiofsd of it on {settings.node_name} ended"
    found = {tag: Lifeline(f"its mount {targets.get(tag, tag)} is dead: {where}") for tag in tags}
    if user_disk.IMAGE_LOG in names:
        found[OWN_IMAGE] = Lifeline(f"its image is out of reach: the qemu-nbd of it on {settings.node_name} ended")
    return found


def _open_process(pid: int, found: dict[pathlib.Path, dict[str, Lifeline]]) -> None:
    """Keep a descriptor of a process for whom it belongs to.

    Not by `open_process`: whose it is comes from the same look that would say whether it is meant, and no signal is
    ever sent by this descriptor.  A virtiofsd may be two processes, of which neither goes without the other: one of
    them will do.
    """
    handle = os.pidfd_open(pid)
    try:
        command_line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        first = command_line.partition("\0")[0]
        name = first.rpartition("/")[2] if first.startswith((virtiofsd.NAME, user_disk.NAME)) else QEMU
        if name == user_disk.DATA:  # without it the guest lives, and meets errors on its disk
            return
        for guest, needed in found.items():
            one = needed.get(name)
            if one is not None and one.process is None and f"{guest}/" in command_line:
                one.process, handle = handle, -1
                return
    finally:
        if handle >= 0:
            os.close(handle)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A region of memory that all guests of a start on this node share (UNCLOT): one file, which each qemu maps (ivshmem).

libvirt lets qemu open `/dev/shm/NAME`.  A file that qemu made itself would be readable for everybody, and stay
(memory-backend-file; libvirt neither labels nor removes it).  So root makes it, with a name that nobody can foresee,
0600 from its first moment on, and gives it to qemu's user when it has its whole size.  The lease, which is there before
the file, is how whoever ends the start finds it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
import typing as t

from ...errors import SiteFault, UserFault, VTorqueError
from ...system.clock import Deadline
from ...text import format_mib
from ...wire.messages import GuestSpec
from ..state import qemu_user
from ..state.settings import NodeSettings
from ..state.start_lock import lock_alone
from ..system import memory
from . import leases
from .api import HostDevice, Taking

KIND = "region"
PLACE = pathlib.Path("/dev/shm")  # noqa: S108 - where libvirt has them, and no name in it is foreseeable
"""Where libvirt lets qemu look for shared memory, by a name without directories; tests have a place of their own."""
REMEDY = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
NAME = r"vtorque-[0-9a-f]{16}"
PIECE_MIB = 1024
"""Memory is taken in pieces, so that a deadline ends the taking; the kernel clears a page when it is first used."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_wanted(spec: GuestSpec) -> bool:
    """Return whether a guest shares a region."""
    return spec.shared_mib > 0


def take(taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """See `api.DeviceKind.take`: one lease, whatever the number of guests."""
    settings = taking.settings
    size_mib = memory.region_mib(taking.guests)
    if not settings.shares_regions:
        raise UserFault("unclot=true", f"{settings.node_name} gives guests no region (unclot_enabled)", "unclot=false")
    if problem := find_problem():
        raise SiteFault(f"unclot on {settings.node_name}", problem, REMEDY)
    _check_room(size_mib, settings)
    with lock_alone(leases.lock_of(settings), settings, taking.deadline):
        give_back(
            [one for one in leases.read_leases(settings) if (one.kind, one.key) == (KIND, taking.key)], settings
        )  # of this very start, which was begun before
        name = f"vtorque-{os.urandom(8).hex()}"
        leases.write_lease(leases.Lease(name, taking.key, taking.guests[0].index, KIND), settings)
    device = HostDevice(KIND, name, f"unclot:{size_mib}M", size_mib)
    return {spec.index: (device,) for spec in taking.guests if is_wanted(spec)}


def find_problem() -> str:
    """Return why no region could be made on this node, or ""."""
    try:
        facts = PLACE.lstat()
    except OSError as error:
        return f"{PLACE}: {error.strerror}"
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid:
        return f"{PLACE} is no directory of root's"
    if facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX:
        return f"{PLACE} lets every user remove files of others (mode {stat.S_IMODE(facts.st_mode):o}, not 1777)"
    return ""


def attach(devices: t.Sequence[HostDevice], qemu_ids: tuple[int, int], deadline: Deadline) -> None:
    """See `api.DeviceKind.attach`: make the file, which all guests of the start share."""
    for name, size_mib in {device.name: device.size_mib for device in devices}.items():
        path = PLACE / name
        try:
            fd = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise VTorqueError(f"region {path}", f"it cannot be made: {error.strerror}") from None
        try:
            _fill(fd, path, size_mib, deadline)
            os.fchown(fd, *qemu_ids)
        except OSError as error:  # no fault of a disk, which it would be taken for
            hint = "another time, or fewer or smaller regions on the node"
            raise VTorqueError(f"region {path} of {format_mib(size_mib)}", error.strerror or "", hint) from None
        finally:
            os.close(fd)


def give_back(mine: t.Sequence[leases.Lease], settings: NodeSettings) -> tuple[str, ...]:
    """See `api.DeviceKind.give_back`: remove the file."""
    done = []
    for lease in mine:
        path = PLACE / lease.device
        with contextlib.suppress(OSError, VTorqueError):  # then the lease stays, and the sweep tries it again
            if _is_region(path, settings):
                path.unlink(missing_ok=True)
                done.append(f"region {lease.device}")
            leases.end_lease(lease.device, settings)
    return tuple(done)


def find_lost(settings: NodeSettings) -> tuple[str, ...]:
    """Return the regions of nobody, by name: a lease is there before its file, and goes after it."""
    with contextlib.suppress(OSError):
        there = [entry.name for entry in os.scandir(PLACE) if re.fullmatch(NAME, entry.name)]
        leased = {lease.device for lease in leases.read_leases(settings)} if there else set()
        return tuple(name for name in sorted(there) if name not in leased and _is_region(PLACE / name, settings))
    return ()


def _is_region(path: pathlib.Path, settings: NodeSettings) -> bool:
    """Return whether it is a file of root's or of qemu's; any other of that name is somebody else's, and stays."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_uid in qemu_user.load_uids(settings)


def _check_room(size_mib: int, settings: NodeSettings) -> None:
    room = os.statvfs(PLACE)
    if not room.f_blocks:  # one without a bound
        return
    total, left = (blocks * room.f_frsize >> 20 for blocks in (room.f_blocks, room.f_bavail))
    what = f"unclot_shmem={format_mib(size_mib)}"
    if size_mib > total:
        raise UserFault(what, f"{PLACE} of {settings.node_name} holds {total} MiB", "ask for less")
    if size_mib > left:
        raise VTorqueError(what, f"{PLACE} of {settings.node_name} has {left} MiB left", "another time, or less")


def _fill(fd: int, path: pathlib.Path, size_mib: int, deadline: Deadline) -> None:
    """Take all of its memory now: what is not there would end a guest that touches it (SIGBUS)."""
    for begin in range(0, size_mib, PIECE_MIB):
        if deadline.passed:
            raise VTorqueError(f"region {path} of {format_mib(size_mib)}", "its memory was not there in time")
        os.posix_fallocate(fd, begin << 20, min(PIECE_MIB, size_mib - begin) << 20)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disks of guests: overlays over images, and what they take of a node's disk."""

from __future__ import annotations

import os
import pathlib
import shutil
from urllib.parse import quote

from ...errors import NodeFault, SiteFault, UserFault
from ...system.clock import Deadline
from ..cache.disk_space import NOTHING_TAKEN, DiskUse
from ..pool.disk_check import QEMU_IMG, blame, inspect, run_qemu_img
from ..pool.images import Image


def make_overlay(
    image: Image,
    path: pathlib.Path,
    deadline: Deadline,
    *,
    taken: DiskUse = NOTHING_TAKEN,
    qemu_img: pathlib.Path = QEMU_IMG,
) -> int:
    """Make the disk of one guest: an empty overlay over the image, on the node's own disk.

    Args:
        image: what it stands on; never written to.
        path: the overlay; its directory exists and is root's.
        taken: by other overlays on the same file system.

    Returns:
        The size in bytes to which the overlay may grow.

    Raises:
        ImageFault: see `inspect`; or qemu-img cannot read the image.
        NodeFault: the file system has no room for it, and it is not guests that fill it.
        SiteFault: the file system could never hold it, or guests have taken the room.
    """
    size = check_room(image, path.parent, taken)
    _make_file(path)
    argv: list[str | pathlib.Path] = [qemu_img, "create", "-q", "-f", "qcow2", "-b", image.path]
    argv += ["-F", image.format, path]
    try:
        run_qemu_img(argv, deadline, NodeFault)
    except NodeFault:
        blame(image, deadline, qemu_img=qemu_img)
        raise
    return size


def check_room(image: Image, directory: pathlib.Path, taken: DiskUse) -> int:
    """See that a file system has room for the disk of one guest.

    Args:
        image: what it stands on.
        directory: where it is to be.
        taken: by other overlays on the same file system.

    Returns:
        The size in bytes to which it may grow.

    Raises:
        ImageFault: see `inspect`.
        NodeFault: the file system has no room for it, and it is not guests that fill it.
        SiteFault: the file system could never hold it, or guests have taken the room.
    """
    size = inspect(image).virtual_bytes
    _could_fit(f"image {image.name}", size, directory, SiteFault)
    free = shutil.disk_usage(directory).free
    if size > free + taken.held_bytes:
        raise NodeFault(
            _no_room(directory),
            f"{size >> 20} MiB are needed; {free >> 20} MiB are free",
            "free some space",
            cause="disk",
        )
    _fits_beside(taken, size, directory)
    return size


def make_overlay_on_socket(
    socket: pathlib.Path,
    size: int,
    path: pathlib.Path,
    deadline: Deadline,
    *,
    taken: DiskUse = NOTHING_TAKEN,
    qemu_img: pathlib.Path = QEMU_IMG,
) -> None:
    """Make the disk of one guest over an image of its user's, which nobody but the user reads.

    Args:
        socket: where it is served.
        size: of that disk in bytes, by their word alone: no fault of the node's follows from it.
        path: the overlay; its directory exists and is root's.
        deadline: of the call.
        taken: by other overlays on the same file system.
        qemu_img: the program; it is kept from looking at the base.

    Raises:
        UserFault: the file system could never hold it.
        SiteFault: it has no room now.
        NodeFault: qemu-img does not make it.
    """
    _could_fit("the image", size, path.parent, UserFault)
    _fits_beside(taken, size, path.parent)
    _make_file(path)
    argv: list[str | pathlib.Path] = [qemu_img, "create", "-q", "-f", "qcow2", "-u"]
    argv += ["-b", f"nbd+unix:///?socket={quote(str(socket))}", "-F", "raw", path, str(size)]
    run_qemu_img(argv, deadline, NodeFault)


def _no_room(directory: pathlib.Path) -> str:
    return f"no room for a guest's disk under {directory}"


def _could_fit(what: str, size: int, directory: pathlib.Path, fault: type[SiteFault | UserFault]) -> None:
    total = shutil.disk_usage(directory).total
    if size > total:
        raise fault(what, f"holds {size >> 20} MiB, {directory} has {total >> 20} MiB in all")


def _fits_beside(taken: DiskUse, size: int, directory: pathlib.Path) -> None:
    free = shutil.disk_usage(directory).free
    if size + taken.promised_bytes > free:
        # users can bring that about on a node that is well
        raise SiteFault(
            _no_room(directory),
            f"{size >> 20} MiB are needed; {free >> 20} MiB are free, {taken.promised_bytes >> 20} MiB of them "
            f"promised to other guests, which hold {taken.held_bytes >> 20} MiB, and to images that arrive",
            "it is free again when their jobs end",
        )


def _make_file(path: pathlib.Path) -> None:
    # qemu-img makes a new file readable by all, and whoever has it open once reads the guest's disk for good
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)

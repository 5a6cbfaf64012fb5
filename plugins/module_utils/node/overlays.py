# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disks of guests: overlays over images, and what they take of a node's disk."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import typing as t

from ..errors import NodeFault, SiteFault, UserFault
from ..frozen import frozen
from ..records import Deadline
from . import locks
from .directories import guest_directories
from .image_check import QEMU_IMG, blame, inspect, run_qemu_img
from .images import PART, Image
from .settings import NodeSettings


@frozen
class Taken:
    """What is taken of a node's disk.

    Attributes:
        held_bytes: by its guests' overlays.
        promised_bytes: by what these, and a copy of an image that is on its way, may still grow.
    """

    held_bytes: int = 0
    promised_bytes: int = 0


NOTHING_TAKEN = Taken()


def make_overlay(
    image: Image, path: pathlib.Path, deadline: Deadline, *, taken: Taken = NOTHING_TAKEN,
    qemu_img: pathlib.Path = QEMU_IMG,
) -> int:  # fmt: skip
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
    size = inspect(image).virtual_bytes
    _could_fit(f"image {image.name}", size, path.parent, SiteFault)
    free = shutil.disk_usage(path.parent).free
    if size > free + taken.held_bytes:
        raise NodeFault(
            _no_room(path.parent), f"{size >> 20} MiB are needed; {free >> 20} MiB are free", "free some space",
            cause="disk",
        )  # fmt: skip
    _fits_beside(taken, size, path.parent)
    _make_file(path)
    argv: list[str | pathlib.Path] = [qemu_img, "create", "-q", "-f", "qcow2", "-b", image.path]
    argv += ["-F", image.format, path]
    try:
        run_qemu_img(argv, deadline, NodeFault)
    except NodeFault:
        blame(image, deadline, qemu_img=qemu_img)
        raise
    return size


def make_overlay_on_socket(
    socket: pathlib.Path, size: int, path: pathlib.Path, deadline: Deadline, *, taken: Taken = NOTHING_TAKEN,
    qemu_img: pathlib.Path = QEMU_IMG,
) -> None:  # fmt: skip
    """Make the disk of one guest over an image of its user's, which nobody but the user reads.

    Args:
        socket: where it is served.
        size: of that disk in bytes, by his word alone: no fault of the node's follows from it.
        path: the overlay; its directory exists and is root's.
        deadline: of the call.
        taken: by other overlays on the same file system.
        qemu_img: the program; it is kept from looking at the base.

    Raises:
        UserFault: the file system could never hold it.
        SiteFault: it has no room now.
        NodeFault: qemu-img does not make it.
    """
    from urllib.parse import quote  # 3 ms that only such jobs pay

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


def _fits_beside(taken: Taken, size: int, directory: pathlib.Path) -> None:
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


@contextlib.contextmanager
def counted(settings: NodeSettings, deadline: Deadline) -> t.Iterator[Taken]:
    """Make an overlay in here: until it is there, nobody else on this node is promised what it may take.

    A start holds a lock of its own alone, and on a shared node two may begin in the same second.

    Args:
        settings: this node's own word.
        deadline: of the wait for another's overlay, which is a matter of milliseconds where the pool answers.

    Yields:
        What is taken by the overlays of this node.

    Raises:
        locks.HeldTooLong: another start made its overlay until the deadline.
    """
    with locks.held(settings.run_dir / "locks" / "disk", settings, deadline):
        taken = taken_by_guests(settings.guests_dir)
        yield Taken(taken.held_bytes, taken.promised_bytes + arriving_bytes(settings))


def arriving_bytes(settings: NodeSettings) -> int:
    """What is still to come of a copy of an image that is being fetched to the same disk.

    Its own room was looked for when it began; guests that were promised it since would be lost when they want it.
    """
    if not any((settings.images_dir / "copies").glob(f"{PART}*")):
        return 0
    from . import image_wants  # 5 ms that only those pay who make a guest meanwhile

    now = image_wants.progress(settings)
    return now.total - now.done if now is not None and now.want.fs_type == "local" else 0


def taken_by_guests(guests_dir: pathlib.Path) -> Taken:
    """What is taken by the overlays of this node: nothing else may count on it.

    Args:
        guests_dir: one directory a start of a job, one below it a guest.
    """
    held = promised = 0
    for overlay in (guest / "disk.qcow2" for guest in guest_directories(guests_dir)):
        # another start's may be taken away at any time
        with contextlib.suppress(OSError):
            with overlay.open("rb") as stream:
                header = stream.read(32)
                size = os.fstat(stream.fileno()).st_blocks * 512
            held += size
            # qcow2: the size that a guest sees is a big-endian number at byte 24 (QEMU, docs/interop/qcow2.txt)
            promised += max(0, int.from_bytes(header[24:32], "big") - size)
    return Taken(held, promised)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of images: brought into the pool, and read again to see whether they are still the same."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import typing as t

from ...errors import ImageFault, UserFault
from .images import Image

FICLONE = 0x40049409
"""ioctl_ficlone(2): the new file shares the blocks of the other one, where the file system can."""
CHUNK_BYTES = 4 << 20
_ZEROS = bytes(CHUNK_BYTES)
Advance = t.Callable[[int], None]
"""So many bytes more are done."""


def ignore_progress(_count: int) -> None:
    """Progress that nobody sees."""


def digest(stream: t.BinaryIO, advance: Advance = ignore_progress) -> str:
    """The SHA-256 of a file, from its beginning.

    Args:
        stream: the file, not buffered.
        advance: told of each piece.

    Returns:
        In hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    total = hashlib.sha256()
    for piece in _pieces(stream):
        total.update(piece)
        advance(len(piece))
    return total.hexdigest()


def copy(source: t.BinaryIO, target: pathlib.Path, what: str, advance: Advance = ignore_progress) -> tuple[str, int]:
    """Copy a file that nobody may write meanwhile, with its holes, to one that all may read and nobody may write.

    Args:
        source: the file, not buffered.
        target: what is not there yet.
        what: the source, for messages.
        advance: told of each piece.

    Returns:
        The SHA-256 of what was written, and its bytes.

    Raises:
        UserFault: the source was changed meanwhile.
        OSError: it cannot be read or written.
    """
    before = os.fstat(source.fileno())
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "r+b", buffering=0) as stream:
        found = digest(stream, advance) if _cloned(source, stream) else _copied(source, stream, advance)
        after = os.fstat(source.fileno())
        size = os.fstat(fd).st_size
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != before.st_size:
            raise UserFault(what, "was changed while it was copied", "wait until it is written")
        os.fchmod(fd, 0o444)
        os.fsync(fd)
    return found, size


def _cloned(source: t.BinaryIO, target: t.BinaryIO) -> bool:
    try:
        fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
    except OSError:
        # another file system, or one that cannot
        return False
    return True


def _copied(source: t.BinaryIO, target: t.BinaryIO, advance: Advance) -> str:
    total = hashlib.sha256()
    for piece in _pieces(source):
        total.update(piece)
        # a hole, or what might as well be one
        if piece == _ZEROS[: len(piece)]:
            target.seek(len(piece), os.SEEK_CUR)
        else:
            _write(target, piece)
        advance(len(piece))
    target.truncate(target.tell())
    return total.hexdigest()


def _write(target: t.BinaryIO, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[target.write(left) :]


def _pieces(stream: t.BinaryIO) -> t.Iterator[bytes]:
    stream.seek(0)
    while piece := stream.read(CHUNK_BYTES):
        yield piece


def bytes_of(image: Image) -> int:
    """How much `verify` reads.

    Args:
        image: of the pool.
    """
    return sum(path.stat().st_size for path, _digest in _parts(image))


def verify(image: Image, advance: Advance = ignore_progress) -> bool:
    """Read an image whole, and compare it with its record.

    Args:
        image: of the pool.
        advance: told of each piece.

    Returns:
        False: nothing is known to compare it with.

    Raises:
        ImageFault: it is not what its record says, or cannot be read.
    """
    known = False
    for path, wanted in _parts(image):
        try:
            with contextlib.closing(path.open("rb", buffering=0)) as stream:
                found = digest(stream, advance)
        except OSError as error:
            raise ImageFault(f"image {image.name}", f"{path.name}: {error.strerror or error}") from error
        if wanted and found != wanted:
            raise ImageFault(
                f"image {image.name}",
                f"{path.name} is damaged: sha256 {found}, its record says {wanted}",
                "add it again as a new revision, and delete this one",
            )
        known = known or bool(wanted)
    return known


def _parts(image: Image) -> t.Iterator[tuple[pathlib.Path, str]]:
    yield image.path, str(image.record.get("disk_sha256", ""))
    boot = image.record.get("boot", {})
    for key, path in (("kernel", image.boot.kernel), ("initrd", image.boot.initrd)):
        if path:
            yield path, str(boot.get(f"{key}_sha256") or "")

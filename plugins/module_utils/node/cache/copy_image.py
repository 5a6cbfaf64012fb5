# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image read from the pool: copied with its digest taken on the way, or only its digest taken.

A copy that was ended goes on where it was.  What is there of it is read again, which costs a local disk little and
needs no journal that a power cut could leave at odds with the file: the digest of the whole decides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shutil
import time
import typing as t

from ...errors import ImageFault, NodeFault, VTorqueError, broken_disk
from ...system import files
from ..pool.images import READ_BYTES as CHUNK
from ..pool.images import Image, read
from .copy_store import Cache, Source, sources_of

_ZEROS = bytes(CHUNK)
BEHIND_S = 1.0
TRIES = 2
"""The first may go on with what a power cut spoiled; the second begins anew, and its word counts."""

Tell = t.Callable[[int, int], None]
"""Hears how many bytes are done, of how many."""


class Pace:
    """Reading no faster than the site wants.

    Args:
        mib_s: MiB a second; None: as fast as it goes.
        clock: seconds.
        rest: waits for so many seconds.
    """

    def __init__(
        self,
        mib_s: int | None,
        *,
        clock: t.Callable[[], float] = time.monotonic,
        rest: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_s = mib_s << 20 if mib_s else None
        self._clock, self._rest = clock, rest
        self._due = clock()

    def spent(self, count: int) -> None:
        """So many bytes were read."""
        if self._bytes_s is None:
            return
        now = self._clock()
        # a pool that was slow is not made up for by a burst
        self._due = max(self._due, now - BEHIND_S) + count / self._bytes_s
        if self._due > now:
            self._rest(self._due - now)


def fetch(image: Image, cache: Cache, pace: Pace, tell: Tell) -> None:
    """Copy an image; afterwards `Cache.find` finds it.

    Args:
        image: of the pool.
        cache: has room for it.
        pace: of reading.
        tell: hears how far it is.

    Raises:
        ImageFault: the pool does not hold what the image's record says.
        SiteFault: the pool cannot be read.
        NodeFault: this node's disk is full or broken.
    """
    for tried in range(1, TRIES + 1):
        try:
            cache.publish(image, _grow(image, cache.part(image), pace, tell))
        except ImageFault:
            shutil.rmtree(cache.part(image), ignore_errors=True)
            if tried == TRIES:
                raise
        else:
            return


def check(image: Image, pace: Pace, tell: Tell) -> dict[str, str]:
    """Take the digests of an image's files where they are.

    Args:
        image: of the pool, or a copy.
        pace: of reading.
        tell: hears how far it is.

    Returns:
        The digest of each file.

    Raises:
        ImageFault: they are not what the record says.
        VTorqueError: a file cannot be read; see `images.unreadable`.
    """
    sources = sources_of(image)
    progress = _Progress(sources, tell)
    found = {}
    for source in sources:
        digest = hashlib.sha256()
        for chunk in read(image, source.path):
            digest.update(chunk)
            progress.add(len(chunk))
            pace.spent(len(chunk))
        found[source.path.name] = _right(image, source, digest.hexdigest())
    return found


def _grow(image: Image, part: pathlib.Path, pace: Pace, tell: Tell) -> dict[str, str]:
    sources = sources_of(image)
    progress = _Progress(sources, tell)
    try:
        files.make_directory(part)
        return {
            source.path.name: _right(image, source, _copy(image, source, part / source.path.name, pace, progress))
            for source in sources
        }
    except (OSError, VTorqueError) as error:
        if isinstance(error, VTorqueError) and broken_disk(error) is None:
            raise
        raise NodeFault(
            f"the copy of image {image.name} under {part.parent}",
            str(error),
            "free some space, or see to the disk",
            cause="disk",
        ) from error


def _copy(image: Image, source: Source, target: pathlib.Path, pace: Pace, progress: _Progress) -> str:
    """Copy what is missing of a file; the digest of the whole."""
    digest = hashlib.sha256()
    # a file that is whole already is nobody's to write
    with contextlib.suppress(FileNotFoundError):
        target.chmod(0o600)
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        there = os.fstat(fd).st_size
        if there > source.size:
            os.truncate(fd, there := 0)
        for begin in range(0, there, CHUNK):
            digest.update(os.pread(fd, min(CHUNK, there - begin), begin))
        progress.add(there)
        for chunk in read(image, source.path, there):
            digest.update(chunk)
            _write(fd, chunk, there)
            there += len(chunk)
            progress.add(len(chunk))
            pace.spent(len(chunk))
        os.fchmod(fd, 0o444)
        os.fsync(fd)
    finally:
        os.close(fd)
    return digest.hexdigest()


def _write(fd: int, chunk: bytes, at: int) -> None:
    # what is empty in the pool takes no room here either
    if chunk == _ZEROS:
        os.truncate(fd, at + len(chunk))
        return
    while chunk:
        count = os.pwrite(fd, chunk, at)
        chunk, at = chunk[count:], at + count


def _right(image: Image, source: Source, digest: str) -> str:
    if source.sha256 not in ("", digest):
        raise ImageFault(
            f"image {image.name}",
            f"{source.path.name} has sha256 {digest[:16]}..., its record says {source.sha256[:16]}...",
            "it is not what was published: publish it again as a new revision",
        )
    return digest


class _Progress:
    def __init__(self, sources: t.Iterable[Source], tell: Tell) -> None:
        self._total, self._done, self._tell = sum(source.size for source in sources), 0, tell
        tell(0, self._total)

    def add(self, count: int) -> None:
        self._done += count
        self._tell(self._done, self._total)

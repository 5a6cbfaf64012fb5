# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package in an archive of capstan, `NAME.mpm`: a tar, packed with gzip or not, of a package's directory.

An archive may come from anybody.  It is unpacked into a file without a name, bounded, before anything in it is looked
at; members are judged one by one, and none is ever made a file of this host.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pathlib
import tarfile
import tempfile
import typing as t
import zlib

from ...errors import UserFault
from ...text import printable
from .directory import refuse_mode
from .metadata import MAX_BYTES
from .tree import CHUNK_BYTES, Directory, File, Link, Tree

SUFFIX = ".mpm"
UNPACK_DIRECTORY = pathlib.Path("/var/tmp")  # noqa: S108 - for what may be large; it gets no name there
_GZIP = b"\x1f\x8b"
_HEADER_BYTES = 1 << 16
"""Of one header, with the long names and further facts before it."""
_OUT = ("meta/", "mpm-pkg/", ".git/", ".capstanignore/")


class Archive:
    """An archive that was read.

    Attributes:
        small_files: what lies in `meta/`, by its place.
        members: (place, entry) of all others, in their order.
    """

    def __init__(self) -> None:
        self.small_files: dict[str, bytes] = {}
        self.members: list[tuple[str, File | Link | Directory]] = []

    def add_to(self, tree: Tree) -> None:
        """Add everything but `meta/` to a tree; see `Tree.add`."""
        for place, entry in self.members:
            tree.add(place, entry)


def read_archive(path: pathlib.Path, package: str, max_bytes: int, max_members: int) -> Archive:
    """Read an archive.

    Args:
        path: of it.
        package: what it is called.
        max_bytes: of everything in it, unpacked.
        max_members: greatest number of its members.

    Raises:
        UserFault: it is no such archive, is larger, or has a member that no image can have.
    """
    try:
        spool = _unpack(path, max_bytes)
    except OSError as error:
        raise UserFault(f"{path}", error.strerror or str(error)) from error
    found = Archive()
    files: dict[str, File] = {}
    try:
        with tarfile.open(fileobj=_Bounded(spool, path), mode="r:", errors="surrogateescape") as tar:
            for number, member in enumerate(tar):
                if number >= max_members:
                    raise UserFault(f"{path}", f"has more than {max_members} members")
                _take(member, spool, package, found, files)
                # tarfile remembers each one, which of millions would be memory
                t.cast("t.Any", tar).members = []
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise UserFault(f"{path}", f"is no tar: {printable(str(error)[:200])}") from None
    return found


def _take(member: tarfile.TarInfo, spool: t.BinaryIO, package: str, found: Archive, files: dict[str, File]) -> None:
    place = _place_of(member.name)
    what = f"{printable(member.name[:200])!a} of {package}"
    if ".." in member.name.split("/"):
        raise UserFault(what, "leads out of the package")
    if not place or f"{place}/".startswith(_OUT):
        if place.startswith("meta/") and member.isreg():
            if member.size > MAX_BYTES:
                raise UserFault(what, f"has more than {MAX_BYTES} bytes")
            found.small_files[place] = os.pread(spool.fileno(), member.size, member.offset_data)
        return
    entry = _entry_of(member, spool, package, files)
    if isinstance(entry, File):
        files[place] = entry
    found.members.append((place, entry))


def _place_of(name: str) -> str:
    """Return a member's place: capstan writes names with a slash at their beginning, which is the package."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _entry_of(
    member: tarfile.TarInfo, spool: t.BinaryIO, package: str, files: t.Mapping[str, File]
) -> File | Link | Directory:
    what = f"{printable(member.name[:200])!a} of {package}"
    if member.isdir():
        return Directory(package)
    if member.issym():
        return Link(member.linkname, package)
    if member.islnk():
        first = files.get(_place_of(member.linkname))
        if first is None:
            raise UserFault(what, f"is another name of {printable(member.linkname[:200])!a}, which is not before it")
        return first
    if member.isreg() and not member.issparse():
        refuse_mode(_place_of(member.name), package, member.mode & 0o7777)
        return File(member.size, _opener(spool, member.offset_data, member.size), package)
    kind = "a device or a FIFO" if member.ischr() or member.isblk() or member.isfifo() else "no plain file"
    raise UserFault(what, f"is {kind}", "an image has files, links and directories alone")


def _unpack(path: pathlib.Path, max_bytes: int) -> t.BinaryIO:
    """Return the tar in a file without a name."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as packed, contextlib.ExitStack() as stack:
        source: t.Any = packed
        if packed.peek(2)[:2] == _GZIP:
            source = stack.enter_context(gzip.GzipFile(fileobj=packed))
        # pylint: disable=consider-using-with  # the files of the package read from it until it goes
        spool = t.cast("t.BinaryIO", tempfile.TemporaryFile(dir=UNPACK_DIRECTORY, buffering=0))  # noqa: SIM115
        size = 0
        try:
            while piece := source.read(CHUNK_BYTES):
                size += len(piece)
                if size > max_bytes:
                    raise UserFault(
                        f"{path}", f"unpacks to more than {max_bytes >> 20} MiB", "image_max in vtorque.yml"
                    )
                spool.write(piece)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserFault(f"{path}", f"cannot be unpacked: {printable(str(error)[:200])}") from None
    spool.seek(0)
    return spool


class _Bounded(io.RawIOBase):
    """What `tarfile` reads headers from: a header that wants more memory than any needs is refused.

    Args:
        stream: the tar.
        path: of the archive, for messages.
    """

    def __init__(self, stream: t.BinaryIO, path: pathlib.Path) -> None:
        self._stream = stream
        self._path = path

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _HEADER_BYTES:
            raise UserFault(f"{self._path}", f"has a header of more than {_HEADER_BYTES} bytes")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class _Part(io.RawIOBase):
    """A member's bytes, read where they lie; several may be open at once.

    Args:
        stream: the tar.
        offset: of the member's first byte.
        size: of it.
    """

    def __init__(self, stream: t.BinaryIO, offset: int, size: int) -> None:
        self._stream, self._at, self._end = stream, offset, offset + size

    def read(self, size: int = -1) -> bytes:
        rest = self._end - self._at
        piece = os.pread(self._stream.fileno(), rest if size < 0 else min(size, rest), self._at)
        self._at += len(piece)
        return piece


def _opener(spool: t.BinaryIO, offset: int, size: int) -> t.Callable[[], contextlib.AbstractContextManager[t.BinaryIO]]:
    return lambda: contextlib.closing(t.cast("t.BinaryIO", _Part(spool, offset, size)))

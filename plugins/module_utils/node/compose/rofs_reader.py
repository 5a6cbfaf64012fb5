# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk with OSv's read-only file system (`rofs.py`), read back: the base that an image is composed on."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
import typing as t

from ...errors import ImageFault
from . import rofs
from .tree import Directory, Entry, File, Link

MAX_TABLES = 64 << 20
"""Bytes of all tables that are read; those of 100,000 files have less."""


class _Tables:
    """Numbers and names one behind the other.

    Args:
        content: of the tables.
        what: the disk, for messages.
    """

    def __init__(self, content: bytes, what: str) -> None:
        self._content = content
        self._at = 0
        self._what = what

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take_bytes(form.size))

    def take_bytes(self, count: int) -> bytes:
        piece = self._content[self._at : self._at + count]
        if len(piece) != count:
            raise ImageFault(self._what, "its tables are cut off")
        self._at += count
        return piece


def read_disk(path: pathlib.Path, package: str) -> dict[str, Entry]:
    """Read what is on a disk that `rofs.write_disk` wrote.

    Args:
        path: of the disk, a raw one.
        package: what its files are called to be of.

    Returns:
        Its files, links and directories by their paths, without the root.

    Raises:
        ImageFault: it holds no such file system, or a broken one.
        OSError: it cannot be read.
    """
    what = f"{path}"
    begin = rofs.PARTITION_BLOCK * rofs.BLOCK
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(begin)
        head = stream.read(rofs.SUPERBLOCK.size)
        if len(head) != rofs.SUPERBLOCK.size:
            raise ImageFault(what, "has no file system of OSv (ROFS)")
        magic, version, block, first, count, names, targets, inodes = rofs.SUPERBLOCK.unpack(head)
        if (magic, version, block) != (rofs.MAGIC, rofs.VERSION, rofs.BLOCK):
            raise ImageFault(what, "has no file system of OSv (ROFS)")
        if count * block > MAX_TABLES or begin + (first + count) * block > size:
            raise ImageFault(what, "its tables lie outside of it, or are too large")
        stream.seek(begin + first * block)
        tables = _Tables(stream.read(count * block), what)
    entries = []
    for _row in range(names):
        number, length = tables.take(rofs.ENTRY)
        entries.append((number, os.fsdecode(tables.take_bytes(length))))
    links = [os.fsdecode(tables.take_bytes(tables.take(rofs.TARGET)[0])) for _row in range(targets)]
    rows = [tables.take(rofs.INODE) for _row in range(inodes)]
    return _Walk(path, size - begin, package, entries, links, rows).walk()


class _Walk:
    """From the root down to every entry; each inode has one place."""

    def __init__(
        self,
        path: pathlib.Path,
        size: int,
        package: str,
        names: list[tuple[int, str]],
        links: list[str],
        rows: list[tuple[int, ...]],
    ) -> None:
        self._path, self._size, self._package = path, size, package
        self._names, self._links, self._rows = names, links, rows
        self._seen: set[int] = set()

    def walk(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        todo = [("", 1)]
        while todo:
            path, number = todo.pop()
            if not 1 <= number <= len(self._rows) or number in self._seen:
                raise self._broken(f"inode {number} is not there, or in two places")
            self._seen.add(number)
            mode, _number, place, count = self._rows[number - 1]
            if mode == rofs.MODES[Directory]:
                if place + count > len(self._names):
                    raise self._broken(f"the entries of /{path} are not there")
                for child, name in self._names[place : place + count]:
                    todo.append((f"{path}/{name}" if path else name, child))
                if path:
                    found[path] = Directory(self._package)
            elif mode == rofs.MODES[Link] and place < len(self._links):
                found[path] = Link(self._links[place], self._package)
            elif mode == rofs.MODES[File] and place * rofs.BLOCK + count <= self._size:
                found[path] = File(count, _opener(self._path, place), self._package)
            else:
                raise self._broken(f"inode {number} is none that can be")
        return found

    def _broken(self, why: str) -> ImageFault:
        return ImageFault(f"{self._path}", f"its file system is broken: {why}", "vmgr image verify")


def _opener(path: pathlib.Path, block: int) -> t.Callable[[], contextlib.AbstractContextManager[t.BinaryIO]]:
    def open_file() -> t.BinaryIO:
        stream = path.open("rb")
        stream.seek((rofs.PARTITION_BLOCK + block) * rofs.BLOCK)
        return stream

    return open_file

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an image of OSv before they are written: a tree that is checked whole.

A path is a `str` without a slash at its beginning, with what is no UTF-8 as `os.fsdecode` has it; the root is "".
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import posixpath
import typing as t

from ...errors import UserFault
from ...text import printable

MAX_ENTRIES = 100_000
MAX_NAME, MAX_PATH = 255, 4095
"""Bytes of a name and of a path in OSv's file systems (include/osv/limits.h of its sources)."""
MAX_DEPTH = 100
"""Directories in one another, of which no program has as many."""
MAX_LINKS = 40
"""So many links are followed on one way; more are a circle."""
RUNTIME = ("dev", "proc", "sys", "tmp")
"""Where OSv mounts something at its boot: what a link there leads to is not in the image."""
CHUNK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A file.

    Attributes:
        size: in bytes.
        open: opens its content, at its first byte; there may be more bytes than `size` behind it.
        package: that brings it.
    """

    size: int
    open: t.Callable[[], contextlib.AbstractContextManager[t.BinaryIO]]
    package: str


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str
    package: str


@dataclasses.dataclass(frozen=True, slots=True)
class Directory:
    """A directory."""

    package: str


Entry: t.TypeAlias = "File | Link | Directory"
_KINDS = {File: "a file", Link: "a link", Directory: "a directory"}


def create_file(content: bytes, package: str) -> File:
    """Return a file whose content is known."""
    return File(len(content), lambda: contextlib.closing(io.BytesIO(content)), package)


def read_pieces(path: str, file: File) -> t.Iterator[bytes]:
    """Read a file's content, in pieces.

    Args:
        path: of the file, for messages.
        file: of a tree.

    Raises:
        UserFault: it is shorter than it was, or cannot be read.
    """
    remaining = file.size
    try:
        with file.open() as stream:
            while remaining:
                piece = stream.read(min(remaining, CHUNK_BYTES))
                if not piece:
                    raise UserFault(describe_path(path, file.package), "became shorter while it was read", "try again")
                remaining -= len(piece)
                yield piece
    except OSError as error:
        raise UserFault(describe_path(path, file.package), error.strerror or str(error)) from error


def describe_path(path: str, package: str) -> str:
    """Return a path of a package, for messages."""
    return f"/{printable(path)} of {package}"


class Tree:
    """Files, links and directories by their paths, each directory before what is in it.

    Args:
        max_bytes: of all its files together.
        max_entries: greatest number of files, links and directories.
    """

    def __init__(self, max_bytes: int, max_entries: int = MAX_ENTRIES) -> None:
        self.entries: dict[str, Entry] = {}
        self.bytes = 0
        self._max_bytes = max_bytes
        self._max_entries = max_entries

    def add(self, path: str, entry: Entry) -> None:
        """Add an entry, and the directories above it.

        Args:
            path: its place in the image; blanks of a path (`./a//b`) are taken out.
            entry: what it is.

        Raises:
            UserFault: the place cannot be, is taken by something else, or the image becomes too large.
        """
        path = _clean(path, entry.package)
        if not path:
            return
        if isinstance(entry, Link):
            _check_target(path, entry)
        parent = posixpath.dirname(path)
        above = self.entries.get(parent) if parent else None
        if parent and above is None:
            self.add(parent, Directory(entry.package))
        elif above is not None and not isinstance(above, Directory):
            raise UserFault(
                describe_path(path, entry.package),
                f"lies in /{printable(parent)}, which is {_KINDS[type(above)]} of {above.package}",
            )
        present = self.entries.get(path)
        if present is not None:
            self._refuse_other(path, present, entry)
            return
        self._count(path, entry)
        self.entries[path] = entry

    def remove(self, path: str) -> None:
        """Take out a file, where one is.

        Args:
            path: of it.
        """
        present = self.entries.get(path)
        if isinstance(present, File):
            self.bytes -= present.size
            del self.entries[path]

    def merge(self, other: Tree) -> None:
        """Add all of another tree; see `add`."""
        for path, entry in other.entries.items():
            self.add(path, entry)

    def _count(self, path: str, entry: Entry) -> None:
        if len(self.entries) >= self._max_entries:
            raise UserFault(describe_path(path, entry.package), f"the image has more than {self._max_entries} files")
        if isinstance(entry, File):
            self.bytes += entry.size
            if self.bytes > self._max_bytes:
                raise UserFault(
                    describe_path(path, entry.package),
                    f"the files have more than {self._max_bytes >> 20} MiB together",
                    "image_max in vtorque.yml",
                )

    def _refuse_other(self, path: str, present: Entry, entry: Entry) -> None:
        """Two packages may bring the same thing; not two things."""
        if isinstance(entry, Directory) and isinstance(present, Directory):
            return
        what = f"/{printable(path)}"
        if present.package == entry.package:
            raise UserFault(what, f"is twice in {entry.package}")
        if isinstance(entry, Link) and isinstance(present, Link) and entry.target == present.target:
            return
        if isinstance(entry, File) and isinstance(present, File) and _same(path, entry, present):
            return
        raise UserFault(
            what,
            f"{_KINDS[type(present)]} of {present.package}, and another ({_KINDS[type(entry)]}) of {entry.package}",
            "leave it out of one of them (.capstanignore)",
        )

    def find(self, path: str) -> tuple[str, Entry] | None:
        """Return where a path leads, through links, and what is there; None: nothing in the image.

        Args:
            path: in the image.

        Raises:
            RecursionError: its links lead in a circle.
        """
        todo = [part for part in path.split("/") if part][::-1]
        place: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                place = place[:-1]
                continue
            entry = self.entries.get("/".join((*place, part)))
            if entry is None:
                return None
            if isinstance(entry, Link):
                links += 1
                if links > MAX_LINKS:
                    raise RecursionError
                if entry.target.startswith("/"):
                    place = []
                todo += [more for more in entry.target.split("/") if more][::-1]
                continue
            place.append(part)
            if todo and not isinstance(entry, Directory):
                return None
        where = "/".join(place)
        return where, self.entries[where] if where else Directory("")

    def check_links(self, packages: t.Collection[str]) -> None:
        """See that links of packages lead to something in the image, or to what OSv mounts.

        Args:
            packages: whose links are checked; what OSv's own build brings in a base is not.

        Raises:
            UserFault: one leads out of the image, nowhere, or in a circle.
        """
        for path, entry in self.entries.items():
            if isinstance(entry, Link) and entry.package in packages:
                self._check_link(path, entry)

    def _check_link(self, path: str, link: Link) -> None:
        what = describe_path(path, link.package)
        target = printable(link.target)
        base = "" if link.target.startswith("/") else posixpath.dirname(path)
        whole = posixpath.normpath(posixpath.join("/", base, link.target)).lstrip("/")
        if _climbs(base, link.target):
            raise UserFault(what, f"is a link to {target}, which leads out of the image")
        if whole.partition("/")[0] in RUNTIME:
            return
        try:
            found = self.find(path)
        except RecursionError:
            raise UserFault(what, f"is a link to {target}, and its way is a circle") from None
        if found is None and not self._mounted(path):
            raise UserFault(
                what,
                f"is a link to {target}, which is not in the image",
                "put what it names into the package, or leave the link out (.capstanignore)",
            )

    def _mounted(self, path: str) -> bool:
        """Return whether the last link of a chain leads to what OSv mounts."""
        for _step in range(MAX_LINKS):
            entry = self.entries.get(path)
            if not isinstance(entry, Link):
                return path.partition("/")[0] in RUNTIME
            path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), entry.target)).lstrip("/")
        return False


def _clean(path: str, package: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    clean = "/".join(parts)
    what = f"{printable(path[:200])!a} of {package}"
    if ".." in parts:
        raise UserFault(what, "leads out of the package")
    if "\0" in path:
        raise UserFault(what, "holds a NUL")
    if any(len(os.fsencode(part)) > MAX_NAME for part in parts) or len(os.fsencode(clean)) > MAX_PATH:
        raise UserFault(what, f"OSv takes names of {MAX_NAME} bytes and paths of {MAX_PATH}")
    if len(parts) > MAX_DEPTH:
        raise UserFault(what, f"lies in more than {MAX_DEPTH} directories")
    return clean


def _check_target(path: str, link: Link) -> None:
    if not link.target or "\0" in link.target or len(os.fsencode(link.target)) > MAX_PATH:
        raise UserFault(describe_path(path, link.package), f"is a link whose target is empty, or over {MAX_PATH} bytes")


def _climbs(base: str, target: str) -> bool:
    """Return whether a target goes above the root on its way."""
    depth = len([part for part in base.split("/") if part])
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return True
    return False


def _same(path: str, one: File, other: File) -> bool:
    if one.size != other.size:
        return False
    pairs = zip(read_pieces(path, one), read_pieces(path, other), strict=False)
    return all(first == second for first, second in pairs)

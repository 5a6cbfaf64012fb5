# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package in a directory, as capstan composes it: its files as they lie in the image, beside `meta/`.

The files are their owner's, who may change them meanwhile: no link is followed, and a file that is another one when it
is written ends the composition.
"""

from __future__ import annotations

import os
import pathlib
import re
import stat
import typing as t

from ...errors import UserFault
from .metadata import MAX_BYTES
from .tree import Directory, File, Link, Tree, describe_path

ALWAYS_OUT = ("/meta", "/mpm-pkg", "/.git", "/.capstanignore")
"""What is never part of an image (capstan, core/capstanignore.go)."""
_IGNORE = ".capstanignore"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SPECIAL = {
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def read_directory(path: pathlib.Path, package: str, tree: Tree, *, whole: bool = False) -> None:
    """Read what lies in a directory into a tree; the content of files is read when it is written.

    Args:
        path: of the directory.
        package: what it is called.
        tree: gets its files, without those that `.capstanignore` leaves out.
        whole: take all files, also `meta/`.

    Raises:
        UserFault: it cannot be read, or holds what no image can have.
    """
    try:
        root = os.open(path, _OPEN | os.O_DIRECTORY)
        try:
            ignored = () if whole else _read_ignored(path)
            _read_level(path, root, "", package, tree, ignored)
        finally:
            os.close(root)
    except OSError as error:
        raise UserFault(f"{error.filename or path} of {package}", error.strerror or str(error)) from error


def read_small_file(path: pathlib.Path, parts: str) -> bytes | None:
    """Read a file of a package's directory, bounded.

    Args:
        path: of the directory.
        parts: the file's place in it.

    Returns:
        What it holds, with a byte too many at most; None: there is none.

    Raises:
        UserFault: it cannot be read.
    """
    try:
        with _open_beneath(path, parts) as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserFault(f"{path / parts}", error.strerror or str(error)) from error


def ignore_pattern(pattern: str) -> re.Pattern[str]:
    """Return the pattern of a line of `.capstanignore` (capstan, Documentation/Capstanignore.md).

    `*` is a part of one name, `/**/` is any way down, and `/*` at the end is all below.

    Args:
        pattern: the line; it begins with a slash, which is the package.
    """
    parts = re.split(r"(/\*\*/|/\*$|\*)", pattern)
    meaning = {"/**/": "/(?:.*/)?", "/*": "(?:/.*)?", "*": "[^/]*"}
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _read_ignored(path: pathlib.Path) -> tuple[re.Pattern[str], ...]:
    content = read_small_file(path, _IGNORE) or b""
    if len(content) > MAX_BYTES:
        raise UserFault(f"{path / _IGNORE}", f"has more than {MAX_BYTES} bytes")
    lines = [line.strip() for line in content.decode("utf-8", "surrogateescape").splitlines()]
    return tuple(ignore_pattern(line) for line in (*ALWAYS_OUT, *lines) if line and not line.startswith("#"))


def _read_level(
    path: pathlib.Path, fd: int, place: str, package: str, tree: Tree, ignored: tuple[re.Pattern[str], ...]
) -> None:
    with os.scandir(fd) as found:
        names = sorted((entry.name for entry in found), key=os.fsencode)
    for name in names:
        where = f"{place}/{name}" if place else name
        if any(pattern.fullmatch(f"/{where}") for pattern in ignored):
            continue
        facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(facts.st_mode):
            tree.add(where, Directory(package))
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=fd)
            try:
                _read_level(path, below, where, package, tree, ignored)
            finally:
                os.close(below)
        elif stat.S_ISLNK(facts.st_mode):
            tree.add(where, Link(os.readlink(name, dir_fd=fd), package))
        else:
            refuse_mode(where, package, facts.st_mode)
            tree.add(where, File(facts.st_size, _opener(path, where, facts), package))


def refuse_mode(place: str, package: str, mode: int) -> None:
    """Refuse what is no plain file, and a file that would run as another user.

    Args:
        place: of the file, for messages.
        package: it is in.
        mode: of it.

    Raises:
        UserFault: an image cannot have it.
    """
    if kind := _SPECIAL.get(stat.S_IFMT(mode)):
        raise UserFault(describe_path(place, package), f"is {kind}", "an image has files, links and directories alone")
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise UserFault(
            describe_path(place, package),
            "is setuid or setgid",
            "OSv has no users, and such a program would expect them: chmod ug-s",
        )


def _opener(path: pathlib.Path, place: str, facts: os.stat_result) -> t.Callable[[], t.BinaryIO]:
    def open_file() -> t.BinaryIO:
        stream = _open_beneath(path, place)
        now = os.fstat(stream.fileno())
        if [now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_mode] != [
            facts.st_dev,
            facts.st_ino,
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_mode,
        ]:  # the same file as when it was judged
            stream.close()
            raise UserFault(f"{path / place}", "was changed while the image was composed", "try again")
        return stream

    return open_file


def _open_beneath(path: pathlib.Path, place: str) -> t.BinaryIO:
    """Open a file below a directory; no part of its place is followed when it is a link."""
    *above, name = place.split("/")
    fd = os.open(path, _OPEN | os.O_DIRECTORY)
    try:
        for part in above:
            below = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.fdopen(os.open(name, _OPEN, dir_fd=fd), "rb", buffering=0)
    finally:
        os.close(fd)

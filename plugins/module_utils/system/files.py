# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that root writes: whole or not at all, with their final owner, mode and ACL."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import stat
import typing as t

from ..effects import leaves_nothing
from ..errors import VTorqueError
from .acl import _grant, let_read

HALF = re.compile(r"\..+\.([0-9]+)")
"""What a file is called while it is written, with the number of the process (`write`, `shell_links.point`)."""


def make_directory(path: pathlib.Path, mode: int = 0o711) -> None:
    """Make a directory of root's, and those above it that are missing, whatever the umask is.

    It is never open to more than its mode, not for a moment: who opened it then would keep what they had.
    Torque runs `prologue` with umask 0077 (torque.md), and the job's owner must pass through.

    Args:
        path: absolute.
        mode: its own; those above it get 0711.  One that is there keeps what it has.

    Raises:
        VTorqueError: it is not there and was not made.
    """
    try:
        for part in reversed([path, *path.parents]):
            if not part.is_dir():
                wanted = mode if part == path else 0o711
                part.mkdir(wanted, exist_ok=True)
                if stat.S_IMODE(part.stat().st_mode) != wanted:  # the umask is narrow
                    part.chmod(wanted)
    except OSError as error:
        raise VTorqueError(f"{path} was not made", str(error)) from error


def make_record_directory(path: pathlib.Path, reader_uid: int | None = None) -> None:
    """Make the directory of one start's record, which the job's owner may list.

    That a job was there is no secret (the batch server tells everybody), so the directory of all records may be
    listed: by it a short job id is found.  What lies in a record is its owner's alone.

    Args:
        path: absolute; its parent holds all records of this host.
        reader_uid: the job's owner; None: not known, and nobody's right to list it changes.

    Raises:
        VTorqueError: it is not there and was not made.
    """
    make_directory(path)
    try:
        if stat.S_IMODE(path.parent.stat().st_mode) == 0o711:
            path.parent.chmod(0o755)
        if reader_uid is not None:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _grant(fd, reader_uid, 5, others=1)
            finally:
                os.close(fd)
    except OSError as error:
        raise VTorqueError(f"{path} was not opened to its owner", str(error)) from error


def write(path: pathlib.Path, content: str, *, reader_uid: int | None = None, mode: int = 0o400) -> None:
    """Write a file of root's that appears whole, with its final owner and mode, or not at all.

    Args:
        path: where; its directory exists and is root's.
        content: the text.
        reader_uid: a user who may read it, granted by an ACL: never by group, never by ownership (a group may be
            shared by everybody, and an owner could change the file).
        mode: 0o444 for what everybody may read.

    Raises:
        VTorqueError: the file or its ACL could not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o400)
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            os.fchmod(fd, mode)
            stream.write(content)
            if reader_uid is not None:
                stream.flush()
                let_read(fd, reader_uid)
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise VTorqueError(f"{path} was not written", str(error)) from error


def remove_halves(directory: pathlib.Path) -> tuple[str, ...]:
    """Take away what `write` began here in processes that are gone: a kill cut them short.

    Args:
        directory: root's.

    Returns:
        Names of the files.

    Raises:
        OSError: one would not go.
    """
    removed = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        half = HALF.fullmatch(path.name)
        if half and not pathlib.Path("/proc", half[1]).exists():
            path.unlink(missing_ok=True)
            removed.append(path.name)
    return tuple(removed)


def write_json(path: pathlib.Path, thing: t.Any, *, reader_uid: int | None = None) -> None:
    """`write`, for a dataclass.

    Args:
        path: where.
        thing: the dataclass.
        reader_uid: a user who may read it.

    Raises:
        VTorqueError: it was not written.
    """
    write(path, json.dumps(dataclasses.asdict(thing), ensure_ascii=False), reader_uid=reader_uid)


@leaves_nothing
def read_json(path: pathlib.Path, *, limit: int = 1 << 20) -> dict[str, t.Any]:
    """Read a record that only root can have written.

    Args:
        path: where.
        limit: greatest size, in bytes.

    Returns:
        The record.

    Raises:
        FileNotFoundError: there is none.
        VTorqueError: it is not a regular file of root's that nobody else may write, or not JSON.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(fd, encoding="utf-8") as stream:
        facts = os.fstat(fd)
        # with an ACL the group bits are the ACL's mask: write stays out of it
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != 0 or facts.st_mode & 0o022:
            raise VTorqueError(f"{path}", "not a file that only root can write: not believed")
        try:
            data = json.loads(stream.read(limit))
        except (ValueError, RecursionError) as error:
            raise VTorqueError(f"{path}", f"not a record: {error}") from error
    if not isinstance(data, dict):
        raise VTorqueError(f"{path}", "not a record")
    return data

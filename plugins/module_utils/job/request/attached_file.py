# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of the user's own that goes to their guest: a path and a digest say which, whoever reads it.

Only processes of the user's own uid read it: at submission, and again when the job starts.
"""

from __future__ import annotations

import os
import stat
import typing as t

from ...errors import UserFault
from ...frozen import frozen
from ...slow_libraries import load_library
from .value_types import BadValue, format_value

MAX_BYTES = 1 << 20


@frozen
class FileFault:
    """One thing that is wrong in a user's file.

    Attributes:
        line: where, from 1; 0: nowhere in particular.
        message: what, with the value that was wrong, and what is allowed.
    """

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class FileErrors(UserFault):
    """Everything that is wrong with a user's file, reported at once.

    Attributes:
        KEY: of the request that names the file.
        faults: one for each thing, by line.
    """

    KEY = ""

    def __init__(self, path: str, faults: t.Sequence[FileFault]) -> None:
        super().__init__(f"{self.KEY} {format_value(path)}", "; ".join(map(str, faults)))
        self.faults = tuple(faults)


def inspect_file(word: str, directory: str, *, runs: bool = True) -> tuple[str, bytes]:
    """What a request says of a file.

    Args:
        word: the path as the user wrote it.
        directory: what a relative one is relative to.
        runs: it is a script.

    Returns:
        The absolute path, and what is there now.

    Raises:
        BadValue: it cannot be read, or is not a script that a guest could run.
    """
    path = os.path.normpath(os.path.join(directory, word))  # noqa: PTH118 - text in, text out
    if not path.startswith("/") or not path.isprintable():
        raise BadValue("not a path that can travel in a request")
    content = read(path)
    if runs and not os.access(path, os.X_OK):
        raise BadValue(f"{format_value(path)} is not executable (chmod +x)")
    return path, content


def read(path: str) -> bytes:
    """The content of a file.

    Args:
        path: absolute.

    Raises:
        BadValue: it is not a readable file of at most 1 MiB.
    """
    try:
        # a named pipe would wait for a writer
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise BadValue(f"{format_value(path)} is not a file")
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadValue(f"{format_value(path)} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise BadValue(f"{format_value(path)} is longer than 1 MiB")
    return content


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return str(load_library("hashlib").sha256(content).hexdigest())

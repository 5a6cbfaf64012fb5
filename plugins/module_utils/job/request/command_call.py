# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system's own command gets in place of what the user typed, and where the user's words stand."""

from __future__ import annotations

import os
import stat

from ...frozen import frozen
from .request import RequestErrors
from .value_types import KeyFault

COMMAND_LINE = "command line"
"""Where a word stands that is in no file."""


@frozen
class CommandCall:
    """One call of the command that takes jobs.

    Attributes:
        argv: its arguments; where it reads a file, the path as the user wrote it.
        text: the script that it must read in place of the user's file, or on standard input; None: it reads that file.
        at: index of the word that names the file, in whose place a copy of `text` is put; -1: it reads standard input,
            or no script at all.
        name: of the script, and of its copy, after which the command may name the job.
        note: how `text` differs from the user's script, for people; "": it does not.
        refusal: why the command refuses the user's script, which it does not explain itself; "": it does not.
    """

    argv: tuple[str, ...]
    text: bytes | None = None
    at: int = -1
    name: str = ""
    note: str = ""
    refusal: str = ""


def read_script_file(path: str) -> bytes:
    """Read the file of a script.

    Args:
        path: as the user wrote it.

    Raises:
        RequestErrors: it is not there, cannot be read, or is no regular file.
    """
    try:
        # a named pipe would wait for a writer; the commands take regular files alone
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise RequestErrors([KeyFault(path, "", "the script is not a file")])
            return stream.read()
    except OSError as error:
        raise RequestErrors([KeyFault(path, "", f"the script cannot be read: {error.strerror}")]) from error

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node tells the mother superior of the consoles of guests that have gone, whose whole it keeps itself."""

from __future__ import annotations

import os
import pathlib

from ...state.layout import CONSOLE_END
from ...wire.node_answers import CONSOLE_LENGTH, GuestConsole

LIMIT = 1 << 18
"""Bytes in JSON for all of them together: an answer of 1 MiB is not read, and a guest chooses what it writes."""
PLAIN, ANY = 2, 12
"""Bytes of a character in JSON at most: a quote, or the end of a line; and one beyond U+FFFF, which is two escapes."""


def read_ends(record: pathlib.Path) -> tuple[GuestConsole, ...]:
    """The ends of the consoles that are kept of a start; one that cannot be read is left out.

    Args:
        record: the directory of the job's record on this node.

    Returns:
        By name; of each at most an equal share of `LIMIT`.
    """
    paths = sorted(record.glob(f"*{CONSOLE_END}"))
    share = LIMIT // max(1, len(paths))
    found = []
    for path in paths:
        text = _end_of(path, share)
        if text:
            found.append(GuestConsole(path.name.removesuffix(CONSOLE_END), text))
    return tuple(found)


def _end_of(path: pathlib.Path, share: int) -> str:
    """Return the last whole lines of a console, without control characters (`remove.save_console`)."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            whole = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, whole - CONSOLE_LENGTH))
            text = stream.read(CONSOLE_LENGTH).decode("utf-8", "replace")
    except OSError:
        return ""
    end = text[-(share // (PLAIN if text.isascii() else ANY)) :]
    return end if len(end) == len(text) and whole <= CONSOLE_LENGTH else end.partition("\n")[2] or end

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why Torque's qsub does not take the text of a script, with the place and the remedy, which it does not name.

As qsub of TORQUE 6 judges it (istext and isWindowsFormat in its qsub_functions.c): the first bytes must be ASCII that
prints, or blanks; no line may end with a carriage return.  It looks at files alone: of a script on standard input it
takes the carriage returns away.
"""

from __future__ import annotations

import shlex

VERIFIED_BYTES = 50
"""MMAX_VERIFY_BYTES."""
LINE_PART = 2047
"""Of a longer line it looks at the end of each part (MAXBUF, less the byte that ends it)."""
BLANKS = b"\t\n\v\f\r"
MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Byte order marks: of UTF-8 and of UTF-16."""


def find_fault(data: bytes, path: str) -> str:
    """Return why qsub does not take a script from a file, and what to do; "" where it does.

    Args:
        data: the script.
        path: its file, as the user wrote it.
    """
    at = next((i for i, byte in enumerate(data[:VERIFIED_BYTES]) if not (0x20 <= byte < 0x7F or byte in BLANKS)), -1)
    if data.startswith(MARKS):
        return f"{path} begins with a byte order mark (line 1, byte 1): dos2unix {shlex.quote(path)} takes it away"
    if at >= 0:
        line, column = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
        place = f"{path}, line {line}, byte {column} is 0x{data[at]:02x}"
        if data[at] < 0x80:
            return f"{place}, which no text has: if this is a program, write a script that calls it"
        return f"{place}, no ASCII: write it otherwise, or behind the first {VERIFIED_BYTES} bytes of the file"
    if line := _windows_line(data):
        return f"{path}, line {line} ends with a carriage return: dos2unix {shlex.quote(path)} takes all of them away"
    return ""


def find_mark(data: bytes) -> str:
    """Return what becomes of a script on standard input that begins with a byte order mark; "" where none does.

    Args:
        data: the script.
    """
    if not data.startswith(MARKS):
        return ""
    return (
        "standard input begins with a byte order mark: its first line is a command for qsub, and no #PBS line counts; "
        "dos2unix takes it away"
    )


def _windows_line(data: bytes) -> int:
    """Return the number of the first line whose last character but one is a carriage return, 0 where none has."""
    *whole, rest = data.split(b"\n")
    for number, line in enumerate([*(line + b"\n" for line in whole), rest], 1):
        parts = (line[at : at + LINE_PART].partition(b"\0")[0] for at in range(0, len(line), LINE_PART))
        if b"\r" in line and any(part[-2:-1] == b"\r" for part in parts):
            return number
    return 0

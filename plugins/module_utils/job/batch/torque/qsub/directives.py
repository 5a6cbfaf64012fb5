# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
r"""The `#PBS` lines of a job script, read as qsub reads them, and a copy in which the `-vm` ones say nothing.

As qsub of TORQUE 6 does it (get_script, ispbsdir, isexecutable and make_argv in its qsub_functions.c): blanks may
stand before the prefix; nothing need stand after it; a backslash at the end joins the next line, wherever that is;
the first line that is neither a directive nor empty nor a comment nor begins with `:` ends the reading.  Quotes
and backslashes are the shell's, without its variables.
"""

from __future__ import annotations

import os
import typing as t

from .....frozen import frozen
from .arguments import VM, Arguments

PREFIX = b"#PBS"
BLANKS = b" \t\n\v\f\r"
LONGEST = 32767
"""qsub reads at most so many bytes of a line at a time, and takes what follows for a line (MAX_LINE_LEN)."""


@frozen
class Word:
    """One argument of a directive: what it says, and the places of its bytes (quotes included) in the script."""

    text: str
    places: tuple[int, ...]


@frozen
class Directive:
    """One directive: the number of the line in which it begins, its words, and what qsub makes of them."""

    line: int
    arguments_as_written: tuple[Word, ...]
    arguments: Arguments


@frozen
class Script:
    """A job script, taken apart.

    Attributes:
        data: the script, byte for byte.
        name: how messages call it.
        directives: in order.
    """

    data: bytes
    name: str
    directives: tuple[Directive, ...]

    @property
    def vm_texts(self) -> tuple[tuple[str, str], ...]:
        """What each `-vm` of the script says, and where it stands, for `request.parse`."""
        return tuple((option.value or "", self.origin(d)) for d in self.directives for option in d.arguments.all(VM))

    @property
    def vm_lines(self) -> tuple[int, ...]:
        """Numbers of the lines with a `-vm`."""
        return tuple(d.line for d in self.directives if d.arguments.all(VM))

    @property
    def neutral(self) -> bytes:
        """The script with blanks in place of each `-vm` and its value.

        Everything else stays in its place, byte for byte: the other options of the same line, line ends, what a
        continued line continues, and a prefix that is no comment of the script's language.
        """
        data = bytearray(self.data)
        for directive in self.directives:
            for option in directive.arguments.all(VM):
                for index in sorted({option.word, option.value_word if option.value is not None else option.word}):
                    for place in directive.arguments_as_written[index].places:
                        if data[place] not in b"\r\n":  # an unmatched quote reaches over the line's end
                            data[place] = ord(" ")
        return bytes(data)

    def origin(self, directive: Directive) -> str:
        """Where a directive stands, for messages."""
        return f"{self.name}, line {directive.line}"

    def last(self, name: str) -> tuple[str, str] | None:
        """The value of the last option of that name among the directives, and where it stands."""
        found = [(o.value, self.origin(d)) for d in self.directives for o in d.arguments.all(name)]
        return (found[-1][0] or "", found[-1][1]) if found else None


def read(data: bytes, name: str, prefix: bytes = PREFIX) -> Script:
    """Take a job script apart.

    Args:
        data: the script, in any encoding that has ASCII in it.
        name: how messages call it.
        prefix: what directives begin with; an empty one means that there are none (`-C ""`).
    """
    lines = list(_lines(data))
    directives: list[Directive] = []
    index = 0
    while index < len(lines):
        number, start, line = lines[index]
        text = line.lstrip(BLANKS)
        index += 1
        if prefix and text.startswith(prefix):
            places = list(range(start + len(line) - len(text) + len(prefix), start + len(line)))
            while (more := _continued(data, places)) is not None and index < len(lines):
                _number, start, line = lines[index]
                places = [*more, *range(start, start + len(line))]
                index += 1
            split_words = tuple(_split_arguments(data, places))
            directives.append(Directive(number, split_words, Arguments.read([word.text for word in split_words])))
        elif _is_command(line, text):
            break
    return Script(data, name, tuple(directives))


def _lines(data: bytes) -> t.Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line, its end included."""
    start = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        whole = data[start : start + len(line) + 1]
        for at in range(0, len(whole), LONGEST):
            yield number, start + at, whole[at : at + LONGEST]
        start += len(whole)


def _continued(data: bytes, places: list[int]) -> list[int] | None:
    """The places without a trailing backslash and line end, None when the line is not continued."""
    end = bytes(data[place] for place in places[-3:])
    for tail in (b"\\\r\n", b"\\\n"):
        if end.endswith(tail):
            return places[: -len(tail)]
    return None


def _is_command(line: bytes, text: bytes) -> bool:
    if line.startswith((b":", b"#!")):
        return False
    return bool(text) and not text.startswith(b"#")


def _split_arguments(data: bytes, places: t.Sequence[int]) -> t.Iterator[Word]:
    """The words of a directive; an unmatched quote, which qsub refuses, reaches to the end."""
    word, quote, escaped = bytearray(), 0, False
    covered: list[int] = []
    for place in places:
        byte = data[place]
        if not quote and not escaped and byte in BLANKS:
            if covered:
                yield Word(os.fsdecode(bytes(word)), tuple(covered))
            word, covered = bytearray(), []
            continue
        covered.append(place)
        if escaped:
            word.append(byte)
            escaped = False
        elif byte == quote:
            quote = 0
        elif quote:
            word.append(byte)
        elif byte in b"\"'":
            quote = byte
        elif byte == ord("\\"):
            escaped = True
        else:
            word.append(byte)
    if covered:
        yield Word(os.fsdecode(bytes(word)), tuple(covered))

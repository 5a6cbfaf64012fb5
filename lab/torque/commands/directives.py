# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the `#PBS` lines of a script as qsub reads them."""

from __future__ import annotations

from ..shared.options import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t


def split_words(line: str) -> list[str]:
    """Words of a directive: blanks part them, quotes and backslashes protect."""
    arguments: list[str] = []
    word: list[str] | None = None
    quote = ""
    characters = iter(line)
    for character in characters:
        if character == "\\":
            word = [*(word or []), next(characters, "")]
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = [*(word or []), character]
        elif character in "\"'":
            quote = character
            word = word or []
        elif character.isspace():
            if word is not None:
                arguments.append("".join(word))
            word = None
        else:
            word = [*(word or []), character]
    if word is not None:
        arguments.append("".join(word))
    return arguments


def is_command(line: str) -> bool:
    """Return whether the script's own text begins here, so that later directives are comments."""
    if line.startswith((":", "#!")):
        return False
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#")


def read(script: str, prefix: str) -> t.Iterator[list[str]]:
    """The words of each directive before the first command; a backslash at a line's end continues it.

    Raises:
        UsageError: the script ends in a continued directive.
    """
    lines = iter(script.splitlines())
    for line in lines:
        stripped = line.lstrip()
        if prefix and stripped.startswith(prefix):
            text = stripped[len(prefix) :]
            while text.endswith("\\"):
                following = next(lines, None)
                if following is None:
                    raise UsageError("unexpected end-of-file or read error in script")
                text = text[:-1] + following
            yield split_words(text)
        elif is_command(line):
            return

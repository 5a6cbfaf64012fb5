# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one program that a job in OSv is: its script without comments, read without a shell, for there is none."""

from __future__ import annotations

import re
import shlex
import typing as t

from ...errors import UserFault

OPERATORS = frozenset("|&;<>()`")
VARIABLE = re.compile(r"[^$]*\$[A-Za-z_][A-Za-z0-9_]*")
"""OSv takes what follows the first `$` of a word for the name of a variable (core/commands.cc)."""
HINT = "see the user manual on OSv"


def read(script: bytes, arguments: bytes = b"") -> tuple[str, ...]:
    """The words of the job's one command.

    Args:
        script: its lines that are empty or begin with `#` say nothing; one command remains, which a backslash at the
            end of a line continues in the next.
        arguments: `qsub -F`, added to it.

    Returns:
        Its words, the program's path first.

    Raises:
        UserFault: it is none that can be run without a shell.
    """
    try:
        text, more = script.decode(), arguments.decode()
    except UnicodeDecodeError:
        raise UserFault("the job's script", "is not UTF-8", HINT) from None
    lines = text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()
    commands = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(commands) != 1:
        why = f"{len(commands) or 'no'} commands: a job in OSv is one program, and there is no shell for more"
        raise UserFault("the job's script", why, HINT)
    argv = (*_split_line(commands[0]), *_split_line(more))
    if not argv[0].startswith("/"):
        raise UserFault("the job's script", f"{argv[0][:80]!a} is not the path of a program in the image", HINT)
    for word in argv:
        if "\0" in word or ("$" in word and not VARIABLE.fullmatch(word)):
            why = f"{word[:80]!a}: in OSv a $ begins the name of a variable that ends the word"
            raise UserFault("the job's script", why, HINT)
    return argv


def _split_line(line: str) -> list[str]:
    if found := sorted(set(_unquoted(line)) & OPERATORS):
        raise UserFault("the job's script", f"{' '.join(found)} is for a shell, and OSv has none", HINT)
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UserFault("the job's script", str(error).lower(), HINT) from None


def _unquoted(line: str) -> t.Iterator[str]:
    """The characters that a shell would not take for themselves."""
    quote, escaped = "", False
    for character in line:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            yield character

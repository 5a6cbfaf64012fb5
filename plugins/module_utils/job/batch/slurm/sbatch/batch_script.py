# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job script with its `#SBATCH` lines, as sbatch reads them, and its `#VM` lines."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t

from .....errors import UserFault
from . import options

HET_LINES = frozenset({"hetjob", "packjob"})
"""First words of `#SBATCH` lines between the components of such a job; a `:` does the same among arguments."""


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script as its user wrote it.

    Attributes:
        data: all of it.
        name: for people, and the job's name where none is given.
        vm: texts of its `#VM` lines, each with the number of its line.
        given: values of the options in its `#SBATCH` lines, by their long names.
        het: the numbers of lines that begin another component of the job.
    """

    data: bytes
    name: str
    vm: tuple[tuple[str, int], ...] = ()
    given: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    het: tuple[int, ...] = ()


def read_script(data: bytes, name: str, origin: str = "") -> Script:
    """Read a script's directives: they stand before its first command, as for sbatch.

    Args:
        data: of the script.
        name: of its file.
        origin: how a message names it; "": by its file.

    Raises:
        UserFault: it does not begin with an interpreter line, without which sbatch takes no script.
    """
    if not data.startswith(b"#!"):
        raise UserFault(
            origin or f"the script {name}", "does not begin with #! and the path of an interpreter", "#!/bin/sh"
        )
    vm: list[tuple[str, int]] = []
    given: dict[str, str] = {}
    het: list[int] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and not line.startswith(b"#"):
            break
        if found := re.match(rb"#VM[ \t]+(.*)", line):
            vm.append((found[1].decode(errors="replace").strip(), number))
        elif found := re.match(rb"#SBATCH[ \t]+(.*)", line):
            text = found[1].decode(errors="replace")
            het += [number] if HET_LINES.intersection(text.split()[:1]) else []
            given |= _of_line(text)
    return Script(data, name, tuple(vm), given, tuple(het))


def _of_line(text: str) -> dict[str, str]:
    """The options in a `#SBATCH` line, whose words are quoted as for a shell."""
    try:
        rest = shlex.split(text, comments=True)
    except ValueError:  # sbatch will say so
        rest = text.split()
    given: dict[str, str] = {}
    while rest:
        if rest[0].startswith("-") and len(rest[0]) > 1:
            given |= options.take(rest)[0]
        else:
            rest.pop(0)
    return given

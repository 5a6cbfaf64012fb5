# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of OpenPBS's qsub as getopt(3) reads them, the `#PBS` lines of a script, and sizes in `-l`."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t

from ....errors import UserFault

VM = ("-vm", "--vm")
QUERY = "--query"
OWN = frozenset({"--dry-run", "--json", "--help", "--version"})
VALUED = frozenset("aAcCeJjkKlmMNopPqrRSuvW")
"""Letters of options that take a value (qsub(1B) of OpenPBS 23.06); every other letter is a flag (f G h I V X z)."""
OF_TORQUE = frozenset("dDFLtTwi")
"""Those of Torque, which are refused with what to write instead: their values are no scripts."""
PREFIX = b"#PBS"
_VM_WORD = re.compile(rb"""(?<=[ \t])--?vm(?:(?:[ \t]+|=)("[^"]*"|'[^']*'|[^\s"']+))?(?=\s|$)""")


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """A word with options, and the word of its value where that is one of its own.

    Attributes:
        argv: as it is there.
        given: options and their values; a flag has "".
    """

    argv: tuple[str, ...]
    given: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call, or those of a directive.

    Attributes:
        options: qsub's, without ours.
        vm: the texts of `-vm`.
        own: our other words, and their values.
        operands: the script's path, and what stands behind it.
        program: what stands after `--`; None: there is no such word.
    """

    options: tuple[Option, ...]
    vm: tuple[str, ...] = ()
    own: t.Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    operands: tuple[str, ...] = ()
    program: tuple[str, ...] | None = None

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """Options and their values, in order."""
        return tuple(pair for option in self.options for pair in option.given)

    @property
    def argv(self) -> tuple[str, ...]:
        """All words but ours."""
        after = () if self.program is None else ("--", *self.program)
        return (*(word for option in self.options for word in option.argv), *self.operands, *after)

    def last(self, letter: str) -> str | None:
        """The value of the last option of that letter, which is the one that counts for qsub; None without one."""
        found = [value for name, value in self.given if name == letter]
        return found[-1] if found else None

    def named(self, letter: str) -> dict[str, str]:
        """What `-l` or `-W` says, by name; of two values the later one counts."""
        return {name: value for one, text in self.given if one == letter for name, value in assignments(text)}


def read(argv: t.Sequence[str]) -> Arguments:
    """Read words as qsub does, and take ours out.

    Args:
        argv: without the program's name.

    Raises:
        UserFault: the value of an option is missing, or a long word is neither ours nor qsub's.
    """
    rest = list(argv)
    options: list[Option] = []
    vm: list[str] = []
    own: dict[str, str | None] = {}
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in VM:
            vm.append(value if equals else _next(rest, name))
        elif word in OWN or name == QUERY:
            own[name] = value if equals else (rest.pop(0) if name == QUERY and rest else None)
        elif word.startswith("--"):
            raise UserFault(word, "no such option", "see vsub --help")
        else:
            options.append(_option(word, rest))
    if rest[:1] == ["--"]:
        return Arguments(tuple(options), tuple(vm), own, (), tuple(rest[1:]))
    return Arguments(tuple(options), tuple(vm), own, tuple(rest))


def _option(word: str, rest: list[str]) -> Option:
    given: list[tuple[str, str]] = []
    for place, letter in enumerate(word[1:], 2):
        if letter not in VALUED | OF_TORQUE:
            given.append((letter, ""))
        elif word[place:]:
            return Option((word,), (*given, (letter, word[place:])))
        else:
            value = _next(rest, f"-{letter}")
            return Option((word, value), (*given, (letter, value)))
    return Option((word,), tuple(given))


def _next(rest: list[str], name: str) -> str:
    if not rest:
        raise UserFault(name, "its value is missing", "see vsub --help")
    return rest.pop(0)


def assignments(text: str) -> list[tuple[str, str]]:
    """The `name=value,...` of one `-l` or `-W`; a value with commas stands in quotes."""
    form = r"""\s*([^=,\s]+)\s*(?:=\s*("[^"]*"|'[^']*'|[^,]*))?(?:,|$)"""
    return [(name, value.strip("\"'")) for name, value in re.findall(form, text)]


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A script as its user wrote it.

    Attributes:
        data: all of it.
        name: how messages call it.
        neutral: the same with blanks in place of each `-vm` of a directive, which qsub would read as `-v m`.
        vm: texts of `#VM` lines and of `-vm`, each with the number of its line.
        directives: the words of each `#PBS` line, with the number of the line.
    """

    data: bytes
    name: str
    neutral: bytes
    vm: tuple[tuple[str, int], ...] = ()
    directives: tuple[tuple[Arguments, int], ...] = ()

    def place(self, number: int) -> str:
        """Where a line stands, for messages."""
        return f"{self.name}, line {number}"


def read_script(data: bytes, name: str, prefix: bytes = PREFIX) -> Script:
    """Read a script's lines before its first command: `#PBS` as qsub does, and `#VM`, which is a comment to it.

    Args:
        data: of the script.
        name: how messages call it.
        prefix: what directives begin with (`-C`); an empty one means that there are none.

    Raises:
        UserFault: the value of an option is missing.
    """
    vm: list[tuple[str, int]] = []
    directives: list[tuple[Arguments, int]] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if prefix and line.startswith(prefix):
            found = read(_split_directive(line[len(prefix) :].decode(errors="replace")))
            directives.append((found, number))
            vm += [(text, number) for text in found.vm]
            lines[number - 1] = _VM_WORD.sub(lambda match: b" " * len(match[0]), line) if found.vm else line
        elif match := re.match(rb"#VM[ \t]+(.*)", line):
            vm.append((match[1].decode(errors="replace").strip(), number))
        elif line.strip() and not line.startswith((b"#", b":")):
            break
    return Script(data, name, b"\n".join(lines), tuple(vm), tuple(directives))


def _split_directive(text: str) -> list[str]:
    """The words of a directive, which are quoted as for a shell."""
    try:
        return shlex.split(text)
    except ValueError:  # qsub will say so
        return text.split()


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """One part of `-l select`.

    Attributes:
        count: how many of it.
        resources: what each has, in order.
    """

    count: int
    resources: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return ":".join((str(self.count), *(f"{name}={value}" for name, value in self.resources)))

    def value(self, name: str) -> str:
        """The value of a resource; "": none is given."""
        return dict(self.resources).get(name, "")

    def put(self, name: str, value: str) -> Chunk:
        """Return the chunk with this value of a resource."""
        return Chunk(self.count, tuple({**dict(self.resources), name: value}.items()))


def read_select(text: str) -> tuple[Chunk, ...] | None:
    """The parts of `2:ncpus=8:mem=4gb+1:ncpus=1`; None when it is of a form that is qsub's to judge.

    Args:
        text: as `-l select=` takes it.
    """
    chunks: list[Chunk] = []
    for part in text.split("+"):
        head, *rest = part.split(":")
        if "=" in head:  # no number means one
            head, rest = "1", [head, *rest]
        pairs = [item.partition("=")[::2] for item in rest]
        if not re.fullmatch(r"[1-9][0-9]{0,5}", head, re.ASCII) or not all(name and value for name, value in pairs):
            return None
        chunks.append(Chunk(int(head), tuple(pairs)))
    return tuple(chunks)

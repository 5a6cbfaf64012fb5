# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What qsub would make of its arguments: enough to find and change what concerns a VM job, and to leave all else alone.

The options are those of TORQUE 6 (qsub(1B); GETOPT_ARGS in its qsub_functions.c).  `-x` takes no value: what follows it
is the script operand.  Words are read as getopt(3) reads them: several flags in one word, a value glued to its
letter, options after the operand too, `--` as the end.
"""

from __future__ import annotations

import re
import typing as t

from .....frozen import frozen

VALUED = frozenset("aAbcCdDeFijJkKlLmMNopPqrStTuvwW")
"""The options that take a value; every other letter is a flag (E f h I n V X x z), or qsub's to refuse."""
OWN_VALUED = frozenset({"--query"})
"""The whole words that take a value; they are vsub's, since qsub has none that does."""
VM = "vm"
"""`-vm` is no option of qsub, which would read it as `-v m`."""


@frozen
class Option:
    """One option among the words.

    Attributes:
        name: its letter, `vm`, or a whole `--word`.
        value: its value, None for a flag, or when the words end before it.
        word: index of the word it stands in.
        at: where in that word its letter is.
        value_word: index of the word that holds the value, -1 for none.
        value_at: where in that word the value begins.
    """

    name: str
    value: str | None = None
    word: int = 0
    at: int = 1
    value_word: int = -1
    value_at: int = 0


@frozen
class Resource:
    """One `name=value` of a `-l` option; `begin` and `end` are its value's place in the option's value."""

    name: str
    value: str
    begin: int
    end: int


@frozen
class Arguments:
    """Words as given, and what they are.

    Attributes:
        argv: all of them, untouched and in order.
        options: what qsub (or vsub) reads as options, in order.
        operands: indices of the words that are neither options nor values.
        permute: whether options were read after the operand too.
    """

    argv: tuple[str, ...]
    options: tuple[Option, ...]
    operands: tuple[int, ...]
    permute: bool = True

    @classmethod
    def read(cls, argv: t.Sequence[str], *, permute: bool = True) -> Arguments:
        """Read words as getopt does.

        Args:
            argv: arguments, without the program's name.
            permute: whether options are read after the operand too; False where POSIXLY_CORRECT is set.
        """
        options: list[Option] = []
        operands: list[int] = []
        index = 0
        while index < len(argv):
            word = argv[index]
            if word == "--":
                operands += range(index + 1, len(argv))
                break
            if not word.startswith("-") or word == "-":
                if not permute:
                    operands += range(index, len(argv))
                    break
                operands.append(index)
            elif word == f"-{VM}" or (word.startswith("--") and not operands):
                options.append(_whole(argv, index))
            else:
                options += _cluster(argv, index)
            last = options[-1] if options else None
            index = max(index + 1, last.value_word + 1 if last else 0)
        return cls(tuple(argv), tuple(options), tuple(operands), permute)

    def all(self, name: str) -> tuple[Option, ...]:
        """Every option of that name, in order."""
        return tuple(option for option in self.options if option.name == name)

    def last(self, name: str) -> str | None:
        """The value of the last option of that name, which is the one that counts for qsub; None without one."""
        found = self.all(name)
        return found[-1].value if found else None

    def resources(self) -> dict[str, str]:
        """What `-l` asks for, by resource; of two values the later one counts."""
        return {r.name: r.value for option in self.all("l") for r in read_resources(option.value or "")}

    def without(self, *names: str) -> Arguments:
        """Return the arguments without the options of these names and their values; flags that share a word stay."""
        argv: list[str | None] = list(self.argv)
        for option in reversed([option for option in self.options if option.name in names]):
            if option.value_word > option.word:
                argv[option.value_word] = None
            word = argv[option.word] or ""
            end = len(word) if option.value is not None else option.at + 1
            rest = word[: option.at] + word[end:] if len(option.name) == 1 else ""
            argv[option.word] = rest if rest not in ("", "-") else None
        return self._again([word for word in argv if word is not None])

    def with_front(self, *argv: str) -> Arguments:
        """Return the arguments with options put before all others."""
        return self._again([*argv, *self.argv])

    def with_resource(self, name: str, value: str) -> Arguments:
        """Return the arguments with `-l name=value`, in place of the value that counts, or before all other options."""
        for option in reversed(self.all("l")):
            for resource in reversed(read_resources(option.value or "")):
                if resource.name == name:
                    begin, end = option.value_at + resource.begin, option.value_at + resource.end
                    argv = list(self.argv)
                    word = argv[option.value_word]
                    argv[option.value_word] = word[:begin] + value + word[end:]
                    return self._again(argv)
        return self.with_front("-l", f"{name}={value}")

    def _again(self, argv: t.Sequence[str]) -> Arguments:
        return Arguments.read(argv, permute=self.permute)


def _whole(argv: t.Sequence[str], index: int) -> Option:
    """`-vm` or a `--word`, with the word after it where it takes one; `--word=value` too."""
    word, equals, glued = argv[index].partition("=")
    if equals and word in OWN_VALUED:
        return Option(word, glued, index, 0, index, len(word) + 1)
    name, at = (VM, 1) if argv[index] == f"-{VM}" else (argv[index], 0)
    if (name != VM and name not in OWN_VALUED) or index + 1 == len(argv):
        return Option(name, None, index, at)
    return Option(name, argv[index + 1], index, at, index + 1, 0)


def _cluster(argv: t.Sequence[str], index: int) -> t.Iterator[Option]:
    """The options of one word: flags, and at most one that takes a value, which is the word's rest or the next word."""
    word = argv[index]
    for at in range(1, len(word)):
        letter = word[at]
        if letter not in VALUED:
            yield Option(letter, None, index, at)
        elif at + 1 < len(word):
            yield Option(letter, word[at + 1 :], index, at, index, at + 1)
            return
        elif index + 1 < len(argv):
            yield Option(letter, argv[index + 1], index, at, index + 1, 0)
            return
        else:
            yield Option(letter, None, index, at)


def read_resources(text: str) -> tuple[Resource, ...]:
    """The `name=value,...` of one `-l`, as qsub takes them apart (its add_verify_resources.c).

    A value ends at a comma outside `[...]`, or, where it begins with a quote, at the next quote.

    Args:
        text: the value of `-l`.

    Returns:
        Values by name.
    """
    found: list[Resource] = []
    form = re.compile(
        r"""\s*(?P<name>[^=,\s]+)\s*=\s*(?:[^,'"]*['"](?P<quoted>[^'"]*)['"]*|(?P<bare>(?:\[[^\]]*\]|[^,])*))(?:,|$)"""
    )
    at = 0
    while at < len(text) and (match := form.match(text, at)):
        group = "bare" if match["quoted"] is None else "quoted"
        found.append(Resource(match["name"], match[group], match.start(group), match.end(group)))
        at = match.end()
    return tuple(found)


@frozen
class NodeChunk:
    """One part of a node request: so many hosts alike, or one host by its name.

    Attributes:
        count: how many hosts.
        host: the host's name, or "" when any will do.
        properties: what else stands there, in order, `ppn` excepted.
        ppn: slots on each host, 0 when nothing is said (which means 1).
    """

    count: int
    host: str
    properties: tuple[str, ...]
    ppn: int

    def __str__(self) -> str:
        parts = [self.host or str(self.count), *([f"ppn={self.ppn}"] if self.ppn else []), *self.properties]
        return ":".join(parts)


def read_nodes(text: str) -> tuple[NodeChunk, ...] | None:
    """The parts of `nodes=2:ppn=8:big+node07`; None when it is of a form that is qsub's to judge.

    Args:
        text: as `-l nodes=` takes it.

    Returns:
        The parts, in order.
    """
    chunks: list[NodeChunk] = []
    for part in text.split("+"):
        head, *rest = part.split(":")
        figures = [item[4:] for item in rest if item.startswith("ppn=")]
        bad = [figure for figure in figures if not re.fullmatch(r"[0-9]{1,6}", figure, re.ASCII)]
        if bad or len(figures) > 1 or not re.fullmatch(r"[A-Za-z0-9._-]+", head):
            return None
        number = bool(re.fullmatch(r"[0-9]{1,6}", head, re.ASCII))
        properties = tuple(item for item in rest if not item.startswith("ppn="))
        chunk = NodeChunk(
            int(head) if number else 1, "" if number else head, properties, int(*figures) if figures else 0
        )
        chunks.append(chunk)
    return tuple(chunks)

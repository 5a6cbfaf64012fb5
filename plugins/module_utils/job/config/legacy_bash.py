# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read plain assignments out of a file of bash and never run it: `A=b`, `export A="b $C"`, `A=('b' 'c')`.

What bash would have to work out (a condition, a command, a function) is not guessed at: it is named, with its line.
Bash itself, which runs the file, does this for 58 of the 87 cases of our tests.  It takes the value of a condition or a
command (`hostname`) on the host of the conversion for that of each node, and does not name what it did not come to.
Its restricted mode is no bound: it reads files, and runs code that no text shows (`$((D))`, `${F@P}`).
bashlex 0.18 is of 2023 and fails at an array or an empty line.  tree-sitter-bash 0.25 does this for 84 cases, with two
compiled packages of 3.6 MB on each host; it loses an escaped blank at the end of a word, which nothing shows.
A test compares what is read here with bash itself.  This module goes when no site has a file of the original any more,
or when a parser passes that test and installs without a compiler.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
import typing as t

from .bash_words import BashWords, NotPlain

_DECLARE = re.compile(
    r"(?:export|(readonly)|declare|typeset)((?:(?:[ \t]|\\\n)+-[agrx]+)*)(?:[ \t]|\\\n)+(?=[A-Za-z_])"
)
"""Other options change what is assigned: -i computes it, -u writes it in capitals."""
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_FUNCTION = re.compile(r"(?:function[ \t]+[\w:.-]+[ \t]*(?:\([ \t]*\))?|[\w:.-]+[ \t]*\([ \t]*\))\s*(?=[{(])")
_WORD = re.compile(r"[^\s;&|()<>'\"`$\\#]+")
_OPENS = frozenset({"if", "while", "until", "for", "case", "select", "{"})
_CLOSES = frozenset({"fi", "done", "esac", "}"})
_GOES_ON = frozenset({"then", "else", "elif", "do", "!", "time"})
_SETS = re.compile(r"(?<![\w$\[{])[A-Za-z_][A-Za-z0-9_]*\+?=")


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment:
    """A variable that gets a value.

    Attributes:
        name: the variable.
        value: a text, or the texts of an array; None: it is not known, see `why`.
        line: where it stands, from 1.
        why: why the value is not known, or "".
    """

    name: str
    value: str | tuple[str, ...] | None
    line: int
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SkippedLine:
    """Something that is no plain assignment: its line, its beginning, and why it is not read."""

    line: int
    text: str
    why: str


def read(text: str, known: t.Mapping[str, str]) -> tuple[tuple[Assignment, ...], tuple[SkippedLine, ...]]:
    """Read the assignments of a file.

    Args:
        text: of bash; anything at all does no harm.
        known: variables that the file may use without setting them.

    Returns:
        What is assigned, and what is not read; both in the order of the lines.
    """
    reader = _Reader(text, known)
    reader.read()
    return tuple(reader.found), tuple(reader.skipped)


def _set_once(read: t.Sequence[Assignment]) -> list[Assignment]:
    """The assignments of a declaration, in which bash sets arrays before texts."""
    names = [one.name for one in read]
    return [
        one if names.count(one.name) == 1 else Assignment(one.name, None, one.line, "one declaration sets it twice")
        for one in read
    ]


class _Reader(BashWords):
    """One pass over the text.  `depth` is how many conditions, loops and functions are open."""

    def __init__(self, text: str, known: t.Mapping[str, str]) -> None:
        super().__init__(text, known)
        self.lines = [0, *(place + 1 for place, character in enumerate(self.text) if character == "\n")]
        self.depth = 0
        self.begun = 0
        self.read_only: dict[str, int] = {}
        self.arrays: dict[str, int] = {}
        self.found: list[Assignment] = []
        self.skipped: list[SkippedLine] = []

    @property
    def line(self) -> int:
        """The line of the place where we are."""
        return bisect.bisect_right(self.lines, self.place)

    def read(self) -> None:
        """To the end."""
        conditional = False
        while self._blanks():
            if self.text.startswith(("&&", "||"), self.place):
                conditional = True
                self.place += 2
            elif self.text[self.place] in "()":
                self._subshell()
            elif self.text[self.place] in "\n;&|":
                # the end of a pipe runs in a shell of its own
                conditional = self.text[self.place] == "|"
                if self.text[self.place] == "\n":
                    self._skip_here()
                else:
                    self.place += 1
            else:
                self._statement(conditional)

    def _subshell(self) -> None:
        """Over a bracket: what is set within a pair of them is lost with their shell."""
        if self.text[self.place] == "(":
            if not self.depth:
                self.begun = self.line
                self._note(self.begun, self.place, "what it sets is lost at its end")
            self.subshells += 1
            self.depth += 1
        elif self.subshells:
            self.subshells -= 1
            self.depth = max(0, self.depth - 1)
        self.place += 1

    def _statement(self, conditional: bool) -> None:
        if (function := _FUNCTION.match(self.text, self.place)) and not _NAME.match(self.text, self.place):
            self._skip("a function is not run", function.end())
            return
        start, line = self.place, self.line
        declared = _DECLARE.match(self.text, self.place)
        if declared:
            self.place = declared.end()
        read: list[Assignment] = []
        before = dict(self.known)
        while name := _NAME.match(self.text, self.place):
            read.append(self._assignment(name, declared is not None))
            if not declared:
                self._know(read[-1], sure=not self.depth and not conditional)
            if not self._next_word():
                break
        if not read or (self._next_word() and not self._ends_here()):
            self.place, self.known = start, before
            self._other(line)
            return
        for one in _set_once(read) if declared else read:
            if declared:  # whose values bash works out before it sets the first
                self._know(one, sure=not self.depth and not conditional)
            self._take(one, conditional)
            if declared and (declared[1] or "r" in declared[2]):
                self.read_only.setdefault(one.name, one.line)

    def _assignment(self, name: re.Match[str], declared: bool) -> Assignment:
        line = self.line
        self.place = name.end()
        try:
            return Assignment(name[1], self._value(declared), line)
        except NotPlain as error:
            self.place = name.end()
            self._to_end()
            return Assignment(name[1], None, line, str(error))

    def _ends_here(self) -> bool:
        """Return whether the statement ends here, in this shell: what has a pipe or a `&` behind it is a child's."""
        if self.text.startswith(("&&", "||"), self.place):
            return True
        return self.text[self.place] in ("\n;#)" if self.subshells else "\n;#")

    def _know(self, one: Assignment, *, sure: bool) -> None:
        """What later values may use; a variable that a condition may have changed is not known any more."""
        if sure and isinstance(one.value, str):
            self.known[one.name] = one.value
        else:
            self.known.pop(one.name, None)

    def _take(self, one: Assignment, conditional: bool) -> None:
        if self.depth or conditional:
            within = f"stands in what begins in line {self.begun}" if self.depth else "depends on a condition"
            self.skipped.append(SkippedLine(one.line, one.name, f"{within}: its value is not known before it is run"))
            return
        why = ""
        if one.name in self.read_only:
            why = f"line {self.read_only[one.name]} makes it read-only"
        elif isinstance(one.value, tuple):
            self.arrays.setdefault(one.name, one.line)
        elif one.name in self.arrays:
            why = f"line {self.arrays[one.name]} makes it an array, of which this sets the first word"
        if why:
            self.known.pop(one.name, None)
            one = Assignment(one.name, None, one.line, why)
        self.found.append(one)

    def _other(self, line: int) -> None:
        """A statement that is no assignment: step over it, and name it where it could set something."""
        word = _WORD.match(self.text, self.place)
        first = word[0] if word else ""
        if first in _GOES_ON:
            self.place += len(first)
            return
        start = self.place
        if first in _OPENS:
            if not self.depth:
                self.begun = line
                self._note(line, start, "what it does is not known before it is run")
            self.depth += 1
            self.place += len(first)
            if first in ("for", "case", "select"):
                self._to_end()
            return
        if first in _CLOSES:
            self.depth = max(0, self.depth - 1)
            self.place += len(first)
            self._to_end()
            return
        self._to_end()
        self.place = max(self.place, start + 1)
        if not self.depth:
            other = (
                "reads another file: convert that one, too" if first in ("source", ".") else "is no plain assignment"
            )
            self._note(line, start, other)
        elif _SETS.search(self.text, start, self.place):
            self._note(line, start, f"stands in what begins in line {self.begun}")

    def _skip(self, why: str, end: int) -> None:
        """Into a function."""
        if not self.depth:
            self.begun = self.line
            self._note(self.line, self.place, why)
        self.place = end + 1
        self.depth += 1

    def _note(self, line: int, start: int, why: str) -> None:
        end = self.text.find("\n", start)
        text = " ".join(self.text[start : len(self.text) if end < 0 else end].split())
        self.skipped.append(SkippedLine(line, text[:60], why))

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a text of bash: where each ends, and what it holds where bash need not work that out."""

from __future__ import annotations

import re
import typing as t

_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_HERE = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z0-9_]+)\2")
GOES_ON_BELOW = "\\\n"
_ENDS = " \t\n;&|()<>"
_IN_ITS_PLACE = re.compile(r"[^\s*?\[\\]+")
"""What bash leaves as it is where it stands without quotes in an array."""


class NotPlain(Exception):
    """The value is something that bash would have to work out."""


class BashWords:
    """A place in a text, which goes on word by word.

    Attributes:
        place: of the next character.
        known: variables that values may use.
        here: the here-documents that were announced in this line: whether tabs are taken off, and the last line.
        subshells: how many brackets are open.
    """

    def __init__(self, text: str, known: t.Mapping[str, str]) -> None:
        self.text = text.replace("\r\n", "\n")
        self.place = 0
        self.known = dict(known)
        self.here: list[tuple[bool, str]] = []
        self.subshells = 0

    def _blanks(self) -> bool:
        """Go to what comes next; return whether there is anything."""
        while self.place < len(self.text):
            character = self.text[self.place]
            if character == "#":
                end = self.text.find("\n", self.place)
                self.place = len(self.text) if end < 0 else end
            elif character in " \t\r":
                self.place += 1
            elif self.text.startswith(GOES_ON_BELOW, self.place):
                self.place += 2
            else:
                return True
        return False

    def _skip_here(self) -> None:
        """Over a line's end, and over the here-documents that were announced in it."""
        self.place += 1
        for tabs, word in self.here:
            while self.place < len(self.text):
                end = self.text.find("\n", self.place)
                end = len(self.text) if end < 0 else end
                line = self.text[self.place : end]
                self.place = end + 1
                if (line.lstrip("\t") if tabs else line) == word:
                    break
        self.here = []

    def _next_word(self) -> bool:
        while self.place < len(self.text):
            if self.text.startswith(GOES_ON_BELOW, self.place):
                self.place += 2
            elif self.text[self.place] in " \t":
                self.place += 1
            else:
                break
        return self.place < len(self.text)

    def _value(self, declared: bool) -> str | tuple[str, ...]:
        if not self.text.startswith("(", self.place):
            return self._word("{" if declared else "")
        self.place += 1
        found: list[str] = []
        while True:
            self._blanks()
            if self.place >= len(self.text):
                raise NotPlain("the array has no end")
            if self.text[self.place] == ")":
                self.place += 1
                if self.text[self.place : self.place + 1] not in ("", *" \t\n;&|", *(")" if self.subshells else "")):
                    raise NotPlain("something stands behind the array")
                return tuple(found)
            if self.text[self.place] == "\n":
                self.place += 1
            elif self.text[self.place] in _ENDS or self.text[self.place] == "[":
                raise NotPlain("the array is no list of words")
            else:
                found.append(self._word("{*?[", in_array=True))

    def _word(self, several: str = "", *, in_array: bool = False) -> str:
        """One word, its quotes taken off and known variables put in.

        Args:
            several: the characters of which bash makes several words here.
            in_array: bash divides what a variable holds.
        """
        parts: list[str] = []
        start = self.place
        while self.place < len(self.text) and (character := self.text[self.place]) not in _ENDS:
            if character == "'":
                end = self.text.find("'", self.place + 1)
                if end < 0:
                    raise NotPlain("a quote has no end")
                parts.append(self.text[self.place + 1 : end])
                self.place = end + 1
            elif character == '"':
                self.place += 1
                parts.append(self._quoted())
            elif character in "$`":
                parts.append(self._bare_variable(in_array=in_array))
            elif character == "\\" and self.place + 1 < len(self.text):
                parts.append(self.text[self.place + 1].strip("\n"))
                self.place += 2
            elif character == "~" and (self.place == start or self.text[self.place - 1] in ":="):
                raise NotPlain("~ is somebody's home")
            elif character in several:
                raise NotPlain("bash would work out which words it stands for")
            else:
                parts.append(character)
                self.place += 1
        return "".join(parts)

    def _bare_variable(self, *, in_array: bool) -> str:
        """A variable without quotes."""
        if self.text.startswith('$"', self.place):
            raise NotPlain("bash would translate it")
        value = self._variable()
        if in_array and not _IN_ITS_PLACE.fullmatch(value):
            raise NotPlain("bash would divide it into words")
        return value

    def _quoted(self) -> str:
        parts: list[str] = []
        while self.place < len(self.text):
            character = self.text[self.place]
            if character == '"':
                self.place += 1
                return "".join(parts)
            if character in "$`":
                parts.append(self._variable())
                continue
            if self.text.startswith(GOES_ON_BELOW, self.place):
                self.place += 2
                continue
            if character == "\\" and self.text[self.place + 1 : self.place + 2] in ("$", "`", '"', "\\"):
                self.place += 1
            parts.append(self.text[self.place])
            self.place += 1
        raise NotPlain("a quote has no end")

    def _variable(self) -> str:
        found = _VARIABLE.match(self.text, self.place)
        if not found:
            after = self.text[self.place + 1 : self.place + 2]
            if self.text[self.place] == "$" and (not after or after in ' \t\n"/:.,'):
                self.place += 1  # a dollar that stands for itself
                return "$"
            raise NotPlain("bash would have to work it out")
        name = found[1] or found[2]
        if name not in self.known:
            raise NotPlain(f"it uses {name}, which the file does not say")
        self.place = found.end()
        return self.known[name]

    def _to_end(self) -> None:
        """To the end of a statement: quotes, commands in brackets and here-documents are stepped over."""
        depth, first_end = 0, -1
        end = self.text.find("]]", self.place) if self.text.startswith("[[", self.place) else -1
        self.place = end + 2 if end >= 0 else self.place
        while self.place < len(self.text):
            character = self.text[self.place]
            if character == "\\":
                self.place += 2
                continue
            if character in "'\"`":
                self._over(character)
                continue
            if here := _HERE.match(self.text, self.place):
                if self.text.startswith("<<<", self.place):
                    self.place += 3
                else:
                    self.here.append((bool(here[1]), here[3]))
                    self.place = here.end()
                continue
            if not depth and (character in "\n;&|" or (character == ")" and self.subshells)):
                return
            if character == "\n" and first_end < 0:
                first_end = self.place
            if character == "#" and self.text[self.place - 1 : self.place] in (" ", "\t", "\n"):
                end = self.text.find("\n", self.place)
                self.place = len(self.text) if end < 0 else end
                continue
            depth += (character == "(") - (character == ")" and depth > 0)
            self.place += 1
        if depth and first_end >= 0:  # a bracket without an end
            self.place = first_end

    def _over(self, quote: str) -> None:
        """Over what is quoted; without an end, over this one character."""
        place = self.place + 1
        while place < len(self.text):
            if self.text[place] == "\\" and quote != "'":
                place += 2
                continue
            if self.text[place] == quote:
                self.place = place + 1
                return
            place += 1
        self.place += 1

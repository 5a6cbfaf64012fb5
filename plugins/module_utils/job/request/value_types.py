# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of values that a request and the site's configuration hold: how each is read, and what it may be.

A kind reads one value, a text or what YAML made of it, and returns the typed form, or raises `BadValue` with the
words that say what is allowed.  `encode_value` gives the text that every kind reads back as the same value.
"""

from __future__ import annotations

import re
import typing as t

from ...effects import leaves_nothing
from ...frozen import frozen
from ...slow_libraries import load_library
from ...text import format_allowed_mib, parse_mib, printable

Value = str | int | bool | tuple[str, ...]  # pylint: disable=unsupported-binary-operation

_TRUE = ("true", "yes", "enabled")
_FALSE = ("false", "no", "disabled")


class BadValue(ValueError):
    """The value is not of its kind; the text says what is allowed."""


@frozen
class Kind:
    """How the value of one key or parameter is read.

    Attributes:
        read: from a text, or from what YAML made of the value, to the typed form; raises `BadValue`.
        allowed: what may stand there, for people.
        form: what it looks like, "word", "path", "flag", "number", "size" or "list"; for tables and for who writes
            arguments of roles.
    """

    read: t.Callable[[object], Value]
    allowed: str
    form: str = "word"


@frozen
class KeyFault:
    """One thing that is wrong with one key.

    Attributes:
        key: the key, as it was written.
        value: the value, as it was written, or "".
        message: what is wrong, what is allowed, and the nearest valid key where it looks like a typing error.
        origin: where it stood ("command line", "job.sh, line 4"), or "".
    """

    key: str
    value: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key}={self.value}: {self.message}{where}" if self.value else f"{self.key}: {self.message}{where}"


def format_value(value: object, limit: int = 80) -> str:
    """A value that may be anything, as one short printable text.

    Args:
        value: of whatever type.
        limit: characters after which it is cut.

    Returns:
        Text without control characters.
    """
    text = str(value)
    if len(text) > limit:
        text = text[:limit] + "..."
    return printable(text)


def nearest(word: str, candidates: t.Iterable[str]) -> str:
    """The sentence that names the valid word which was probably meant, or "".

    Args:
        word: as it was typed.
        candidates: the valid ones.

    Returns:
        `; did you mean x?`, or "".
    """
    found = load_library("difflib").get_close_matches(word[:64].lower(), list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


@leaves_nothing
def encode_value(value: Value) -> str:
    """Return the text of a typed value; the kind that made the value reads it back.

    Args:
        value: what a kind has read.

    Returns:
        Text; a list is joined by `+`.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "+".join(value)
    return str(value)


def _text_of(value: object, allowed: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadValue(allowed)
    return value


def boolean(*, zero_is_on: bool = False) -> Kind:
    """`true/false`, `yes/no`, `enabled/disabled`, any case; with `zero_is_on` also the original's 0 = on, 1 = off.

    Args:
        zero_is_on: take the original's digits too.

    Returns:
        A kind that reads a bool.
    """
    allowed = "true or false (yes, no, enabled, disabled" + (", 0 for on, 1 for off)" if zero_is_on else ")")
    meanings = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
    if zero_is_on:
        meanings |= {"0": True, "1": False}

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        try:
            return meanings[str(value).lower()]
        except KeyError:
            raise BadValue(allowed) from None

    return Kind(read, allowed, "flag")


def number(low: int, high: int) -> Kind:
    """A whole number from `low` to `high`.

    Args:
        low: the least.
        high: the greatest.

    Returns:
        A kind that reads an int.
    """
    allowed = f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadValue(allowed)
        return value

    return Kind(read, allowed, "number")


_PART = re.compile(r"([0-9]{1,6})\s*(%)?", re.ASCII)
_GREATER = re.compile(r"max\(([^,()]*),([^,()]*)\)")


def part_of_all() -> Kind:
    """How many of all: a number (`3`), a share (`5 %`), or the greater of two (`max(2, 2 %)`).

    Returns:
        A kind that reads a str, of which `count_of` makes a number.
    """
    allowed = "a number, a share (5 %), or the greater of two: max(2, 2 %)"

    def read(value: object) -> str:
        word = str(value).strip()
        if isinstance(value, bool):
            raise BadValue(allowed)
        for part in _parts(word):
            found = _PART.fullmatch(part)
            if not found or (found[2] and int(found[1]) > 100):
                raise BadValue(allowed)
        return word

    return Kind(read, allowed)


def count_of(part: str, everything: int) -> int:
    """The number that a part of all means.

    Args:
        part: as `part_of_all` reads it.
        everything: how many all are.

    Returns:
        A number; a share is rounded down.
    """
    found = [t.cast("re.Match[str]", _PART.fullmatch(one)) for one in _parts(part)]
    return max(everything * int(one[1]) // 100 if one[2] else int(one[1]) for one in found)


def _parts(text: str) -> tuple[str, ...]:
    found = _GREATER.fullmatch(text)
    return (found[1].strip(), found[2].strip()) if found else (text,)


def size_mib(low: int, high: int) -> Kind:
    """A size as a whole number of MiB: a number with K, M, G or T (powers of 1024), MiB when bare.

    Args:
        low: least size, in MiB.
        high: greatest size, in MiB.

    Returns:
        A kind that reads MiB.
    """
    allowed = format_allowed_mib(low, high)

    def read(value: object) -> int:
        mib = None if isinstance(value, bool) else parse_mib(str(value))
        if mib is None or not low <= mib <= high:
            raise BadValue(allowed)
        return mib

    return Kind(read, allowed, "size")


def duration_min(low: int, high: int) -> Kind:
    """A time as a whole number of minutes: a number with m, h or d, minutes when bare.

    Args:
        low: the least, in minutes.
        high: the greatest, in minutes.

    Returns:
        A kind that reads minutes.
    """
    allowed = f"a number with m, h or d (minutes when bare) from {low} to {high} minutes"

    def read(value: object) -> int:
        found = None if isinstance(value, bool) else re.fullmatch(r"([0-9]{1,6})([mhd]?)", str(value).lower())
        minutes = int(found[1]) * {"": 1, "m": 1, "h": 60, "d": 1440}[found[2]] if found else -1
        if not low <= minutes <= high:
            raise BadValue(allowed)
        return minutes

    return Kind(read, allowed)


def choice(*choices: str) -> Kind:
    """One of some words, in any case; what comes out is spelled as in the table.

    Args:
        choices: the valid ones.

    Returns:
        A kind that reads one of them.
    """
    allowed = ", ".join(choices[:-1]) + (f" or {choices[-1]}" if len(choices) > 1 else choices[-1])

    spelled = {word.lower(): word for word in choices}

    def read(value: object) -> str:
        word = str(value).lower()
        # YAML takes a bare off for false and on for true, and a role makes a text of that
        word = "off" if word == "false" and "off" in choices else word
        word = "on" if word == "true" and "on" in choices else word
        if word not in spelled:
            raise BadValue(allowed + nearest(word, choices))
        return spelled[word]

    return Kind(read, allowed)


def text(pattern: str, allowed: str, *, lower: bool = False) -> Kind:
    """A text of the form `pattern` (full match).

    Args:
        pattern: a regular expression.
        allowed: the same for people.
        lower: make capitals small first.

    Returns:
        A kind that reads a str.
    """
    form = re.compile(pattern)

    def read(value: object) -> str:
        word = _text_of(value, allowed)
        word = word.lower() if lower else word
        if not form.fullmatch(word):
            raise BadValue(allowed)
        return word

    return Kind(read, allowed)


def path(what: str = "an absolute path") -> Kind:
    """An absolute path of printable characters without `..`, `,` or `;`.

    Args:
        what: what stands there, for people.

    Returns:
        A kind that reads a str.
    """
    allowed = f"{what}, without '..', ',' and ';'"

    def read(value: object) -> str:
        word = _text_of(value, allowed)
        good = word.startswith("/") and word.isprintable() and len(word) <= 1000 and not set(word) & set(",;")
        if not good or ".." in word.split("/"):
            raise BadValue(allowed)
        return word

    return Kind(read, allowed, "path")


def line(form: str, normalize: t.Callable[[str], str]) -> Kind:
    """Return the kind of a line of several fields.

    Args:
        form: its fields, for people.
        normalize: returns the one spelling of a valid line; raises ValueError with what is wrong with another.
    """

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise BadValue(form)
        try:
            return normalize(value)
        except ValueError as error:
            raise BadValue(str(error)) from None

    return Kind(read, form)


def either(*kinds: Kind) -> Kind:
    """What the first kind that takes the value makes of it.

    Args:
        kinds: in the order in which they are tried.

    Returns:
        A kind that reads what they read.
    """
    allowed = ", or ".join(kind.allowed for kind in kinds)

    def read(value: object) -> Value:
        for kind in kinds:
            try:
                return kind.read(value)
            except BadValue:
                continue
        raise BadValue(allowed)

    return Kind(read, allowed)


def several(kind: Kind, *, separator: str | None = None) -> Kind:
    """A list of values of one kind, each of them once; from YAML a list, in a request a text with `separator`.

    Args:
        kind: of each value.
        separator: between the values of a text; None: only lists are read.

    Returns:
        A kind that reads a tuple.
    """
    allowed = f"a list: {kind.allowed}" if separator is None else f"{kind.allowed}; several are joined by {separator}"

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str) and separator is not None:
            value = value.split(separator)
        if not isinstance(value, (list, tuple)):
            raise BadValue(allowed)
        items = tuple(str(kind.read(item)) for item in value)
        if len(set(items)) != len(items):
            raise BadValue(f"{allowed}; nothing twice")
        return items

    return Kind(read, allowed, "list")

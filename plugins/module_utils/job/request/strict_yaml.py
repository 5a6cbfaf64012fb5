# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML of a user's as mappings, lists and texts, each with its line: no tags, no references, nothing twice."""

from __future__ import annotations

import typing as t

from ...frozen import frozen
from ...slow_libraries import load_library
from .value_types import format_value

MAX_DEPTH = 8
TOO_DEEP = f"more than {MAX_DEPTH} lists and mappings in one another"
_TAG = "tag:yaml.org,2002:"


class NotPlain(ValueError):
    """The text is not such YAML.

    Attributes:
        line: where, from 1; 0: nowhere in particular.
        why: what is wrong there.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}" if line else why)
        self.line = line
        self.why = why


@frozen
class Text:
    """A word or a text; `written` without quotes YAML may take it for something else, and that is said.

    Attributes:
        taken_for: what YAML takes it for: "" for a text, else `int`, `bool`, `null`, ...
    """

    line: int
    value: str
    taken_for: str


@frozen
class Items:
    """A list."""

    line: int
    items: tuple[Plain, ...]


@frozen
class Entry:
    """One `key: value` of a mapping."""

    key: Text
    value: Plain


@frozen
class Mapping:
    """A mapping, each key once."""

    line: int
    entries: tuple[Entry, ...]


Plain: t.TypeAlias = "Text | Items | Mapping"


def read(content: bytes) -> Plain | None:
    """Read one document.

    Args:
        content: YAML in UTF-8; the caller has bounded it.

    Returns:
        What it holds; None: nothing.

    Raises:
        NotPlain: it is no YAML, or not such YAML.
    """
    yaml = load_library("yaml")

    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotPlain(line, f"not text in UTF-8: byte {content[error.start]:#04x}") from None
    try:
        _check_events(text)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        return None if root is None else _plain(root)
    except yaml.reader.ReaderError as error:
        raise NotPlain(*_unread(text, error)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # a libyaml of 2026 (with PyYAML 6.0.4) has a bound of its own, at 1000, and looks ahead of what it tells
        deep = error.problem == "exceeded maximum nesting depth"
        why = TOO_DEEP if deep else f"not YAML: {_message_of(error.problem or error)}"
        raise NotPlain(mark.line + 1 if mark else 0, why) from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, NotPlain):
            raise
        raise NotPlain(0, f"not YAML: {_message_of(error)}") from None


def _message_of(error: object) -> str:
    return " ".join(str(error).split())


def _unread(text: str, error: t.Any) -> tuple[int, str]:
    found = next((i for i, c in enumerate(text) if c != "\n" and c != "\t" and not c.isprintable()), 0)
    return text.count("\n", 0, found) + 1, f"not YAML: {_message_of(error.reason)}"


def _check_events(text: str) -> None:
    """Composing goes down with the text; and what refers to itself can be larger than any memory."""
    yaml = load_library("yaml")

    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise NotPlain(line, TOO_DEEP)
        if getattr(event, "anchor", None):
            raise NotPlain(line, "references (& and *) are not read; write the value out")


def _plain(node: t.Any) -> Plain:
    yaml = load_library("yaml")

    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return _text(node, line)
    usual = "map" if isinstance(node, yaml.MappingNode) else "seq"
    if node.tag != _TAG + usual:
        raise NotPlain(line, f"a tag ({node.tag}) means nothing here")
    if usual == "seq":
        return Items(line, tuple(map(_plain, node.value)))
    entries: dict[str, Entry] = {}
    for key_node, value_node in node.value:
        key = _plain(key_node)
        if not isinstance(key, Text) or key.taken_for:
            raise NotPlain(key.line, "a key is one word, in quotes where YAML takes it for something else")
        if (first := entries.get(key.value)) is not None:
            raise NotPlain(key.line, f"{format_value(key.value, 40)} is given twice, in line {first.key.line} too")
        entries[key.value] = Entry(key, _plain(value_node))
    return Mapping(line, tuple(entries.values()))


def _text(node: t.Any, line: int) -> Text:
    kind = node.tag.removeprefix(_TAG)
    if kind == node.tag or kind not in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value"):
        raise NotPlain(line, f"a tag ({node.tag}) means nothing here")
    return Text(line, node.value, "" if kind == "str" else kind)

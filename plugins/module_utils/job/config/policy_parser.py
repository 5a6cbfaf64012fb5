# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in vtorque.yml, line by line, before anybody asks what it means.

Every hook, every node's part of a job and every `vsub` reads the configuration, which hardly ever changes, and of that
most was the time in which YAML's library is loaded.  So what YAML made of the text is kept, beside the text.  It saves
13 ms of processor time of the prologue's hook (93 ms, 80 ms with it) and 14 ms of its node's part (119 ms, 105 ms),
medians of 20 runs: 27 ms of each start.  It goes when YAML's library and the reading take less than 20 ms of a start
together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import typing as t

from ...errors import VTorqueError
from ...frozen import frozen
from ...slow_libraries import load_library
from ...system import files
from ..request.value_types import format_value

MAX_DEPTH = 20
FORM = 2
"""Of what is kept; another is not read."""


class NotEntries(Exception):
    """A text is not a list of `name: value` lines; says where, and why."""


@frozen
class Entry:
    """One `name: value` of the file.

    Attributes:
        raw: what YAML makes of the value.
        text: the value as it was written, as far as it is one word.
        wrong: why it cannot be a value at all, or "".
    """

    name: str
    raw: object
    text: str
    line: int
    wrong: str = ""


def read_entries(text: str) -> list[Entry]:
    """The entries of a text.

    Args:
        text: YAML.

    Raises:
        NotEntries: it is none, or something else than a mapping.
    """
    yaml = load_library("yaml")

    try:
        _check_depth(text)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        if root is None:
            return []
        if not isinstance(root, yaml.MappingNode):
            raise NotEntries("not a list of `name: value` lines")
        loader = yaml.CSafeLoader("")
        return [_entry(key, value, loader) for key, value in root.value]
    except yaml.YAMLError as error:
        raise NotEntries(f"not YAML: {_where(error)}") from None
    except UnicodeEncodeError as error:
        raise NotEntries(f"not YAML: {error.object[error.start]!a} is no character of a text") from None


def read_compiled(text: str, place: pathlib.Path, *, mode: int = 0o400) -> list[Entry]:
    """`read_entries`, from where it is kept what they are when they were read before; root keeps it.

    Args:
        text: YAML.
        place: a file of root's, in a directory that is root's.
        mode: who may read what is kept: 0o444 where everybody may read the text itself, as `vsub` does.

    Raises:
        NotEntries: see there.
    """
    with contextlib.suppress(OSError, VTorqueError, KeyError, TypeError):
        compiled = files.read_json(place)
        if compiled["form"] == FORM and compiled["text"] == text:
            return [Entry(**one) for one in compiled["entries"]]
    entries = read_entries(text)
    # what JSON cannot tell apart, or not at all (a date, a number that is none), is read anew each time
    if os.geteuid() == 0 and place.parent.is_dir() and all(_plain(entry.raw) for entry in entries):
        content = {"form": FORM, "text": text, "entries": [dataclasses.asdict(entry) for entry in entries]}
        # a full /run takes nothing away from who reads, nor does a number of too many digits
        with contextlib.suppress(VTorqueError, ValueError):
            files.write(place, json.dumps(content), mode=mode)
    return entries


def _plain(raw: object) -> bool:
    if isinstance(raw, list):
        return all(not isinstance(one, list) and _plain(one) for one in raw)
    return raw is None or isinstance(raw, (bool, int, str)) or (isinstance(raw, float) and raw - raw == 0)


def _check_depth(text: str) -> None:
    """Composing goes down with the text, and ends the process where that is deeper than its stack."""
    yaml = load_library("yaml")

    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            where = f"line {event.start_mark.line + 1}: " if event.start_mark is not None else ""
            raise NotEntries(f"{where}more than {MAX_DEPTH} brackets in one another")


def _entry(key: t.Any, value: t.Any, loader: t.Any) -> Entry:
    yaml = load_library("yaml")

    line = key.start_mark.line + 1
    if not isinstance(key, yaml.ScalarNode):
        return Entry("?", None, "", line, "the name of a parameter is due before the colon")
    name = str(key.value)
    items = value.value if isinstance(value, yaml.SequenceNode) else [value]
    # more depth has no meaning here, and lists of lists of one another would not end
    if not all(isinstance(item, yaml.ScalarNode) for item in items):
        return Entry(name, None, "", line, "one value is due, or a list of values; there is more depth than that")
    for item in items:
        plain = not item.style
        if item.tag != loader.resolve(yaml.ScalarNode, item.value, (plain, not plain)):
            return Entry(name, None, item.value, line, f"a value has no tag of its own here ({item.tag})")
    text = str(value.value) if isinstance(value, yaml.ScalarNode) else format_value([item.value for item in items])
    try:
        return Entry(name, loader.construct_object(value, deep=True), text, line)
    except (yaml.YAMLError, ValueError, ArithmeticError) as error:
        return Entry(name, None, text, line, f"not a value of YAML: {_where(error)}")


def _where(error: Exception) -> str:
    """The words of a parser, in the order in which people look: where, then what."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    problem_text = " ".join(str(problem or error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem_text}" if mark is not None else problem_text

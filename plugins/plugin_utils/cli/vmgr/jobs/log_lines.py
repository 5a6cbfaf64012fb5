# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's log as entries: the fields of each line (`event_log.format_text`), for programs and for a choice by level."""

from __future__ import annotations

import re
import typing as t

from .....module_utils.state.event_log import COMPONENTS, LEVELS, MORE

_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}) (?P<host>\S+) (?P<program>[^\s\[]+)\[(?P<pid>\d+)\] "
    rf"(?P<level>{'|'.join(LEVELS)}) (?P<component>{'|'.join(COMPONENTS)}): (?P<message>.*)"
)


def read_lines(lines: t.Iterable[str]) -> t.Iterator[dict[str, str]]:
    """Yield what a log of text holds, for programs: the fields of each line, with its further lines in `message`.

    Args:
        lines: of the log.  What others wrote there (Ansible) has a `message` alone, a line each.
    """
    current: dict[str, str] | None = None
    for line in lines:
        if current is not None and "level" in current and line.startswith(MORE):
            current["message"] += f"\n{line.removeprefix(MORE)}"
            continue
        if current is not None:
            yield current
        found = _LINE.fullmatch(line)
        current = found.groupdict() if found else {"message": line}
    if current is not None:
        yield current


def format_entry(entry: t.Mapping[str, str]) -> t.Iterator[str]:
    """Yield the lines that `read_lines` made an entry of.

    Args:
        entry: its fields.
    """
    head = "{time} {host} {program}[{pid}] {level} {component}: ".format_map(entry) if "level" in entry else ""
    first, *more = entry["message"].split("\n")
    yield head + first
    for line in more:
        yield MORE + line

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the site reads the health of its nodes, one line each: `KIND NAME [PATH] [OPTION=VALUE ...]`."""

from __future__ import annotations

import re
import typing as t

from ..frozen import frozen
from .for_hosts import entries_for

COUNTER, PROGRAM, MESSAGE = KINDS = ("counter", "program", "message")
"""Files with numbers that grow; a program in the form of a node check; what the batch system's own check reports."""
NAME = r"[a-z][a-z0-9_-]{0,31}"
PATH = r"/[^\s\x00-\x1f\x7f]{1,500}"
OPTIONS = {"limit": r"[1-9][0-9]{0,11}", "field": r"[A-Za-z][A-Za-z0-9_]{0,63}", "hosts": r"\S{1,200}"}
_OPTIONS_OF = {COUNTER: {"limit", "field", "hosts"}, PROGRAM: {"hosts"}, MESSAGE: {"hosts"}}
FORM = (
    "a line `counter NAME FILES limit=N` (with field=WORD, if a file has several numbers), `program NAME PATH` or"
    " `message NAME`; each may end in hosts=REGEX"
)


@frozen
class HealthSource:
    """One source of a node's health.

    Attributes:
        kind: one of `KINDS`.
        name: as messages call it.
        path: the program, or a pattern of shells for files with a counter; "" of a message.
        limit: a counter that has grown by so much in 24 hours makes the node degrading; 0 of the other kinds.
        field: the word before the number, where a file has several; "": the file is one number.
        hosts: a regular expression for names of the hosts that have it; "": all.
    """

    kind: str
    name: str
    path: str = ""
    limit: int = 0
    field: str = ""
    hosts: str = ""


def read_line(line: str) -> HealthSource:
    """Return the source that a line of the site's configuration describes.

    Args:
        line: as `FORM` says.

    Raises:
        ValueError: it is of no usable form; the text says what is wrong.
    """
    parts = line.split()
    kind, name, *fields = [*parts, "", ""] if len(parts) < 2 else parts
    if kind not in KINDS or not re.fullmatch(NAME, name):
        raise ValueError(FORM)
    path = fields.pop(0) if kind != MESSAGE and fields else ""
    if kind != MESSAGE and (not re.fullmatch(PATH, path) or ".." in path.split("/")):
        raise ValueError(f"{path[:80] or name}: needs an absolute path; {FORM}")
    values: dict[str, str] = {}
    for part in fields:
        option, _equals, value = part.partition("=")
        if option not in _OPTIONS_OF[kind] or option in values or not re.fullmatch(OPTIONS[option], value):
            raise ValueError(f"{part[:80]}: no such option of a {kind}; {FORM}")
        values[option] = value
    if kind == COUNTER and "limit" not in values:
        raise ValueError(f"{name}: needs limit=N, the growth in 24 hours that makes a node degrading")
    try:
        re.compile(values.get("hosts", ""))
    except re.error as error:
        raise ValueError(f"hosts={values['hosts'][:80]}: no regular expression ({error})") from None
    limit = int(values.get("limit", 0))
    return HealthSource(kind, name, path, limit, values.get("field", ""), values.get("hosts", ""))


def write_line(line: str) -> str:
    """Return the one spelling of a line.

    Args:
        line: as `read_line` reads it.

    Raises:
        ValueError: see `read_line`.
    """
    read_line(line)
    return " ".join(line.split())


def sources_on(lines: t.Iterable[str], host: str) -> tuple[HealthSource, ...]:
    """Return the sources of a host; of several of one name the first that the host has.

    Args:
        lines: of the site's configuration.
        host: its name.
    """
    return entries_for(map(read_line, lines), host)

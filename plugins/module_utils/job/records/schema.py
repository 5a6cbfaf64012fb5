# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of `record.json`: what its writer writes, and a front end demands of a record that is handed over."""

from __future__ import annotations

import json
import math
import re
import typing as t

from ...state.layout import RECORD
from ...wire.form import FormError

VERSION = 1
LIMIT = 1 << 20
"""Bytes of a record."""
TEXT = 1 << 16
"""Characters of a text."""
MANY = 4096
"""Entries of a list."""
FACTS = 64
"""Entries of an object."""
NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")
"""A key: a phase, a node, a key of `-vm`, a fact."""

Check = t.Callable[[object, str], None]


def check(content: bytes, job_id: str, start: int) -> dict[str, t.Any]:
    """Read a record strictly.

    Args:
        content: of the file.
        job_id: the job of which it must be.
        start: the start of which it must be.

    Returns:
        The record.

    Raises:
        FormError: it is none, of another start, holds a key that no record has, or a value of another form.
    """
    if len(content) > LIMIT:
        raise FormError(RECORD, f"is longer than {LIMIT} bytes")
    try:
        record = json.loads(content.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise FormError(RECORD, "is not JSON, or holds a key twice") from None
    if not isinstance(record, dict):
        raise FormError(RECORD, "is not an object")
    for key, value in record.items():
        if key not in FORM:
            raise FormError(RECORD, f"holds {key[:64]!r}, which no record of this version holds")
        FORM[key](value, key)
    if record.get("job_id") != job_id or record.get("start") != start or record.get("version") != VERSION:
        raise FormError(RECORD, f"is not version {VERSION} of that of start {start} of job {job_id}")
    return record


def _refuse(word: str) -> t.NoReturn:
    raise ValueError(word)


def _once(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _text(value: object, where: str) -> None:
    if not isinstance(value, str) or len(value) > TEXT:
        raise FormError(RECORD, f"{where} is not a text of at most {TEXT} characters")


def _count(value: object, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**63:
        raise FormError(RECORD, f"{where} is not a whole number")


def _figure(value: object, where: str) -> None:
    # a whole number may be too large for a float
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e18 or math.isnan(value):
        raise FormError(RECORD, f"{where} is not a number")


def _or_none(form: Check) -> Check:
    def check_it(value: object, where: str) -> None:
        if value is not None:
            form(value, where)

    return check_it


def _list(form: Check) -> Check:
    def check_it(value: object, where: str) -> None:
        if not isinstance(value, list) or len(value) > MANY:
            raise FormError(RECORD, f"{where} is not a list of at most {MANY}")
        for one in value:
            form(one, f"an entry of {where}")

    return check_it


def _mapping(form: Check, most: int = FACTS) -> Check:
    def check_it(value: object, where: str) -> None:
        if not isinstance(value, dict) or len(value) > most:
            raise FormError(RECORD, f"{where} is not an object of at most {most} entries")
        for key, one in value.items():
            if not NAME.fullmatch(key):
                raise FormError(RECORD, f"{where} holds a key {key[:64]!r}")
            form(one, f"{where}.{key}")

    return check_it


def _object(**forms: Check) -> Check:
    def check_it(value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise FormError(RECORD, f"{where} is not an object")
        for key, one in value.items():
            if key not in forms:
                raise FormError(RECORD, f"{where} holds {key[:64]!r}, which none of this version holds")
            forms[key](one, f"{where}.{key}")

    return check_it


def _fact(value: object, where: str) -> None:
    """What the records of the run directory hold: words, numbers, and lists of lines."""
    if value is None or isinstance(value, bool):
        return
    form = _text if isinstance(value, str) else _list(_text) if isinstance(value, list) else _figure
    form(value, where)


_FACTS = _mapping(_fact)
_GUEST = _object(
    rank=_count,
    name=_text,
    node=_text,
    address=_text,
    mac=_text,
    image=_text,
    vcpus=_count,
    ram_mib=_count,
    seconds=_mapping(_figure),
    used=_mapping(_figure),
    updates=_FACTS,
    devices=_text,
    networks=_text,
    vcpu_cores=_text,
    other_cores=_text,
    io_least=_count,
    cells=_text,
    pages=_text,
    warm=_text,
    side_channels=_text,
)
_MOVE = _object(guest=_text, mac=_text, source=_text, target=_text, at=_figure, seconds=_figure, paused_s=_figure)
FORM: dict[str, Check] = {
    "version": _count,
    "job_id": _text,
    "start": _count,
    "user": _text,
    "name": _text,
    "alias": _text,
    "request": _mapping(_text),
    "nodes": _list(_text),
    "bare": _list(_text),
    "spares": _list(_text),
    "replaced": _list(_FACTS),
    "survival": _mapping(_text),
    "guests": _list(_GUEST),
    "phases": _mapping(_object(began=_figure, seconds=_figure, given_back=_figure), MANY),
    "error": _or_none(_FACTS),
    "refusal": _FACTS,
    "verdict": _FACTS,
    "lost": _FACTS,
    "vm_prologue": _FACTS,
    "vm_epilogue": _FACTS,
    "left": _list(_text),
    "moves": _list(_MOVE),
    "energy": _mapping(_object(joules=_figure, how=_text), MANY),
    "exit_status": _or_none(_count),
    "ended": _or_none(_figure),
    "vtorque": _text,
}
"""Every key that a record may hold; none but version, job_id and start must be there: the prologue may have failed."""

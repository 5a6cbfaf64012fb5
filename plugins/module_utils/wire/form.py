# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one strict reader and writer of JSON that crosses a process or host boundary."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from ..effects import leaves_nothing
from ..errors import VTorqueError


def text_field(pattern: str, *, secret: bool = False, default: t.Any = dataclasses.MISSING) -> t.Any:
    return dataclasses.field(default=default, metadata={"pattern": pattern}, repr=not secret)  # pylint: disable=invalid-field-call


def part_field(*, default: t.Any = dataclasses.MISSING) -> t.Any:
    return dataclasses.field(default=default)  # pylint: disable=invalid-field-call


def number_field(low: int, high: int, *, default: t.Any = dataclasses.MISSING) -> t.Any:
    figures = {"low": low, "high": high}
    return dataclasses.field(default=default, metadata=figures)  # pylint: disable=invalid-field-call


class FormError(VTorqueError):
    """JSON that is not of the form its reader demands."""


_T = t.TypeVar("_T")


def parse_json(text: str | bytes, limit: int, what: str) -> t.Any:
    """Return what a text of JSON says, which may come from anybody.

    Args:
        text: one document.
        limit: characters of a str or bytes that are read.
        what: what it is, for messages.

    Raises:
        FormError: it is longer, or not JSON.
    """
    if len(text) > limit:
        unit = "bytes" if isinstance(text, bytes) else "characters"
        raise FormError(what, f"is longer than {limit} {unit}: not read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormError(what, f"is not JSON: {str(error)[:100]}") from None


@leaves_nothing
def from_dict(cls: type[_T], data: object, where: str = "") -> _T:
    """Make a frozen dataclass of this module out of parsed JSON.

    Args:
        cls: the dataclass.
        data: what `json.loads` gave.
        where: path to `data` in the document, for messages.

    Raises:
        FormError: names the place and what was wrong there; secrets are not repeated.
    """
    where = where or cls.__name__
    if not isinstance(data, dict):
        raise FormError(where, f"an object was expected, not {type(data).__name__}")
    fields = {f.name: f for f in dataclasses.fields(t.cast(t.Any, cls))}
    unknown = sorted(set(map(str, data)) - set(fields))
    missing = sorted(set(fields) - set(data))
    if unknown:
        raise FormError(where, f"unknown key {unknown[0][:64]!r}")
    if missing:
        raise FormError(where, f"key {missing[0]!r} is missing")
    hints = t.get_type_hints(cls)
    values = {name: _value(hints[name], f, data[name], f"{where}.{name}") for name, f in fields.items()}
    return cls(**values)


def _value(hint: t.Any, field: dataclasses.Field[t.Any], value: object, where: str) -> object:
    if dataclasses.is_dataclass(hint):
        return from_dict(t.cast(t.Any, hint), value, where)
    if t.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise FormError(where, "a list was expected")
        return tuple(from_dict(t.get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if t.get_origin(hint) is dict:
        return _timings(value, where)
    if hint is str:
        if not isinstance(value, str) or not re.fullmatch(field.metadata["pattern"], value):
            excerpt = repr(value)[:80] if field.repr else "the value"
            raise FormError(where, f"{excerpt} is not of the form demanded")
        return value
    if hint is bool:
        if not isinstance(value, bool):
            raise FormError(where, f"true or false was expected, not {type(value).__name__}")
        return value
    return _figure(hint, field, value, where)


def _figure(hint: t.Any, field: dataclasses.Field[t.Any], value: object, where: str) -> object:
    number = (int, float) if hint is float else (int,)
    if isinstance(value, bool) or not isinstance(value, number):
        raise FormError(where, f"a number was expected, not {type(value).__name__}")
    if not field.metadata["low"] <= value <= field.metadata["high"]:
        raise FormError(where, f"{value} is not within {field.metadata['low']} .. {field.metadata['high']}")
    return value


def _timings(value: object, where: str) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > 32:
        raise FormError(where, "an object of at most 32 figures was expected")
    figures: dict[str, float] = {}
    for key, figure in value.items():
        good = isinstance(figure, (int, float)) and not isinstance(figure, bool) and 0 <= figure < 1e6
        if not re.fullmatch(r"[a-z_]{1,32}", str(key)) or not good:
            raise FormError(where, "a phase is named in small letters and takes 0 .. 1e6 seconds")
        figures[key] = float(figure)
    return figures


@leaves_nothing
def to_dict(thing: t.Any) -> dict[str, t.Any]:
    """The dataclass as JSON-ready data; `from_dict` reads it back."""
    return dataclasses.asdict(thing)

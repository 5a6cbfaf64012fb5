# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of `vtorque-node`: a request on standard input, an answer on standard output, one JSON document each."""

from __future__ import annotations

import select
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.wire import lines
from ...module_utils.wire.form import parse_json

VERSION = 1
LIMIT = 1 << 20
"""Bytes of a request that are read; one guest needs less than 3 KiB."""

_Message = t.TypeVar("_Message")
Answer = dict[str, t.Any]


def read_line(stream: t.BinaryIO) -> bytes:
    """Return the next line of a stream, of at most one byte more than `LIMIT`."""
    return stream.readline(LIMIT + 1)


def read_second_line(stream: t.BinaryIO, timeout_s: float) -> bytes:
    """Return the map of the whole job; b"" when it does not come whole: the caller gave up.

    Args:
        stream: of which the first line was read.
        timeout_s: seconds until the line must begin.
    """
    if not select.select([stream], [], [], timeout_s)[0]:
        return b""
    line = read_line(stream)
    return line if line.endswith(b"\n") or len(line) > LIMIT else b""


def decode_request(line: bytes, decoders: t.Mapping[str, t.Callable[[t.Any], _Message]]) -> tuple[str, _Message]:
    """Return the kind of a request and its message, strictly.

    Args:
        line: what was read.
        decoders: by kind (`do`), what makes the message of parsed JSON; the first one refuses whatever names no kind.

    Raises:
        FormError: it is too long, not JSON, or not of the form.
        VTorqueError: the same, of the request for a report.
    """
    data = parse_json(line, LIMIT, "the request")
    kind = data.get("do") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in decoders:
        kind = next(iter(decoders))
    return kind, decoders[kind](data)


def make_answer(**values: t.Iterable[t.Any]) -> Answer:
    """Return an answer that it went well, with these lists."""
    more = {name: list(value) for name, value in values.items()}
    return {"version": VERSION, "ok": True, "guests": [], "removed": [], "left": [], **more}


def make_failure(error: VTorqueError, left: t.Iterable[str] = ()) -> Answer:
    """Return an answer that it did not, with what is left on this node, in words."""
    return {"version": VERSION, "ok": False, "error": error.to_dict(), "left": list(left)}


def write_answer(answer: Answer) -> None:
    """Write an answer to standard output, as one line."""
    lines.send_line(1, answer)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How jobs and nodes are written: text folded as Torque folds it, and XML."""

from __future__ import annotations

from time import asctime, localtime

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t

Attribute = tuple[str, str, str]
"""Name, resource ("" if it has none), value; times are seconds since the epoch."""

TIME_ATTRIBUTES = frozenset({"ctime", "mtime", "qtime", "etime", "start_time", "comp_time"})

LINE = 77
TAB = 8


def job_text(job_id: str, attributes: t.Iterable[Attribute], one_line: bool = False) -> str:
    """`qstat -f`: one attribute a line, folded."""
    lines = [f"Job Id: {job_id}\n"]
    for name, resource, value in attributes:
        if name in TIME_ATTRIBUTES:
            value = asctime(localtime(int(value)))
        label = f"{name}.{resource}" if resource else name
        lines.append(f"    {label} = {value if one_line else fold(label, value)}\n")
    return "".join(lines) + "\n"


def fold(label: str, value: str) -> str:
    """Fold a value with newline and tab, at commas where that is enough."""
    column = len(label) + 7
    result: list[str] = []
    pieces = [piece for piece in value.split(",") if piece]
    for number, piece in enumerate(pieces):
        if number:
            result.append(",")
        if len(piece) + column < LINE:
            result.append(piece)
            column += len(piece)
            continue
        if number:
            result.append("\n\t")
            column = TAB + 1
        for character in piece:
            result.append(character)
            column += 1
            if column > LINE:
                result.append("\n\t")
                column = TAB
    return "".join(result)


def xml_escape(text: str) -> str:
    """Text between tags."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        text = text.replace(character, entity)
    return text


def job_xml(job_id: str, attributes: t.Iterable[Attribute]) -> str:
    """One `<Job>` of `qstat -x -f`; resources of one attribute stand inside it."""
    result = [f"<Job><Job_Id>{xml_escape(job_id)}</Job_Id>"]
    inside = ""
    for name, resource, value in attributes:
        if inside and inside != name:
            result.append(f"</{inside}>")
            inside = ""
        if resource and not inside:
            result.append(f"<{name}>")
            inside = name
        tag = resource or name
        result.append(f"<{tag}>{xml_escape(value)}</{tag}>")
    if inside:
        result.append(f"</{inside}>")
    return "".join(result) + "</Job>"


def node_text(name: str, attributes: t.Iterable[Attribute]) -> str:
    """One paragraph of `pbsnodes`."""
    return f"{name}\n" + "".join(f"     {key} = {value}\n" for key, _resource, value in attributes)


def node_xml(name: str, attributes: t.Iterable[Attribute]) -> str:
    """One `<Node>` of `pbsnodes -x`."""
    inside = "".join(f"<{key}>{xml_escape(value)}</{key}>" for key, _resource, value in attributes)
    return f"<Node><name>{xml_escape(name)}</name>{inside}</Node>"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers that bound a job's start and end, as Markdown: read from the source of `module_utils/time_budget.py`."""

from __future__ import annotations

import ast
import importlib
import itertools
import pathlib
import re
import typing as t

MODULE = "ansible_collections.mikelangelo.vtorque.plugins.module_utils.time_budget"
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "plugins/module_utils/time_budget.py"
MEANING = re.compile(r"Bounds: (.+)\.\nWaits: (.+)\.\nWhy: (.+)\.", re.DOTALL)
PART = re.compile(r"^# (.+)$", re.MULTILINE)


class Bound(t.NamedTuple):
    """One number of the table; `part` is the heading above it."""

    part: str
    name: str
    seconds: float
    bounds: str
    waits: str
    why: str


def bounds() -> list[Bound]:
    """Return every number of the module, in its order.

    Raises:
        ValueError: one does not say what it bounds, who waits for it, and why.
    """
    text = SOURCE.read_text(encoding="utf-8")
    module, body, found = importlib.import_module(MODULE), ast.parse(text).body, []
    lines = text.splitlines()
    for statement, after in itertools.pairwise(body):
        if not isinstance(statement, ast.Assign):
            continue
        name = ast.unparse(statement.targets[0])
        below = after.value if isinstance(after, ast.Expr) else None
        meaning = MEANING.fullmatch(str(below.value) if isinstance(below, ast.Constant) else "")
        if meaning is None:
            raise ValueError(f"{name}: say what it bounds, who waits for it, and why")
        part = PART.findall("\n".join(lines[4 : statement.lineno]))[-1]
        found.append(Bound(part, name, getattr(module, name), *meaning.groups()))
    return found


def page() -> str:
    """Return the generated part of docs/developer/time-budget.md."""
    parts: dict[str, list[Bound]] = {}
    for bound in bounds():
        parts.setdefault(bound.part, []).append(bound)
    return "\n".join(f"## {part}\n\n{_table(some)}" for part, some in parts.items())


def _table(some: t.Iterable[Bound]) -> str:
    rows = [("name", "seconds", "bounds", "who waits", "why"), ("---",) * 5]
    rows += [(f"`{one.name}`", f"{one.seconds:g}", one.bounds, one.waits, one.why) for one in some]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of code makes statements, in plain words."""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = CHECKOUT / "plugins"


def test_no_documentation_of_code_asks_a_question() -> None:
    """A field is "whether it has ended", a function "Return whether it has ended"; messages and code are quoted."""
    texts = {path: list(_documentation(ast.parse(path.read_text(encoding="utf-8")))) for path in PLUGINS.rglob("*.py")}
    assert sum(map(len, texts.values())) > 3000
    asked = {
        f"{path.relative_to(PLUGINS)}:{line}": text
        for path, found in texts.items()
        for line, text in found
        if "?" in re.sub(r"`[^`]*`|\"[^\"]*\"", "", text)
    }
    assert asked == {}


def test_documentation_of_code_has_no_metaphors_of_this_project() -> None:
    """A package is one, `job` and `node` have their names, contracts have layers, and a setting is no word."""
    metaphors = re.compile(r"\b(wings?|floors?|farewells?|own words?|this room)\b", re.IGNORECASE)
    found = {
        f"{path.relative_to(PLUGINS)}:{line}": match[0]
        for path in PLUGINS.rglob("*.py")
        for line, text in _documentation(ast.parse(path.read_text(encoding="utf-8")))
        if (match := metaphors.search(text))
    }
    assert found == {}


def _documentation(tree: ast.AST) -> t.Iterator[tuple[int, str]]:
    """Yield docstrings and the texts below constants and fields, each with its line."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value

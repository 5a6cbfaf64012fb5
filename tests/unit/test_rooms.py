# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No file and no package is too long for a new reader, and the documentation of code makes statements."""

from __future__ import annotations

import ast
import collections
import pathlib
import re
import typing as t

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = CHECKOUT / "plugins"
PARTS = ("plugins", "lab")
MOST_LINES = 400
MOST_MODULES = 12
FLAT = {"plugins/modules": "Ansible finds modules by their names there; each is one of the collection's own words"}
"""Packages that may have more modules, and why."""


def sources(part: str) -> list[pathlib.Path]:
    """The Python files of a part, tests included."""
    return sorted((CHECKOUT / part).rglob("*.py"))


def test_sources_of_each_part_are_found() -> None:
    """Else the tests below would hold of nothing after a move."""
    assert len(sources("plugins")) > 500
    assert len(sources("lab")) > 100


@pytest.mark.parametrize("part", PARTS)
def test_no_file_is_longer_than_a_reader_bears(part: str) -> None:
    """A file that wants to be longer has become two things."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources(part)}
    assert {str(path.relative_to(CHECKOUT)): lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("part", PARTS)
def test_no_package_has_more_modules_than_one_list_shows(part: str) -> None:
    """A package that wants more has an idea in it that wants a package of its own."""
    modules = collections.Counter(
        str(path.parent.relative_to(CHECKOUT)) for path in sources(part) if path.name != "__init__.py"
    )
    crowded = {package for package, count in modules.items() if count > MOST_MODULES}
    assert crowded == {package for package in FLAT if package.partition("/")[0] == part}


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

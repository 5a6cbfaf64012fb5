# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports stand at the top of their module, but for those that cost a start too much, or are of an optional library."""

from __future__ import annotations

import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 48
"""So many there are; who takes some away writes the new number here, and nobody adds one."""
WITHOUT_REASON = {}
"""Files whose late imports still have to give their reason, and how many do not."""


def late_imports(text: str) -> list[tuple[int, bool]]:
    """Return the line of each import inside a function, and whether a comment there gives its reason."""
    found = {
        node.lineno: node
        for function in ast.walk(ast.parse(text))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    lines = text.splitlines()
    return [(line, "  # " in lines[(found[line].end_lineno or line) - 1]) for line in sorted(found)]


def all_late_imports() -> dict[str, list[tuple[int, bool]]]:
    """Return those of every file that has some, by its path."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "plugins").rglob("*.py"))}
    found = {str(path.relative_to(ROOT)): late_imports(text) for path, text in texts.items()}
    return {path: imports for path, imports in found.items() if imports}


def test_late_imports_are_found_in_functions_alone_with_their_reasons() -> None:
    text = (
        "import a\n"
        "def f():\n"
        "    import b\n"
        "    if b:\n"
        "        from c import d  # 7 ms that few pay\n"
        "    def g():\n"
        "        import e\n"
        "class C:\n"
        "    import h\n"
    )
    assert late_imports(text) == [(3, False), (5, True), (7, False)]


def test_every_late_import_says_why_it_is_late() -> None:
    without = {
        path: sum(not reason for _line, reason in imports)
        for path, imports in all_late_imports().items()
        if not all(reason for _line, reason in imports)
    }
    assert {path: count for path, count in without.items() if count > WITHOUT_REASON.get(path, 0)} == {}


def test_late_imports_become_no_more() -> None:
    assert sum(map(len, all_late_imports().values())) <= MOST

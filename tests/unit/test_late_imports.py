# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports stand at the top of their module, but for those that cost a start too much, or are of an optional library."""

from __future__ import annotations

import ast
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import slow_libraries

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 24
"""So many there are; who takes some away writes the new number here, and nobody adds one."""
WITHOUT_REASON = {}
"""Files whose late imports still have to give their reason, and how many do not."""
BY_NAME = {
    "plugins/module_utils/job/batch/registry.py": "the parts of the site's batch system",
    "plugins/module_utils/node/devices/api.py": "kinds of host devices, by a table, for starts that have some",
    "plugins/module_utils/slow_libraries.py": "libraries, by a table of reasons",
    "plugins/plugin_utils/cli/vmgr/main.py": "the subject of a command, by a table",
    "plugins/plugin_utils/faststart/ansible_internals.py": "what Ansible may not have",
    "plugins/plugin_utils/node_agent/preload.py": "what was late, in advance",
}
"""The only files that load a module whose name is a value, which no reader of imports sees."""


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


def calls_of(text: str, name: str) -> list[ast.Call]:
    """Return the calls of a function, by its own name or as an attribute."""
    return [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == name
    ]


def plugin_texts() -> dict[str, str]:
    """Return the text of every Python file of `plugins/`, by its path."""
    paths = sorted((ROOT / "plugins").rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def all_late_imports() -> dict[str, list[tuple[int, bool]]]:
    """Return those of every file that has some, by its path."""
    found = {path: late_imports(text) for path, text in plugin_texts().items()}
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


def test_modules_loaded_by_name_are_loaded_in_the_listed_files_alone() -> None:
    loading = {
        path for path, text in plugin_texts().items() if calls_of(text, "import_module") or calls_of(text, "__import__")
    }
    assert loading == set(BY_NAME)


def test_slow_libraries_are_each_loaded_late_somewhere_and_nothing_else_is() -> None:
    names = {
        ast.literal_eval(call.args[0]) for text in plugin_texts().values() for call in calls_of(text, "load_library")
    }
    assert names == set(slow_libraries.REASONS)


def test_slow_libraries_without_a_reason_are_refused() -> None:
    with pytest.raises(LookupError, match="json is to be imported at the top"):
        slow_libraries.load_library("json")

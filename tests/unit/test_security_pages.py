# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of docs/security name tests and files that exist, and each hole has tests or is listed as not tested."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest
from ansible_collections.mikelangelo.vtorque.tests.texts import holes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/security").glob("*.md"))
HOLES = ROOT / "docs/security/holes.md"
SPAN = re.compile(r"`([^`\n]+)`")
A_TEST = re.compile(r"((?:tests|lab)/\S+\.py)::(\S+)")
A_FILE = re.compile(r"(?:docs|lab|meta|playbooks|plugins|roles|templates|tests)/\S+")


def names_of(text: str) -> set[str]:
    """The tests that a file holds, whatever their parameters are; those of classes as `Class::test`."""
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def wrong_names(page: str, root: pathlib.Path) -> list[str]:
    """What a page names, tests and files, and what is not there."""
    wrong = []
    for span in SPAN.findall(page):
        if named := A_TEST.fullmatch(span):
            file = root / named[1]
            there = file.is_file() and named[2] in names_of(file.read_text(encoding="utf-8"))
        else:
            there = "*" in span or not A_FILE.fullmatch(span) or (root / span).exists()
        if not there:
            wrong.append(span)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_by_a_page_exists(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrong_names(text, ROOT) == []
    assert "::" not in SPAN.sub("", text), "a test is named in a span of code"


def test_every_hole_has_a_test_or_is_listed_as_not_tested() -> None:
    found = [(name, hole) for name, area in holes.areas().items() for hole in area.holes]
    assert len(found) > 50
    index = HOLES.read_text(encoding="utf-8")
    assert index.partition("\n## Not tested yet\n")[2].count("\n* ") == sum(not hole.tests for _name, hole in found)
    for name, hole in found:
        page = (HOLES.parent / f"{name}.md").read_text(encoding="utf-8")
        assert f"| {hole.hole} | {hole.answer} |" in page
        assert [test for test in hole.tests if not A_TEST.fullmatch(test) or f"`{test}`" not in page] == []
        assert f"]({name}.md)" in index


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("`tests/test_a.py::test_it` and `tests/test_a.py::Of::test_it_too`", []),
        ("`tests/test_a.py`, `plugins/*/a.py`, `pci`, `/var/lib/vtorque`", []),
        ("`tests/test_a.py::test_i`", ["tests/test_a.py::test_i"]),
        ("`tests/test_a.py::test_it_too`", ["tests/test_a.py::test_it_too"]),
        ("`tests/test_a.py::test_it[one]`", ["tests/test_a.py::test_it[one]"]),
        ("`tests/test_a.py::helper`", ["tests/test_a.py::helper"]),
        ("`tests/test_b.py::test_it`, `tests/test_b.py`", ["tests/test_b.py::test_it", "tests/test_b.py"]),
    ],
)
def test_wrong_name_is_found(tmp_path: pathlib.Path, page: str, wrong: list[str]) -> None:
    text = "# def test_i(): ...\ndef helper(): ...\ndef test_it(): ...\nclass Of:\n    def test_it_too(self): ...\n"
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(text, encoding="utf-8")
    assert wrong_names(page, tmp_path) == wrong

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a suite has tried is counted from the reports of its tests."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from .loaded_program import load_program

FILE = pathlib.Path(__file__).resolve().parents[1] / "tried.py"


@pytest.fixture(scope="module")
def tried() -> t.Any:
    return load_program(FILE)


PROPERTY = '<property name="tried" value="x"/>'
SAYS = f"<testcase><properties>{PROPERTY}{PROPERTY}</properties></testcase>"
SILENT = f"<testcase><properties>{PROPERTY.replace('tried', 'other')}</properties></testcase>"
FAILED = "<testcase><failure/></testcase>"
SKIPPED = "<testcase><skipped/></testcase>"


@pytest.mark.parametrize(
    ("cases", "line", "well"),
    [
        ([SAYS, SILENT], "3 attacks tried by 2 tests, of which 0 failed", True),
        ([SAYS, FAILED], "3 attacks tried by 2 tests, of which 1 failed", False),
        ([SILENT, SKIPPED], "1 attacks tried by 1 tests, of which 0 failed; 1 were skipped", True),
        ([SKIPPED], "0 attacks tried by 0 tests, of which 0 failed; 1 were skipped", False),
    ],
)
def test_attempts_are_counted_not_tests(tried: t.Any, cases: list[str], line: str, well: bool) -> None:
    reports = [f"<testsuites><testsuite>{case}</testsuite></testsuites>" for case in cases]
    assert tried.count("attacks", reports) == (line, well)


def test_tests_that_a_page_names(tried: t.Any) -> None:
    page = "| a | b | `tests/unit/a.py::test_a`, `tests/e2e/b.py::test_b` |\n| c | d | `tests/unit/a.py::test_a` |\n"
    assert tried.names(page, "tests/unit") == ["tests/unit/a.py::test_a"]
    assert tried.names(page, "lab") == []


def test_names_of_all_pages_of_a_directory_are_printed_once(
    tried: t.Any, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.md").write_text("1. `tests/unit/a.py::test_a`, `tests/e2e/b.py::test_b`\n", encoding="utf-8")
    (tmp_path / "b.md").write_text("1. `tests/unit/a.py::test_a`\n2. `tests/unit/c.py::test_c`\n", encoding="utf-8")
    assert tried.main(["names", str(tmp_path), "tests/unit"]) == 0
    assert capsys.readouterr().out == "tests/unit/a.py::test_a\ntests/unit/c.py::test_c\n"
    assert tried.main(["names", str(tmp_path), "lab"]) == 1

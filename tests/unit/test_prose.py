# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checker of prose reports what CONTRIBUTING.md forbids, and nothing in commands or generated tables."""

from __future__ import annotations

import importlib.util
import pathlib
import typing as t

import pytest

FILE = pathlib.Path(__file__).resolve().parents[1] / "prose.py"
MARK = "<!-- below: made by `make generated` out of a table -->\n\n"
END = "<!-- above: made -->\n"


@pytest.fixture(scope="module")
def prose() -> t.Any:
    spec = importlib.util.spec_from_file_location("prose", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHORT = "word " * 29 + "word.\n"
LONG = "word " * 30 + "word.\n"


@pytest.mark.parametrize(
    ("page", "faults"),
    [
        (SHORT, []),
        (LONG, ["1: sentence: 31 words"]),
        ("word (4711) " * 29 + "word.\n", []),
        ("A table.\n\n| a |\n|---|\n| " + LONG.strip() + " |\n", ["5: sentence: 31 words"]),
        (f"# A\n\n{SHORT[:-1]} {SHORT[:-1]} {SHORT[:-1]} {SHORT[:-1]} Word.\n", ["3: paragraph: 121 words"]),
        (f"| a |\n|---|\n| {'`word` ' * 50} |\n", ["3: table cell: 349 characters", "3: sentence: 50 words"]),
        ("It was said, and kept.\n", ["1: word: 'kept'", "1: word: 'said'"]),
        ("The user opens their file. It is `told` and `--shown`.\n", []),
        ("See [what he told](page.md).\n", ["1: word: 'he'", "1: word: 'told'"]),
        (f"```text\nhe told {LONG}```\n", []),
        (f"Text.\n\n{MARK}he told {LONG}", []),
        (f"Text.\n\n{MARK}| he told {LONG}\n{END}Then he.\n", ["8: word: 'he'"]),
        ("Word.\n\n" * 2000, []),
        ("Word.\n\n" * 2200, ["page: 15400 bytes"]),
        ("Word.\n\n" * 2200 + MARK, []),
    ],
)  # fmt: skip
def test_check_page_reports_what_is_forbidden(prose: t.Any, page: str, faults: list[str]) -> None:
    found = prose.check_page(page)
    assert len(found) == len(faults), found
    assert [fault for fault in sorted(faults) if not any(line.startswith(fault) for line in found)] == []


def test_pages_of_the_checkout_pass_or_are_on_the_list(prose: t.Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert prose.main() == 0, capsys.readouterr().out


def test_page_on_the_list_that_passes_is_an_error(
    prose: t.Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("A page that passes.\n", encoding="utf-8")
    monkeypatch.setattr(prose, "CHECKOUT", tmp_path)
    monkeypatch.setattr(prose, "list_pages", lambda: [tmp_path / "README.md"])
    monkeypatch.setattr(prose, "TO_DO", ("README.md",))
    assert prose.main() == 1
    assert "README.md: it passes" in capsys.readouterr().out

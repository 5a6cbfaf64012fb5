# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No file and no package of the product or of the lab grows beyond what somebody new takes in at a glance."""

from __future__ import annotations

import collections
import pathlib

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
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

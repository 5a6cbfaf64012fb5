# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No file and no package of the product grows beyond what somebody new takes in at a glance."""

from __future__ import annotations

import collections
import pathlib

PLUGINS = pathlib.Path(__file__).resolve().parents[2] / "plugins"
MOST_LINES = 400
MOST_MODULES = 12
FLAT = {"modules": "Ansible finds modules by their names there; each is one of the collection's own words"}
"""Packages that may have more modules, and why."""


def test_no_file_is_longer_than_a_reader_bears() -> None:
    """A file that wants to be longer has become two things."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PLUGINS.rglob("*.py")}
    assert len(lengths) > 500
    assert {str(path.relative_to(PLUGINS)): lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_package_has_more_modules_than_one_list_shows() -> None:
    """A package that wants more has an idea in it that wants a package of its own."""
    modules = collections.Counter(
        str(path.parent.relative_to(PLUGINS)) for path in PLUGINS.rglob("*.py") if path.name != "__init__.py"
    )
    assert len(modules) > 50
    assert {package for package, count in modules.items() if count > MOST_MODULES} == set(FLAT)

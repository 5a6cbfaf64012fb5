# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of sizes names what it is to name, and nothing else."""

from __future__ import annotations

import pathlib

from .loaded_program import load_program

SIZES = load_program(pathlib.Path(__file__).resolve().parents[1] / "sizes.py")
PLACE = pathlib.Path("/part")


def test_only_long_files_are_named() -> None:
    files = {PLACE / "long.py": "\n" * 601, PLACE / "short.py": "\n" * 600}
    assert list(SIZES.long_files(files)) == ["/part/long.py has 601 lines"]


def test_only_crowded_packages_are_named() -> None:
    files = [PLACE / f"{package}/m{number}.py" for package, count in (("a", 21), ("b", 20)) for number in range(count)]
    assert list(SIZES.crowded_packages([*files, PLACE / "b/__init__.py"])) == ["/part/a has 21 modules"]


def test_only_small_modules_with_one_importer_are_named() -> None:
    files = {
        PLACE / "a/one.py": "X = 1\n",
        PLACE / "a/two.py": "Y = 1\n",
        PLACE / "a/large.py": "Z = 1\n" * 60,
        PLACE / "b/user.py": "from ..a.one import X\nfrom ..a import two, large\n",
        PLACE / "b/other.py": "from ..a.two import Y\n",
    }
    assert list(SIZES.small_modules(files)) == ["/part/a/one.py has 1 lines, and is used by /part/b/user.py alone"]

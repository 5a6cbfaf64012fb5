# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing is offered that is not there: a key, a parameter or a line of the documentation has its effect."""

from __future__ import annotations

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OFFER = ("docs", "playbooks", "plugins", "roles", "templates")
TEXTS = {"", ".cfg", ".j2", ".json", ".md", ".py", ".sh", ".yaml", ".yml"}
LATER = "not available"


@pytest.mark.parametrize("directory", OFFER)
def test_no_text_of_the_product_names_what_is_not_available(directory: str) -> None:
    files = [path for path in sorted((ROOT / directory).rglob("*")) if path.suffix in TEXTS and path.is_file()]
    assert files
    found = []
    for path in files:
        text = " ".join(path.read_text(encoding="utf-8", errors="replace").split())
        if LATER in text.lower():
            found.append(str(path.relative_to(ROOT)))
    assert found == [], "give it its effect, or say what to do instead"

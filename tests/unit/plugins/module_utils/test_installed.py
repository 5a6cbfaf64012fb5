# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is installed, in a word."""

from __future__ import annotations

import json
import pathlib

from ansible_collections.mikelangelo.vtorque.plugins.module_utils import installed


def test_word_for_what_is_installed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "galaxy.yml").write_text("name: x\nversion: 1.2.3\n")
    assert installed.identity(tmp_path) == "1.2.3"
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"collection_info": {"version": "1.3.0"}}))
    (tmp_path / "FILES.json").write_text("{}")
    by_galaxy = installed.identity(tmp_path)
    assert by_galaxy.startswith("1.3.0-")
    (tmp_path / "FILES.json").write_text('{"other": 1}')
    assert installed.identity(tmp_path) not in (by_galaxy, "1.3.0")
    (tmp_path / ".digest").write_text("0123456789abcdef\n")
    assert installed.identity(tmp_path) == "1.3.0-01234567"


def test_checkout_has_a_version() -> None:
    assert installed.version()[0].isdigit()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is installed, in a word."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import installed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError


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


@pytest.mark.parametrize(
    "cut_off", [b"", b'{"collection_info": {"vers', b"{}", b"[]", b'{"collection_info": {"version": "1\xff'], ids=str
)
def test_installation_that_was_cut_off_has_no_word(tmp_path: pathlib.Path, cut_off: bytes) -> None:
    (tmp_path / "MANIFEST.json").write_bytes(cut_off)
    with pytest.raises(VTorqueError, match="install it again"):
        installed.version(tmp_path)
    assert installed.identity(tmp_path) == ""


def test_version_without_a_whole_digest_is_empty(tmp_path: pathlib.Path) -> None:
    assert installed.identity(tmp_path) == ""
    (tmp_path / "galaxy.yml").write_text("version: 1.2.3\n")
    (tmp_path / ".digest").write_bytes(b"\xff")
    assert installed.identity(tmp_path) == ""

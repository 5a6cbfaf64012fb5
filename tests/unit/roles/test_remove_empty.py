# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What uninstall removes when nothing is in it any more, and what it says of that in check mode."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

PROGRAM = COLLECTION_DIR.parent / "roles/common/files/remove_empty.py"
BLOCK = "# BEGIN VTORQUE: written\nours\n# END VTORQUE: written\n"


def removed(candidates: list[pathlib.Path], gone: list[pathlib.Path] | None = None) -> list[pathlib.Path]:
    words = [] if gone is None else ["--check", json.dumps([str(path) for path in gone])]
    command = [sys.executable, "-I", PROGRAM, json.dumps([str(path) for path in candidates]), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [pathlib.Path(line) for line in done.stdout.splitlines()]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh/keys").touch()
    (tmp_path / "ssh/key").touch()
    return tmp_path


def test_a_directory_goes_with_the_last_thing_in_it(place: pathlib.Path) -> None:
    (place / "ssh/key").unlink()
    assert removed([place / "ssh/keys", place / "ssh"]) == [place / "ssh/keys", place / "ssh"]
    assert not (place / "ssh").exists()
    assert removed([place / "ssh/keys", place / "ssh"]) == []


def test_what_holds_something_stays(place: pathlib.Path) -> None:
    (place / "ssh/keys").write_text("the site's")
    (place / "link").symlink_to("nowhere")
    assert removed([place / "ssh/keys", place / "ssh", place / "link"]) == []
    assert (place / "ssh/keys").read_text() == "the site's"


def test_check_mode_says_what_would_go_and_changes_nothing(place: pathlib.Path) -> None:
    (place / "ssh/keys").write_text(BLOCK)
    candidates = [place / "ssh/keys", place / "ssh"]
    assert removed(candidates, [place / "ssh/key"]) == candidates
    assert (place / "ssh/keys").read_text() == BLOCK
    (place / "ssh/keys").write_text(f"the site's\n{BLOCK}")
    assert removed(candidates, [place / "ssh/key"]) == []


def test_a_block_that_is_still_there_is_no_empty_file(place: pathlib.Path) -> None:
    (place / "ssh/keys").write_text(BLOCK)
    assert removed([place / "ssh/keys"]) == []

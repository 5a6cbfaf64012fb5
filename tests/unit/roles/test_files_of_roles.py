# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that the role `common` runs once for many files: what they change and refuse, and check mode."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

FILES = COLLECTION_DIR.parent / "roles/common/files"


def run(program: str, argument: t.Any, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(FILES / program), json.dumps(argument), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def lines(program: str, argument: t.Any, *options: str) -> list[str]:
    done = run(program, argument, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture
def placed(tmp_path: pathlib.Path) -> list[str]:
    """A directory with a file in it, a file, a link to a directory of the site's, a link to nothing, and nothing."""
    (tmp_path / "directory/inner").mkdir(parents=True)
    (tmp_path / "directory/inner/file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/precious").touch()
    (tmp_path / "link").symlink_to(tmp_path / "site")
    (tmp_path / "dangling").symlink_to("nowhere")
    return [str(tmp_path / name) for name in ("directory", "file", "link", "dangling", "missing")]


def test_remove_placed_takes_what_is_there_and_spares_what_links_lead_to(
    placed: list[str], tmp_path: pathlib.Path
) -> None:
    assert lines("remove_placed.py", placed) == placed[:4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
    assert (tmp_path / "site/precious").exists()
    assert lines("remove_placed.py", placed) == []


def test_remove_placed_in_check_mode_says_the_same_and_changes_nothing(
    placed: list[str], tmp_path: pathlib.Path
) -> None:
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert lines("remove_placed.py", placed, "--check") == placed[:4]
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_list_present_counts_a_dangling_link(placed: list[str]) -> None:
    done = run("list_present.py", placed)
    assert json.loads(done.stdout) == placed[:4]


def test_make_directories_makes_parents_and_mends_modes_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "old").mkdir(mode=0o700)
    wanted = [[str(tmp_path / "a/b"), "0711"], [str(tmp_path / "old"), "0755"]]
    names = [name for name, _mode in wanted]
    assert lines("make_directories.py", wanted, "--check") == names
    assert not (tmp_path / "a").exists()
    assert lines("make_directories.py", wanted) == names
    assert [path.stat().st_mode & 0o7777 for path in (tmp_path / "a", tmp_path / "a/b", tmp_path / "old")] == [
        0o755,
        0o711,
        0o755,
    ]
    assert lines("make_directories.py", wanted) == lines("make_directories.py", wanted, "--check") == []


@pytest.mark.parametrize("options", [(), ("--check",)])
def test_make_directories_where_a_file_is_fails_and_names_it(tmp_path: pathlib.Path, options: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("the site's")
    done = run("make_directories.py", [[str(tmp_path / "file"), "0755"]], *options)
    assert done.returncode != 0
    assert f"{tmp_path}/file is no directory" in done.stderr
    assert (tmp_path / "file").read_text() == "the site's"


def test_permissions_program_of_the_batch_system_stands_alone(tmp_path: pathlib.Path) -> None:
    """The role for nodes brings this one file to hosts that have nothing of the collection yet."""
    check = (COLLECTION_DIR.parent / "roles/compute_node/tasks/check.yml").read_text(encoding="utf-8")
    (name,) = re.findall(r"'(/plugins/[a-z_/]+\.py)'", check)
    alone = tmp_path / "alone.py"
    alone.write_bytes((COLLECTION_DIR.parent / name.lstrip("/")).read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", alone, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")

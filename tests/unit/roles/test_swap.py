# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the role `common` puts a new environment in the place of the former one."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

FILES = COLLECTION_DIR.parent / "roles/common/files"


def play(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", FILES / program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def trees(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """What is new, and the place that holds something."""
    new, place = tmp_path / ".venv.new", tmp_path / "venv"
    for tree, word in ((new, "newer"), (place, "former")):
        tree.mkdir()
        (tree / "program").write_text(word)
    return new, place


def test_at_no_moment_the_program_is_missing(trees: tuple[pathlib.Path, pathlib.Path]) -> None:
    new, place = trees
    seen, ended = set(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.add((place / "program").read_text() if (place / "program").exists() else "missing")

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(10):
            assert play("swap.py", new, place).returncode == 0
            assert not new.exists()
            new.mkdir()
            (new / "program").write_text(f"{number}")
    finally:
        ended.set()
        looker.join()
    assert (place / "program").read_text() == "8"
    assert "missing" not in seen


def test_swap_of_a_missing_tree_places_it(trees: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path) -> None:
    assert play("swap.py", trees[0], tmp_path / "other").returncode == 0
    assert (tmp_path / "other/program").read_text() == "newer"


def test_link_is_replaced_and_what_it_names_stays(
    trees: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    new, place = trees
    link = tmp_path / "link"
    link.symlink_to(place)
    assert play("swap.py", new, link).returncode == 0
    assert not link.is_symlink()
    assert (link / "program").read_text() == "newer"
    assert (place / "program").read_text() == "former"


def test_directory_of_a_job_with_guests_keeps_what_is_there(
    trees: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "guests/4711.lab.1").mkdir(parents=True)
    (tmp_path / "guests/.lock").touch()
    done = play("swap.py", *trees, "--jobs", tmp_path / "guests")
    assert done.returncode == 1
    assert "4711.lab.1" in done.stderr
    assert (trees[1] / "program").read_text() == "former"


@pytest.mark.parametrize("name", ["4711.fe.SC", "4711.fe.JB", "4711.fe.TK"])
def test_job_that_came_meanwhile_keeps_what_is_there(
    trees: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path, name: str
) -> None:
    new, place = trees
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / name).touch()
    done = play("swap.py", new, place, "--jobs", jobs)
    assert done.returncode == 1
    assert f"a job came to this node meanwhile ({name}): {place} was not replaced, play it again later" in done.stderr
    assert (place / "program").read_text() == "former"
    assert not new.exists()


def test_environment_that_was_moved_knows_its_place(tmp_path: pathlib.Path) -> None:
    made, place = tmp_path / ".venv.new", tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    script = made / "bin/hello"
    script.write_text(f"#!{made}/bin/python\nimport sys\nprint(sys.prefix)\n")
    script.chmod(0o755)
    assert play("move_environment.py", made, place).returncode == 0
    assert play("swap.py", made, place).returncode == 0
    output = subprocess.run([place / "bin/hello"], capture_output=True, text=True, check=True)
    assert output.stdout == f"{place}\n"
    left = [
        path for path in place.rglob("*") if path.is_file() and not path.is_symlink() and str(made) in path.read_text()
    ]
    assert left == []

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outside of `job/batch/<system>` nothing of the product speaks a batch system's own language.

Read are code, comments and text of plugins, templates, roles and playbooks.  What may name its words for good is a
table of names; `TO_MOVE` lists what has not moved yet, word by word, and may only shrink.
"""

from __future__ import annotations

import fnmatch
import pathlib
import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("plugins", "roles", "templates", "playbooks")
WORDS = ("exec_host", "mom_priv", "PBS_", "qstat", "scontrol", "SLURM_")
OF_A_SYSTEM = (
    "plugins/module_utils/job/batch/{}/*",
    "plugins/modules/{}_*",
    "templates/batch/{}/*",
    "roles/*/tasks/batch/{}/*",
    "roles/*/vars/batch/{}.yml",
)
"""Paths of a system's own things, as `fnmatch` has them."""
SYSTEMS = ("torque", "openpbs", "slurm")

TABLES = {
    "plugins/module_utils/job/batch/shared/mom_shell.py": "what MOMs of Torque and OpenPBS, of one origin, do alike",
    "plugins/module_utils/job/batch/shared/pbs_server.py": "what the servers of both do alike",
    "plugins/module_utils/job/config/legacy.py": "names of the parameters that the original had",
    "plugins/module_utils/time_budget.py": "says where Torque's own number is from",
}
"""Files that name words for good, and why."""

TO_MOVE: dict[str, str] = {}
"""Files that are still to move, and the words that each of them names."""


def words_of(text: str) -> set[str]:
    """The words of a batch system in a text."""
    return {word for word in WORDS if word in text}


def found(place: pathlib.Path) -> dict[str, set[str]]:
    """The files below a place that name words of a batch system, outside of that system's own directories."""
    own = [pattern.format(system) for pattern in OF_A_SYSTEM for system in SYSTEMS]
    named: dict[str, set[str]] = {}
    for top in PRODUCT:
        for file in sorted((place / top).rglob("*")):
            path = file.relative_to(place).as_posix()
            if (
                not file.is_file()
                or file.suffix == ".pyc"
                or any(fnmatch.fnmatchcase(path, pattern) for pattern in own)
            ):
                continue
            if words := words_of(file.read_text(encoding="utf-8", errors="replace")):
                named[path] = words
    return named


def test_only_a_batch_system_names_its_words() -> None:
    new = {
        path: sorted(words - set(TO_MOVE.get(path, "").split()))
        for path, words in found(ROOT).items()
        if path not in TABLES
    }
    assert {path: words for path, words in new.items() if words} == {}, (
        "what speaks a batch system's language belongs into job/batch/<system> (docs/adr/0028)"
    )


def test_list_of_files_to_move_holds_no_word_that_has_moved() -> None:
    named = found(ROOT)
    stale = {path: sorted(set(words.split()) - named.get(path, set())) for path, words in TO_MOVE.items()}
    assert {path: words for path, words in stale.items() if words} == {}, "take these words out of TO_MOVE"
    assert not set(TABLES) - set(named)
    assert not set(TABLES) & set(TO_MOVE)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("top", PRODUCT)
def test_word_would_be_found(tmp_path: pathlib.Path, top: str, word: str) -> None:
    for directory in PRODUCT:
        (tmp_path / directory).mkdir()
    (tmp_path / top / "one.py").write_text(f"# see {word}X\n", encoding="utf-8")
    assert found(tmp_path) == {f"{top}/one.py": {word}}


@pytest.mark.parametrize("system", SYSTEMS)
def test_systems_own_directory_may_name_them(tmp_path: pathlib.Path, system: str) -> None:
    for pattern in OF_A_SYSTEM:
        own = tmp_path / pattern.format(system).replace("*", "one")
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text("qstat", encoding="utf-8")
    assert found(tmp_path) == {}
    other = tmp_path / f"plugins/module_utils/job/batch/{system}.py"
    other.write_text("qstat", encoding="utf-8")
    assert list(found(tmp_path)) == [other.relative_to(tmp_path).as_posix()]


def test_every_system_of_the_registry_is_known_here() -> None:
    packages = (ROOT / "plugins/module_utils/job/batch").glob("*/__init__.py")
    assert {package.parent.name for package in packages} - {"shared"} == set(registry.SYSTEMS)
    assert set(registry.SYSTEMS) <= set(SYSTEMS)
    assert all(re.fullmatch("[a-z]+", system) for system in SYSTEMS)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outside of `job/batch/<system>` nothing of the product speaks a batch system's own language.

Read are code, comments and text of plugins, templates, roles and playbooks.  What may name its words for good is a
table of names.
"""

from __future__ import annotations

import ast
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
    "plugins/module_utils/job/batch/shared/exec_hosts.py": "how servers of Torque and OpenPBS write hosts",
    "plugins/module_utils/job/batch/shared/mom_shell.py": "what MOMs of Torque and OpenPBS, of one origin, do alike",
    "plugins/module_utils/job/batch/shared/pbs_server.py": "what the servers of both do alike",
    "plugins/module_utils/job/config/legacy.py": "names of the parameters that the original had",
    "plugins/module_utils/time_budget.py": "says where Torque's own number is from",
}
"""Files that name words for good, and why."""

FOR_USERS = re.compile(r"\b(qsub|sbatch|MOM|ppn|pbsdsh|qdel|qrls|scancel|Torque|Slurm)\b|\$prologalarm|-W x=|-l nodes")
"""What users of one batch system read: in a message for all of them it comes from the adapter (`open_terms`)."""
MESSAGES = ("plugins/module_utils", "plugins/plugin_utils", "plugins/action")
SPEAKS_TO_ONE = {
    "plugins/module_utils/job/batch/registry.py": "names of modules",
    "plugins/module_utils/job/batch/shared/mom_traces.py": "of Torque and OpenPBS",
    "plugins/module_utils/job/batch/shared/pbs_server.py": "of Torque and OpenPBS",
    "plugins/module_utils/job/batch/shared/tm_launchers.py": "why a variable is there: nobody is shown it",
    "plugins/module_utils/job/config/batch_systems.py": "a table by system",
    "plugins/module_utils/job/config/legacy.py": "what the original had, which knew Torque alone",
    "plugins/module_utils/job/config/parameters.py": "parameters that name a command, and options of each system",
    "plugins/plugin_utils/cli/vmgr/jobs/epilogs.py": "help that names each system's own form",
}
"""Files whose texts may name one batch system, and why."""


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
            if arguments := words_of(file.read_text(encoding="utf-8", errors="replace")):
                named[path] = arguments
    return named


def test_only_a_batch_system_names_its_words() -> None:
    named = {path: sorted(terms) for path, terms in found(ROOT).items()}
    assert {path: terms for path, terms in named.items() if path not in TABLES} == {}, (
        "what speaks a batch system's language belongs into job/batch/<system> (docs/adr/0028)"
    )


def messages_of(text: str) -> list[str]:
    """The texts of a program that are no docstrings, and speak one batch system's language."""
    tree = ast.parse(text)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        if FOR_USERS.search(node.value)
    ]


def messages_below(place: pathlib.Path) -> dict[str, list[str]]:
    """The same of all files that speak to users of every batch system."""
    own = [pattern.format(system) for pattern in OF_A_SYSTEM for system in SYSTEMS]
    files = {file.relative_to(place).as_posix(): file for top in MESSAGES for file in (place / top).rglob("*.py")}
    texts = {
        path: messages_of(file.read_text(encoding="utf-8"))
        for path, file in sorted(files.items())
        if not any(fnmatch.fnmatchcase(path, pattern) for pattern in own)
    }
    return {path: messages for path, messages in texts.items() if messages}


def test_message_for_users_of_all_systems_names_none() -> None:
    named = messages_below(ROOT)
    assert {path: messages for path, messages in named.items() if path not in SPEAKS_TO_ONE} == {}
    assert not set(SPEAKS_TO_ONE) - set(named), "take these out of SPEAKS_TO_ONE"


@pytest.mark.parametrize(
    "message",
    [
        'f"ask by -l nodes={wanted}:ppn=N"', "'leave its -W x= as it is'", '"for the MOM"', '"for $prologalarm"',
        '"a job type makes Torque run other hooks"', "('see', 'pbsdsh')", '"Slurm has none"',
    ],
)  # fmt: skip
def test_message_that_speaks_to_one_system_would_be_found(message: str) -> None:
    assert messages_of(f'"""For qsub."""\nWHY = {message}\n\ndef see() -> None:\n    """Of the MOM."""\n')
    assert not messages_of(f'"""{"For qsub."}"""\nWHY = "vsub asks for enough"  # Torque\n')


def test_table_lists_only_files_that_name_words() -> None:
    assert not set(TABLES) - set(found(ROOT)), "take these out of TABLES"


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


OF_TORQUE = re.compile(
    r"\b(?:torque|qsub|qstat|qdel|qrls|qmgr|pbsnodes|momctl|moms?|mother superior|exec_host|ppn)\b|mom_priv|(?-i:PBS_)",
    re.IGNORECASE,
)
"""What an administrator who knows Slurm alone cannot know."""


@pytest.mark.parametrize("page", ["docs/admin/slurm.md", "docs/user/slurm.md"])
def test_page_for_slurm_has_no_word_of_torque(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert OF_TORQUE.findall(text) == []
    assert OF_TORQUE.search("the MOM of the node")

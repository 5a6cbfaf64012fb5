# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles ask of each batch system, each has an answer to."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

ROLES = COLLECTION_DIR.parent / "roles"
VARIABLES = sorted(ROLES.glob("*/vars/batch/*.yml"))
TASKS = re.compile(r"include_tasks: \"{{ __\w+_batch_tasks }}/(\w+\.yml)\"(?:\n  when: (\S+))?")


def asked(role: pathlib.Path) -> set[str]:
    """The variables that the role takes from whichever batch system it is."""
    texts = [*role.glob("tasks/*.yml"), role / "vars/main.yml"]
    text = "".join(path.read_text(encoding="utf-8") for path in texts)
    return set(re.findall(rf"__{role.name}_batch_\w+", text)) - {
        f"__{role.name}_batch_{one}" for one in ("tasks", "system")
    }


@pytest.mark.parametrize("path", VARIABLES, ids=lambda path: f"{path.parts[-4]}-{path.stem}")
def test_role_finds_every_variable_that_it_asks_for(path: pathlib.Path) -> None:
    role = path.parents[2]
    assert asked(role)
    assert asked(role) <= set(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", VARIABLES, ids=lambda path: f"{path.parts[-4]}-{path.stem}")
def test_role_finds_every_file_of_tasks_that_it_plays(path: pathlib.Path) -> None:
    role, values = path.parents[2], yaml.safe_load(path.read_text(encoding="utf-8"))
    called = [call for file in role.glob("tasks/*.yml") for call in TASKS.findall(file.read_text(encoding="utf-8"))]
    assert called
    for name, condition in called:
        if values.get(condition, True):
            assert (role / "tasks/batch" / path.stem / name).is_file()


def test_slurms_configuration_is_never_written() -> None:
    """Whatever a role's task for Slurm writes, it lies in our own directories."""
    for file in ROLES.glob("*/tasks/batch/slurm/*.yml"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(
            r"ansible.builtin.(copy|template|lineinfile|blockinfile|replace|shell|command|file):", text
        )
        assert "/etc/slurm" not in text

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action tells of a recipe, and what it brings by Ansible's own copy."""

from __future__ import annotations

import pathlib
import typing as t
from unittest import mock

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.action import image_recipe


class Player:
    """Plays the task; what is copied is kept."""

    def __init__(self, **copied: t.Any) -> None:
        self.brought: dict[str, bytes] = {}
        self.copied = copied

    def copy(self, arguments: dict[str, str], _task_vars: object) -> dict[str, t.Any]:
        self.brought[arguments["dest"]] = pathlib.Path(arguments["src"]).read_bytes()
        return {"changed": True, **self.copied}

    def play(self, *, check: bool = False, **args: str) -> dict[str, t.Any]:
        action = image_recipe.ActionModule(
            task=mock.MagicMock(args=args, check_mode=check, diff=False, async_val=0), connection=mock.MagicMock(),
            play_context=mock.MagicMock(), loader=mock.MagicMock(), templar=mock.MagicMock(), shared_loader_obj=None,
        )  # fmt: skip
        # the loader's own mark: ansible-core 2.18 gives it no default
        action._load_name = "image_recipe"
        action._early_needs_tmp_path = lambda: False
        action.copy_file = self.copy
        result: dict[str, t.Any] = action.run(task_vars={})
        return result


@pytest.fixture
def recipe(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "recipe.yml"
    path.write_text("packages: [less]\ncommands: [ldconfig]\n")
    return path


def test_without_a_place_it_is_checked_and_no_more(recipe: pathlib.Path) -> None:
    player = Player()
    result = player.play(src=str(recipe))
    assert (result["changed"], result["packages"], len(result["digest"])) == (False, ["less"], 64)
    assert player.brought == {}


def test_recipe_is_transferred_except_in_check_mode(recipe: pathlib.Path) -> None:
    player = Player()
    assert player.play(check=True, src=str(recipe), dest="/build")["changed"] is False
    assert player.brought == {}
    assert player.play(src=str(recipe), dest="/build")["changed"] is True
    assert sorted(player.brought) == ["/build/recipe.commands", "/build/recipe.tar"]
    assert player.brought["/build/recipe.commands"] == b"ldconfig\0"


def test_recipe_with_faults_is_refused_and_not_transferred(recipe: pathlib.Path) -> None:
    recipe.write_text("users: []\ncommand: []\n")
    player = Player()
    for check in (False, True):
        result = player.play(check=check, src=str(recipe), dest="/build")
        assert result["failed"]
        assert result["msg"].startswith(
            f"the recipe {recipe}, 2 faults, nothing was built: line 1: users: an image has"
        )
        assert [fault[:6] for fault in result["faults"]] == ["line 1", "line 2"]
    assert player.brought == {}


def test_recipe_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    result = Player().play(src=f"{tmp_path}/none.yml")
    assert result["failed"]
    assert result["msg"] == f"the recipe {tmp_path}/none.yml: No such file or directory"


def test_copy_that_fails_fails_with_its_words(recipe: pathlib.Path) -> None:
    result = Player(failed=True, msg="no room").play(src=str(recipe), dest="/build")
    assert result["failed"]
    assert result["msg"] == "/build/recipe.tar: no room"

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the recipe of a guest image where Ansible runs, and bring it to where the image is built."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

from ..module_utils.errors import UserFault, VTorqueError
from ..module_utils.node.pool import recipe_bundle
from ..module_utils.node.pool.recipe import Recipe, RecipeErrors, read
from ..plugin_utils.job_actions.controller_action import ControllerAction

SPEC: t.Final[dict[str, t.Any]] = {"src": {"type": "path", "required": True}, "dest": {"type": "path"}}


class ActionModule(ControllerAction):
    """`image_recipe`: a file of the site's -> packages, a digest, and what the build takes."""

    def act(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Check, and bring it where it is wanted; see the base."""
        result: dict[str, t.Any] = {}
        arguments = self.check_arguments(SPEC)
        src, dest = arguments["src"], arguments["dest"]
        try:
            recipe = read(pathlib.Path(src).absolute())
            result.update(changed=False, packages=list(recipe.packages), digest=_digest(recipe, src))
            if dest and not self._task.check_mode:
                result.update(self._bring(recipe, dest, task_vars))
        except RecipeErrors as error:
            return {**result, **self.refused(error.what, error.faults, error.hint)}
        except VTorqueError as error:
            return {**result, "failed": True, "msg": str(error), "faults": [str(error)]}
        return result

    def _bring(self, recipe: Recipe, dest: str, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        changed = False
        with tempfile.TemporaryDirectory(prefix="image_recipe.") as place:
            recipe_bundle.pack(recipe, pathlib.Path(place))
            for name in (recipe_bundle.FILES, recipe_bundle.COMMANDS):
                arguments = {"src": f"{place}/{name}", "dest": f"{dest}/{name}", "mode": "0600"}
                done = self.copy_file(arguments, task_vars)
                if done.get("failed"):
                    return {"failed": True, "msg": f"{dest}/{name}: {done.get('msg', 'could not be brought')}"}
                changed = changed or bool(done.get("changed"))
        return {"changed": changed}


def _digest(recipe: Recipe, src: str) -> str:
    try:
        return recipe.digest()
    except OSError as error:
        raise UserFault(f"the recipe {src}", f"{error.filename}: {error.strerror}") from error

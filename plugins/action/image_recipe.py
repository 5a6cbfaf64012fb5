# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the recipe of a guest image where Ansible runs, and bring it to where the image is built."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

from ansible.plugins.action import ActionBase

from ..module_utils.errors import UserFault, VTorqueError
from ..module_utils.node.pool import recipe_bundle
from ..module_utils.node.pool.recipe import Recipe, RecipeErrors, read

SPEC: t.Final[dict[str, t.Any]] = {"src": {"type": "path", "required": True}, "dest": {"type": "path"}}


class ActionModule(ActionBase):
    """`image_recipe`: a file of the site's -> packages, a digest, and what the build takes."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Check, and bring it where it is wanted.

        Args:
            tmp: not used, as Ansible has it.
            task_vars: for the copying.

        Returns:
            A result of Ansible; a recipe that is wrong is a failed one, in check mode too.
        """
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        checked, _all_args = self.validate_argument_spec(SPEC)
        src, dest = checked.validated_parameters["src"], checked.validated_parameters["dest"]
        try:
            recipe = read(pathlib.Path(src).absolute())
            result.update(changed=False, packages=list(recipe.packages), digest=_digest(recipe, src))
            if dest and not self._task.check_mode:
                result.update(self._bring(recipe, dest, task_vars or {}))
        except RecipeErrors as error:
            count = f"{len(error.faults)} faults" if len(error.faults) > 1 else "1 fault"
            message = f"{error.what}, {count}, {error.hint}: {'; '.join(error.faults)}"
            return {**result, "failed": True, "msg": message, "faults": list(error.faults)}
        except VTorqueError as error:
            return {**result, "failed": True, "msg": str(error), "faults": [str(error)]}
        return result

    def _bring(self, recipe: Recipe, dest: str, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """By Ansible's own `copy`, which knows every connection."""
        changed = False
        with tempfile.TemporaryDirectory(prefix="image_recipe.") as place:
            recipe_bundle.pack(recipe, pathlib.Path(place))
            for name in (recipe_bundle.FILES, recipe_bundle.COMMANDS):
                done = self._copy(f"{place}/{name}", f"{dest}/{name}", task_vars)
                if done.get("failed"):
                    return {"failed": True, "msg": f"{dest}/{name}: {done.get('msg', 'could not be brought')}"}
                changed = changed or bool(done.get("changed"))
        return {"changed": changed}

    def _copy(self, src: str, dest: str, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        task = self._task.copy()
        task.args = {"src": src, "dest": dest, "mode": "0600"}
        copy = self._shared_loader_obj.action_loader.get(
            "ansible.legacy.copy", task=task, connection=self._connection, play_context=self._play_context,
            loader=self._loader, templar=self._templar, shared_loader_obj=self._shared_loader_obj,
        )  # fmt: skip
        done: dict[str, t.Any] = copy.run(task_vars=task_vars)
        return done


def _digest(recipe: Recipe, src: str) -> str:
    try:
        return recipe.digest()
    except OSError as error:
        raise UserFault(f"the recipe {src}", f"{error.filename}: {error.strerror}") from error

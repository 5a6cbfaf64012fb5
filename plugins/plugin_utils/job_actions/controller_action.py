# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the actions share that work where Ansible runs, and have one of Ansible's modules put the outcome in place."""

from __future__ import annotations

import abc
import typing as t

from ansible.plugins.action import ActionBase


class ControllerAction(ActionBase, metaclass=abc.ABCMeta):
    """Base of such actions: a subclass gives `act`."""

    _supports_check_mode = True
    _supports_async = False

    @abc.abstractmethod
    def act(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Do the work.

        Args:
            task_vars: for the module.

        Returns:
            A result of Ansible; what is wrong with the arguments is a failed one, in check mode too.
        """

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Act, and add the outcome to what every action returns.

        Args:
            tmp: not used, as Ansible has it.
            task_vars: for the module.

        Returns:
            A result of Ansible.
        """
        return {**super().run(tmp, task_vars), **self.act(task_vars or {})}

    @staticmethod
    def refused(what: str, faults: t.Sequence[str], hint: str = "") -> dict[str, t.Any]:
        """Return the result of a task whose input is wrong, with all that is.

        Args:
            what: is wrong.
            faults: one or more.
            hint: what to do about it, or "".
        """
        count = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
        message = f"{', '.join(filter(None, (what, count, hint)))}: {'; '.join(faults)}"
        return {"failed": True, "msg": message, "faults": list(faults)}

    def check_arguments(self, spec: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the task's arguments, as a specification of Ansible's has them; what is wrong ends the task."""
        found, _all_args = self.validate_argument_spec(spec)
        arguments: dict[str, t.Any] = found.validated_parameters
        return arguments

    def copy_file(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Have Ansible's own `copy`, which knows every connection, write a file.

        Args:
            arguments: of the module.
            task_vars: for it.

        Returns:
            Its result.
        """
        task = self._task.copy()
        task.args = arguments
        module = self._shared_loader_obj.action_loader.get(
            "ansible.legacy.copy",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        done: dict[str, t.Any] = module.run(task_vars=task_vars)
        return done

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give the module `host_files` the texts of files that lie where Ansible runs."""

from __future__ import annotations

import pathlib
import typing as t

from ..module_utils.errors import UserFault, VTorqueError
from ..module_utils.host.host_files import CONTROLLER_KEYS, SPEC
from ..module_utils.rendering.templates import render
from ..plugin_utils.job_actions.controller_action import ControllerAction

Entry = t.Dict[str, t.Any]


class ActionModule(ControllerAction):
    """`host_files`: templates and files of the controller -> the module, once for all."""

    def act(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Render, read, and have it placed; see the base."""
        self.check_arguments(SPEC)
        arguments = dict(self._task.args)
        try:
            arguments["entries"] = [each for entry in arguments.get("entries") or [] for each in plain_entries(entry)]
        except VTorqueError as error:
            return {"failed": True, "msg": str(error)}
        done: dict[str, t.Any] = self._execute_module("mikelangelo.vtorque.host_files", arguments, task_vars=task_vars)
        return done


def plain_entries(entry: Entry) -> list[Entry]:
    """An entry as the module takes it, once for each of its words.

    Args:
        entry: as the play has it.

    Returns:
        Entries without `each`, `template`, `values` and `source`.

    Raises:
        UserFault: a file is not there.
        SiteFault: a template has a fault.
    """
    values: list[str | None] = [None] if entry.get("each") is None else [*entry["each"]]
    return [_plain(entry, word) for word in values]


def _plain(entry: Entry, word: str | None) -> Entry:
    plain = {key: value for key, value in entry.items() if key not in CONTROLLER_KEYS}
    plain["path"] = _with(entry["path"], word)
    if entry.get("template") is not None:
        plain["content"] = render(_with(entry["template"], word), site_dir=None, **(entry.get("values") or {}))
    elif entry.get("source") is not None:
        plain["content"] = _read(pathlib.Path(_with(entry["source"], word)))
    return plain


def _with(text: str, word: str | None) -> str:
    return text if word is None else text.replace("{each}", word)


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UserFault(f"the file {path}", str(error)) from error

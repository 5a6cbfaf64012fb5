# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down how many tasks of a run changed something: a line of JSON a run, in the scenario's own directory."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: changes
type: aggregate
short_description: Counts of changes, for later
description: Appends playbook, check mode and changes of each host to the file C(changes) of molecule's scenario.
"""


class CallbackModule(CallbackBase):
    """One for each run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "changes"
    CALLBACK_NEEDS_ENABLED = True
    _playbook = ""

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        """Ansible tells which playbook it is."""
        self._playbook = pathlib.Path(playbook._file_name).name

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        """Ansible tells what happened in all of it."""
        changed = {host: stats.summarize(host)["changed"] for host in stats.processed}
        line = json.dumps({"playbook": self._playbook, "check": bool(context.CLIARGS["check"]), "changed": changed})
        with pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "changes").open("a", encoding="ascii") as stream:
            stream.write(f"{line}\n")

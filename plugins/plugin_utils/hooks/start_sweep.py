# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The epilogue of a job calls the sweep when it sees something of another that nobody works for."""

from __future__ import annotations

import contextlib
import pathlib

from ...module_utils.errors import VTorqueError
from ...module_utils.node.removal import run_files
from ...module_utils.node.state import start_lock
from ...module_utils.node.state.directories import entries
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.state.layout import RUN_DIR, STATE_DIR
from ...module_utils.system.process import supervised
from ...module_utils.system.process.detached import start_detached

PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_sweep"


def something_unheld(run_dir: pathlib.Path, state_dir: pathlib.Path) -> bool:
    """Return whether something is here of a start that nobody works for and whose job has no shell.  Nobody is asked.

    Args:
        run_dir: what is true on this node while jobs run.
        state_dir: its guests and records.

    Raises:
        NodeFault: a directory of this node cannot be read.
    """
    settings = NodeSettings(node_name="", node_number=None, run_dir=run_dir, state_dir=state_dir)
    keys = set(run_files.run_keys(settings))
    for place in (settings.guests_dir, settings.bare_dir):
        keys |= {path.name for path in entries(place)}
    return any(
        not start_lock.is_locked(start_lock.start_lock(settings, key)) and run_files.living_shell(settings, key) is None
        for key in keys
        if key[:1].isdigit()  # what is no start's, `lost+found` among it, is nothing to hurry for
    )


def sweep_if_needed(run_dir: pathlib.Path, state_dir: pathlib.Path) -> None:
    """Start the sweep when there is something for it, and do not wait; it bounds itself.

    Args:
        run_dir: what is true on this node while jobs run.
        state_dir: its guests and records; the sweep looks at the node's own places and at no other.
    """
    if (run_dir, state_dir) != (RUN_DIR, STATE_DIR):
        return
    with contextlib.suppress(OSError, VTorqueError):  # the timer's sweep says what is wrong
        if something_unheld(run_dir, state_dir):
            start_detached(supervised.program(PROGRAM))

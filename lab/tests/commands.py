# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run something on a node of a lab, for tests of labs."""

from __future__ import annotations

import subprocess

from lab.cluster import on_nodes
from lab.system.state import State


def on(
    state: State, node: str, *arguments: str, user: str = "root", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command, and return what became of it."""
    line = on_nodes.command(state.running(), node, arguments, user=user)
    return subprocess.run(line, capture_output=True, text=True, timeout=600, input=stdin, check=False)


def out(state: State, node: str, *arguments: str, user: str = "root", stdin: str = "") -> str:
    """Run a command that must succeed, and return what it printed."""
    done = on(state, node, *arguments, user=user, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()

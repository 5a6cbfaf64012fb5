# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of the node, or of its site, that is asked one question, and has a bounded time."""

from __future__ import annotations

import subprocess
import typing as t

from ...system.process.environment import TOOL_ENVIRONMENT


def run_tool(command: t.Sequence[str], timeout_s: float, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program with the environment of all tools, and return what it printed as text.

    Args:
        command: the program and its arguments.
        timeout_s: seconds until it must have ended.
        text: its standard input.

    Raises:
        subprocess.TimeoutExpired: it had no end, and was killed.
        OSError: it cannot be run.
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        input=text,
        timeout=timeout_s,
        check=False,
        env=TOOL_ENVIRONMENT,
    )

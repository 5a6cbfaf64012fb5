# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real kernel's network, in which a test may do what it likes."""

from __future__ import annotations

import os
import subprocess
import sys


def run_in_network(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python's in a network namespace of its own, as root of it."""
    return subprocess.run(
        ["unshare", "--map-root-user", "--net", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip

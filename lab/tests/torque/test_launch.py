# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The child of a MOM that becomes a job."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.torque.mom.launch import CONTROL

CHILD = """
import os, sys
from lab.torque.mom.launch import leave_daemon
given, number = map(int, sys.argv[1:])
reading, writing = os.pipe()
if writing != given:
    os.dup2(writing, given, inheritable=False)
leave_daemon({given: number})
print(*sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")))
print(os.get_inheritable(number))
"""


@pytest.mark.parametrize("given", [CONTROL - 1, CONTROL, CONTROL + 1])
def test_nothing_of_the_moms_is_kept_but_the_way_to_her(given: int) -> None:
    """Whatever number it has there: a MOM of many jobs comes by each."""
    command = [sys.executable, "-c", CHILD, str(given), str(CONTROL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[:2] == [f"0 1 2 {CONTROL}", "False"]

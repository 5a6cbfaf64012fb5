# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nobody waits for."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import background

WORDS = """
import os
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import background
background.step_back(19)
print(os.nice(0))
try:
    print(open("/proc/self/autogroup").read())
except OSError:
    print("no groups")
"""


def test_it_goes_back_behind_other_sessions_too() -> None:
    """Where the kernel groups by session; the group of whoever began it stays as it is."""
    mine = background.AUTOGROUP.read_text() if background.AUTOGROUP.exists() else ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", WORDS], capture_output=True, text=True, check=True, timeout=60, start_new_session=True,
        env=environment,
    )  # fmt: skip
    niceness, groups = done.stdout.split("\n", 1)
    assert niceness == "19"
    assert groups.split()[-2:] == (["nice", "19"] if mine else ["no", "groups"])
    assert (background.AUTOGROUP.read_text() if mine else "") == mine


def test_a_kernel_without_groups_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(background, "AUTOGROUP", tmp_path / "none" / "autogroup")
    asked: list[int] = []
    monkeypatch.setattr(os, "nice", asked.append)
    background.step_back(19)
    assert asked == [19]
    assert not (tmp_path / "none").exists()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on which too many files are watched is not one whose disk is full."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import inotify_simple
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system.inotify import watch

USED_UP = """
import pathlib, sys
pathlib.Path("/proc/sys/user/max_inotify_watches").write_text("0")
import inotify_simple
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import inotify as file_watch
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent as guests
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import settings
try:
    with guests.blame_disk(settings.NodeSettings("cn1", 1)), inotify_simple.INotify() as watcher:
        file_watch.watch(watcher, pathlib.Path("/var/lib"), inotify_simple.flags.CREATE)
except Exception as error:
    print(type(error).__name__, error)
"""
"""In a namespace of its own a user's bound is theirs alone, the kernel's answer the same."""


def test_watches_that_are_used_up_blame_no_disk() -> None:
    command = ["unshare", "-Ur", sys.executable, "-c", USED_UP]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=os.environ)
    assert done.stdout.startswith("VTorqueError changes of files are not heard on this node: root has used up ")


def test_watch_of_a_missing_path_raises_the_systems_error(tmp_path: pathlib.Path) -> None:
    with inotify_simple.INotify() as watcher, pytest.raises(FileNotFoundError):
        watch(watcher, tmp_path / "gone", inotify_simple.flags.CREATE)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manual says what of an image the programs in guests call."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

MANUAL = templates.COLLECTION_DIR.parent / "docs/admin/image-requirements.md"
POSIX = {
    "[", "awk", "cat", "chgrp", "chmod", "chown", "cut", "dd", "echo", "env", "false", "find", "grep", "head", "id",
    "kill", "ln", "ls", "mkdir", "mkfifo", "mv", "printf", "ps", "pwd", "read", "rm", "rmdir", "sed", "sh", "sleep",
    "sort", "tail", "test", "time", "tr", "true", "uname", "wc", "xargs",
}  # fmt: skip
OF_SYSTEMD = {"busctl", "systemctl", "udevadm"}
SPARED = {"getent", "restorecon", "sync", "umount"}
"""What does without, or comes with what is named: libc, SELinux, coreutils, mount."""
MORE = {"prlimit", "restorecon", "ip", "getent", *OF_SYSTEMD}
"""Programs that busybox has not, or not everywhere."""
BEFORE = r"(?:^|[|&;({`!]|\$\(|\b(?:then|do|else|exec|if|until|while|setsid)\b)"
CALLED = re.compile(rf"{BEFORE}\s*([a-z][a-z0-9_.-]*)(?=[\s;|&])", re.MULTILINE)


def called_by(script: pathlib.Path) -> set[str]:
    """Programs that stand where a command begins; functions of its own are none."""
    text = re.sub(r"(?m)^\s*#.*$", "", script.read_text(encoding="utf-8"))
    own = set(re.findall(r"(?m)^([a-z_]+)\(\)", text))
    return set(CALLED.findall(text)) - own


@pytest.mark.parametrize(
    "name", ["agent", "identity", "mounts", "../batch/torque/guest/pbsdsh", "ready", "run", "../batch/slurm/guest/srun"]
)
def test_guest_programs_call_only_what_the_manual_names(name: str) -> None:
    applets = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    called = called_by(templates.COLLECTION_DIR / f"guest/{name}.sh") & ({*applets} | MORE)
    needed = called - POSIX - OF_SYSTEMD - SPARED
    named = set(re.findall(r"`([a-z0-9]+)`", MANUAL.read_text(encoding="utf-8")))
    assert needed <= named, needed - named
    assert called, "nothing was found"

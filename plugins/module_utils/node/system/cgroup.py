# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Out of the cgroup in which a program was started: what a job's hook begins must not end with the job."""

from __future__ import annotations

import contextlib
import os
import pathlib

ROOT = pathlib.Path("/sys/fs/cgroup")


def leave(root: pathlib.Path = ROOT, own: pathlib.Path = pathlib.Path("/proc/self/cgroup")) -> None:
    """Move this process to the root of each hierarchy that lets it.

    What cannot be left is stayed in: then the work may end with the job, and the next who wants it goes on with it.

    Args:
        root: where hierarchies are mounted.
        own: the kernel's word on where this process is.
    """
    for line in own.read_text(encoding="utf-8", errors="replace").splitlines():
        _number, controllers, where = line.split(":", 2)
        # version 2 alone is mounted at the root itself, beside version 1 in `unified` (systemd's layout)
        places = [root / controllers.removeprefix("name=")] if controllers else [root / "unified", root]
        for place in places if where != "/" else []:
            with contextlib.suppress(OSError):
                (place / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
                break

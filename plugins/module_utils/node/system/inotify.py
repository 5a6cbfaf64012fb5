# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories whose changes the kernel tells (inotify)."""

from __future__ import annotations

import errno
import pathlib
import typing as t

from ...errors import VTorqueError

if t.TYPE_CHECKING:
    import inotify_simple  # slow to load


def watch(watcher: inotify_simple.INotify, directory: pathlib.Path, mask: int) -> None:
    """Hear of changes in a directory from now on.

    Args:
        watcher: hears.
        directory: of which.
        mask: of which kinds, from `inotify_simple.flags`.

    Raises:
        VTorqueError: root has used up its watches; the kernel's word for that (ENOSPC, inotify_add_watch(2)) is the one
            for a full disk.
        OSError: the directory cannot be watched.
    """
    try:
        watcher.add_watch(str(directory), mask)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        what, why = "changes of files are not heard on this node", "root has used up fs.inotify.max_user_watches"
        # without its cause, by which a disk would be judged
        raise VTorqueError(what, why, "raise it with sysctl, or see what watches so many files") from None

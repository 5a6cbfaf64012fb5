# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates as the code that jinja2 makes of them, kept for the next program: making takes longer than running."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import typing as t


def kept_in(directory: pathlib.Path) -> t.Any:
    """What is kept in a directory, which is made when its parent is there; None when nobody may believe it.

    What lies there is run by us: it must be ours, and nobody else's to write.  It counts as long as the text of the
    template is the same.

    Args:
        directory: for nothing else.

    Returns:
        A `jinja2.BytecodeCache`.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        facts = directory.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
    return _cache(str(directory)) if ours else None


def _cache(directory: str) -> t.Any:
    import jinja2  # where this module is only looked at, it need not be there

    class Kept(jinja2.FileSystemBytecodeCache):
        def load_bytecode(self, bucket: t.Any) -> None:
            try:
                super().load_bytecode(bucket)
            except Exception:  # cut off, or no pickle at all: it is made anew
                bucket.reset()

        def dump_bytecode(self, bucket: t.Any) -> None:
            with contextlib.suppress(OSError):  # a full disk only costs time
                super().dump_bytecode(bucket)

    return Kept(directory)

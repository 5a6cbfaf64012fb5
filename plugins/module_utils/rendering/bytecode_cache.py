# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates as the code that jinja2 makes of them, kept for the next program: making takes longer than running."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import stat
import typing as t

from ..slow_libraries import load_library

NAME = "__jinja2_"


def open_cache(directory: pathlib.Path, compiler: pathlib.Path) -> t.Any:
    """What is kept in a directory, which is made when its parent is there; None when nobody may believe it.

    What lies there is run by us: it must be ours, and nobody else's to write.  It counts as long as the text of the
    template is the same, and what made it: jinja2's version, and the text of our file that tells jinja2 how.  An
    upgrade's first template takes away what others made.

    Args:
        directory: for nothing else.
        compiler: that file.

    Returns:
        A `jinja2.BytecodeCache`.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        facts = directory.lstat()
        made_by = compiler.read_bytes()
    except OSError:
        return None
    ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
    return _cache(directory, made_by) if ours else None


def _cache(directory: pathlib.Path, made_by: bytes) -> t.Any:
    jinja2 = load_library("jinja2")
    ours = f"{NAME}{hashlib.sha256(_version(jinja2).encode() + made_by).hexdigest()[:16]}_"

    class GuestFile(jinja2.FileSystemBytecodeCache):  # type: ignore[name-defined]  # known when it is loaded
        def load_bytecode(self, bucket: t.Any) -> None:
            try:
                super().load_bytecode(bucket)
            except Exception:  # cut off, or no pickle at all: it is made anew
                bucket.reset()

        def dump_bytecode(self, bucket: t.Any) -> None:
            with contextlib.suppress(OSError):  # a full disk only costs time
                super().dump_bytecode(bucket)
                for path in directory.glob(f"{NAME}*"):
                    if not path.name.startswith(ours):
                        path.unlink(missing_ok=True)

    return GuestFile(str(directory), f"{ours}%s.cache")


def _version(package: t.Any) -> str:
    if word := getattr(package, "__version__", ""):  # the next costs as much as compiling
        return str(word)
    return str(load_library("importlib.metadata").version(package.__name__))

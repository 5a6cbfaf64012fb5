# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a directory that was made beside another in its place, at one moment, unless a job has come.

Runs on the host, with whatever Python is there.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import pathlib
import shutil
import sys

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""renameat2(2)."""


def running(jobs: pathlib.Path) -> list[str]:
    """The MOM's files of jobs that are on this node, or our own directories of jobs with guests here."""
    return sorted(path.name for path in jobs.glob("*") if path.match("*.[JST][BCK]") or path.is_dir())


def exchange(one: pathlib.Path, other: pathlib.Path) -> None:
    """Let two paths change their names: there is no moment without either.

    Raises:
        OSError: the file system cannot (NFS), or anything else is wrong.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, "no renameat2")
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), ctypes.c_uint(RENAME_EXCHANGE)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def swap(new: pathlib.Path, place: pathlib.Path) -> None:
    """Put what is new in its place, and remove what was there."""
    if not os.path.lexists(place):
        new.rename(place)
        return
    try:
        exchange(new, place)
        former = new
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        former = new.with_name(f"{new.name}.former")
        if former.exists():
            shutil.rmtree(former)
        place.rename(former)
        new.rename(place)
    if former.is_symlink():
        former.unlink()
    else:
        shutil.rmtree(former, ignore_errors=True)


def main() -> None:
    """Look for jobs once more, and swap."""
    parser = argparse.ArgumentParser()
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("place", type=pathlib.Path)
    parser.add_argument(
        "--jobs", type=pathlib.Path, help="what is there of jobs; while something is, nothing is swapped"
    )
    arguments = parser.parse_args()
    os.sync()
    found = running(arguments.jobs) if arguments.jobs is not None else []
    if found:
        shutil.rmtree(arguments.new)
        sys.exit(
            f"a job came to this node meanwhile ({found[0]}): {arguments.place} was not replaced, play it again later"
        )
    swap(arguments.new, arguments.place)


if __name__ == "__main__":
    main()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make directories of root's with exact modes, or tell which would be made or changed.

One call for all: a task of Ansible for each costs a site more than the making.
Runs on the host, with whatever Python is there.  Standard output: the paths that were made or changed, a line each.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import stat


def make(wanted: list[tuple[str, str]], *, check: bool) -> list[str]:
    """Make what is not there, with its parents, and give owner and mode to what is.

    Args:
        wanted: absolute path and mode ("0755") of each; a parent comes before what is in it.
        check: change nothing.

    Returns:
        What was made or changed, or would be.

    Raises:
        OSError: something else than a directory is there, or it cannot be made.
    """
    changed = []
    for name, mode_text in wanted:
        path, mode = pathlib.Path(name), int(mode_text, 8)
        try:
            found = path.stat()
        except FileNotFoundError:
            found = None
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(f"{name} is no directory")
        if found is not None and (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (
            os.geteuid(),
            os.getegid(),
            mode,
        ):
            continue
        if not check:
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, os.geteuid(), os.getegid())
            path.chmod(mode)
        changed.append(name)
    return changed


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("wanted", type=json.loads, help="a list of [path, mode]")
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    os.umask(0o022)
    for path in make(arguments.wanted, check=arguments.check):
        print(path)


if __name__ == "__main__":
    main()

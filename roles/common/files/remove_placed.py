# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove files and directories of ours with all that is in them, or tell which would go.

One call for all: a task of Ansible for each costs a site more than the removal.
Runs on the host, with whatever Python is there.  Standard output: the paths, a line each.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil


def remove(paths: list[str], *, check: bool) -> list[str]:
    """Remove what is there; of a link the link, never what it leads to.

    Args:
        paths: absolute.
        check: change nothing.

    Returns:
        What was removed, or would be.
    """
    removed = []
    for name in paths:
        if not os.path.lexists(name):
            continue
        path = pathlib.Path(name)
        if not check:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        removed.append(name)
    return removed


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", type=json.loads)
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    for path in remove(arguments.paths, check=arguments.check):
        print(path)


if __name__ == "__main__":
    main()

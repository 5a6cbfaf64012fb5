# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove files and directories that are empty now, or tell which would be.

Runs on the host, with whatever Python is there.  Standard output: the paths, a line each.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re

BLOCK = re.compile(rb"(?ms)^# BEGIN VTORQUE.*?^# END VTORQUE[^\n]*\n?")


def is_empty(path: pathlib.Path, gone: set[str]) -> bool:
    """Is nothing in it, besides what is gone already or would be?

    Args:
        path: a file or a directory; a link is neither, whatever it leads to.
        gone: paths that count as gone, and when there are any our blocks in files too.
    """
    if path.is_symlink():
        return False
    if path.is_dir():
        return all(str(inner) in gone for inner in path.iterdir())
    if not path.is_file():
        return False
    return not (BLOCK.sub(b"", path.read_bytes()) if gone else path.read_bytes())


def remove(candidates: list[str], gone: set[str], *, check: bool) -> list[str]:
    """Go through them in their order, so that what is in a directory comes before it.

    Returns:
        What was removed, or would be.
    """
    removed = []
    for name in candidates:
        path = pathlib.Path(name)
        if not is_empty(path, {*gone, *removed} if check else set()):
            continue
        if not check:
            path.rmdir() if path.is_dir() else path.unlink()
        removed.append(name)
    return removed


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("candidates", type=json.loads)
    parser.add_argument("--check", type=json.loads, metavar="GONE", help="change nothing; these count as gone")
    arguments = parser.parse_args()
    check = arguments.check is not None
    for path in remove(arguments.candidates, set(arguments.check or ()), check=check):
        print(path)


if __name__ == "__main__":
    main()

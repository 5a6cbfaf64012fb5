# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell the scripts of a virtual environment that it will lie elsewhere: venv and pip wrote its place into them.

Runs on the host, with whatever Python is there.  Libraries do not know where they lie, and compiled ones are told by
Python itself when it loads them.
"""

from __future__ import annotations

import argparse
import os
import pathlib


def texts(environment: pathlib.Path) -> list[pathlib.Path]:
    """The files that name the environment's place."""
    scripts = (environment / "bin").iterdir()
    return [environment / "pyvenv.cfg", *(path for path in scripts if path.is_file() and not path.is_symlink())]


def move(environment: pathlib.Path, place: pathlib.Path) -> None:
    """Write the new place where the present one stands; modes stay."""
    for path in texts(environment):
        content = path.read_bytes()
        moved = content.replace(os.fsencode(environment), os.fsencode(place))
        if moved != content:
            path.write_bytes(moved)


def main() -> None:
    """Move one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("environment", type=pathlib.Path)
    parser.add_argument("place", type=pathlib.Path)
    arguments = parser.parse_args()
    move(arguments.environment, arguments.place)


if __name__ == "__main__":
    main()

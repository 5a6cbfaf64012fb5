# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a program that a batch system runs as root."""

from __future__ import annotations

import pathlib
import stat


def why_unsafe(path: pathlib.Path, owner_uid: int) -> str:
    """Return what keeps a program from being run, or lets others than its owner change it; "": nothing.

    Args:
        path: of the program.
        owner_uid: whose it must be.
    """
    try:
        facts = path.stat()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(facts.st_mode):
        return "is no file"
    if facts.st_uid != owner_uid or facts.st_mode & 0o022:
        return f"could be changed by others (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o})"
    if facts.st_mode & 0o500 != 0o500:
        return f"cannot be run (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in a directory of this node, where "nothing" must mean that: what cannot be read is not empty."""

from __future__ import annotations

import pathlib
import typing as t

from ...errors import NodeFault

GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)
"""What the system says of files and processes that are not there; all else says that nobody could look."""


def entries(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return what is in a directory, by name; [] where there is none, as when it is taken away meanwhile.

    Args:
        directory: on a disk of this node.

    Raises:
        NodeFault: it is there and cannot be read, so that it is not known what is in it.
    """
    try:
        return sorted(directory.iterdir())
    except GONE:
        return []
    except OSError as error:
        raise unreadable(directory, error) from error


def guest_directories(guests_dir: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """Yield the directory of each guest of this node.

    Args:
        guests_dir: one directory a start of a job, one below it a guest.

    Raises:
        NodeFault: as `entries` does.
    """
    return (guest for start in entries(guests_dir) for guest in entries(start))


def unreadable(path: pathlib.Path, error: OSError) -> NodeFault:
    """Return the fault of a node that cannot read what is its own."""
    why = f"cannot be read: {error.strerror or error}"
    return NodeFault(f"{path}", why, "see to the disk that it is on", cause="disk")

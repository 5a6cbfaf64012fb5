# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guests' overlays stand on, as their headers say: true after any crash, for as long as they are there."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ..state.directories import GONE, guest_directories

_HEADER = 32
_MAGIC = b"QFI\xfb"
_LONGEST = 1023
"""QEMU lets a base have so long a name."""


def bases(guests_dir: pathlib.Path) -> t.Iterator[tuple[str, pathlib.Path]]:
    """Every guest of this node, and the file that its disk stands on.

    Args:
        guests_dir: one directory a start of a job, one below it a guest.

    Raises:
        NodeFault: a directory cannot be read, so that it is not known.
        OSError: the same of an overlay.
    """
    for guest in guest_directories(guests_dir):
        base = base_of(guest / "disk.qcow2")
        if base is not None:
            yield guest.name, base


def base_of(overlay: pathlib.Path) -> pathlib.Path | None:
    """What a qcow2 file stands on; None: on nothing, or it is gone.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with overlay.open("rb") as stream:
            header = stream.read(_HEADER)
            # offset and length of the name, big-endian, at bytes 8 and 16 (QEMU, docs/interop/qcow2.txt)
            offset, length = int.from_bytes(header[8:16], "big"), int.from_bytes(header[16:20], "big")
            if not header.startswith(_MAGIC) or not offset or length > _LONGEST:
                return None
            stream.seek(offset)
            return pathlib.Path(os.fsdecode(stream.read(length)))
    except GONE:
        return None

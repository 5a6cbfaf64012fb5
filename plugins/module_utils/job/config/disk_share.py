# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of a disk: a share of it (`20 %`), or a size (`200G`)."""

from __future__ import annotations

import re

from ...text import format_mib
from ..request.value_types import BadValue, Kind, size_mib

_SHARE = re.compile(r"([0-9]{1,3})\s*%", re.ASCII)
_SIZE = size_mib(1, 2**30)


def room_on_disk() -> Kind:
    """A share of a disk, or a size.

    Returns:
        A kind that reads a str, of which `share_of` and `bytes_of` make numbers.
    """
    allowed = "a share of the disk (20 %), or a size with K, M, G or T (200G)"

    def read(value: object) -> str:
        if found := _SHARE.fullmatch(str(value).strip()):
            if not 1 <= int(found[1]) <= 100:
                raise BadValue(allowed)
            return f"{int(found[1])} %"
        try:
            return format_mib(int(str(_SIZE.read(value))))
        except BadValue:
            raise BadValue(allowed) from None

    return Kind(read, allowed)


def share_of(room: str) -> float | None:
    """The share that is meant, from 0 to 1; None: it is a size.

    Args:
        room: as `room_on_disk` reads it.
    """
    found = _SHARE.fullmatch(room)
    return int(found[1]) / 100 if found else None


def bytes_of(room: str) -> int | None:
    """The size that is meant, in bytes; None: it is a share.

    Args:
        room: as `room_on_disk` reads it.
    """
    return None if _SHARE.fullmatch(room) else int(str(_SIZE.read(room))) << 20

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside, made printable, and sizes as people read them: a unit is a power of 1024."""

from __future__ import annotations

import re

from .effects import leaves_nothing

_MIB_PER_UNIT = {"k": (1, 1024), "m": (1, 1), "g": (1024, 1), "t": (1024 * 1024, 1)}
_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?\s?(?:([kmgt])(?:i?b)?)?", re.IGNORECASE)


@leaves_nothing
def printable(text: str) -> str:
    """A text of somebody else's as it may be shown on a terminal.

    Args:
        text: of whatever characters.

    Returns:
        The same length; `?` stands for each character that does not print, line ends among them.
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def format_mib(mib: int) -> str:
    """MiB as users write them in a request, with nothing lost: 24576 is `24G`, 1536 is `1536M`.

    Args:
        mib: MiB.

    Returns:
        A number with the greatest unit that needs no fraction.
    """
    for unit, factor in (("T", 1024 * 1024), ("G", 1024)):
        if mib and mib % factor == 0:
            return f"{mib // factor}{unit}"
    return f"{mib}M"


def parse_mib(text: str) -> int | None:
    """Return the MiB of a size as users write it: a number with K, M, G or T, MiB when bare.

    Args:
        text: of whatever characters.

    Returns:
        None: it is no size, or not a whole number of MiB.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    whole, fraction, unit = match[1], match[2] or "", (match[3] or "m").lower()
    times, parts = _MIB_PER_UNIT[unit]
    mib, rest = divmod(int(whole + fraction) * times, parts * 10 ** len(fraction))
    return None if rest else mib


def format_allowed_mib(low: int, high: int) -> str:
    """Return what a user may write as a size (`parse_mib`), for messages.

    Args:
        low: least size, in MiB.
        high: greatest size, in MiB.
    """
    return f"a number with K, M, G or T (MiB when bare) from {format_mib(low)} to {format_mib(high)}, in whole MiB"


def format_bytes(count: int) -> str:
    """Bytes in a sentence: `310 MiB`, `1.2 GiB`.

    Args:
        count: bytes.
    """
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def format_bytes_short(count: float) -> str:
    """Bytes in a column of five characters at most: `310M`, `1.2G`.

    Args:
        count: bytes.
    """
    for unit in ("", "K", "M", "G", "T", "P"):
        if count < 1000 or unit == "P":
            return f"{count:.0f}{unit}" if count >= 10 or not unit else f"{count:.1f}{unit}"
        count /= 1024
    raise AssertionError


def format_disk_bytes(count: int) -> str:
    """The size of a disk in a table: `310M`, `20.5G`; "" for none.

    Always with one decimal, unlike `format_bytes_short`: disks of 20 and of 20.5 GiB are not the same.

    Args:
        count: bytes.
    """
    if not count:
        return ""
    if count >= 1 << 40:
        return f"{count / 2**40:.1f}T"
    return f"{count / 2**30:.1f}G" if count >= 1 << 30 else f"{count / 2**20:.0f}M"

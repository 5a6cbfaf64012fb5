# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside, made printable, and sizes as people read them: a unit is a power of 1024."""

from __future__ import annotations

from .effects import leaves_nothing


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

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside, made printable."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text of somebody else's as it may be shown on a terminal.

    Args:
        text: of whatever characters.

    Returns:
        The same length; `?` stands for each character that does not print, line ends among them.
    """
    return "".join(c if c.isprintable() else "?" for c in text)

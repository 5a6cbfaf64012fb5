# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of an image's boot: a row for each thing that took its time, over one scale of seconds."""

from __future__ import annotations

from .....module_utils.node.trial.boot_profile import PHASES, Profile
from .....module_utils.rendering.bar_chart import Bar, Row
from .....module_utils.rendering.bar_chart import draw as draw_rows

_PALETTE = (
    "#7f7f7f",
    "#4c6a92",
    "#3f8f9f",
    "#a3b84c",
    # the stages of cloud-init, from light to dark
    "#e0b0a8",
    "#d98c82",
    "#b5524a",
    "#8a3a34",
    "#6a2a26",
    "#c98a2b",
    "#8d5a97",
    "#c2b280",
)


def draw(profile: Profile, title: str) -> str:
    """The picture, as SVG.

    Args:
        profile: of the boot.
        title: above it.
    """
    rows = [
        Row(span.what, (Bar(span.phase, span.what, span.begin_s, span.seconds),), f"{span.seconds:.2f} s")
        for span in profile.spans
    ]
    return draw_rows(rows, title, dict(zip(PHASES, _PALETTE, strict=True)))

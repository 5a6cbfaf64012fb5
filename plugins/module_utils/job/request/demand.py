# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes: of a node, of what a job needs on each of its nodes, and of memory as batch systems write it."""

from __future__ import annotations

import re

from ...frozen import frozen


@frozen
class Demand:
    """What a job needs on each of its nodes.

    Attributes:
        cores: slots.
        mem_mib: memory in MiB.
        cores_sum: how `cores` comes about, for people.
        mem_sum: how `mem_mib` comes about, for people.
        spare: how many nodes more than it uses the job asks for.
    """

    cores: int
    mem_mib: int
    cores_sum: str
    mem_sum: str
    spare: int = 0


@frozen
class NodeSize:
    """A node, as the batch server or libvirt tells its size; 0: not told."""

    name: str
    cores: int
    mem_mib: int = 0


def parse_batch_memory(text: str) -> int | None:
    """A size (`400gb`, `2000mw`, bytes when bare; a word has 8 bytes) in MiB, rounded down; None: no size.

    Args:
        text: as a batch server has it in the job's resources (`mem`).

    Returns:
        MiB, rounded as said; None for another form.
    """
    match = re.fullmatch(r"([0-9]{1,15})([kmgtp]?)([bw]?)", text.strip(), re.ASCII | re.IGNORECASE)
    if not match:
        return None
    scale = 1024 ** " kmgtp".index(match[2].lower() or " ")
    return int(match[1]) * scale * (8 if match[3].lower() == "w" else 1) // 2**20

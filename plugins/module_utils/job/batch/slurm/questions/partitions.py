# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizes of nodes by partition, in one question that costs the controller little (`sinfo -o`, recorded on 22.05.8).

Nodes of the same size are one line, whatever their state: one that is down may be repaired.
"""

from __future__ import annotations

import re

from ....request.demand import NodeSize

QUESTION = ("sinfo", "-h", "-a", "-e", "-o", "%P|%D|%c|%m|%f")
LINE = re.compile(r"([^|]+?)(\*?)\|([0-9]+)\|([0-9]+)\|([0-9]+)\|(.*)")
"""Partition, `*` behind the default one, nodes, processors, MiB, features."""


def read_sizes(text: str, queue: str, feature: str | None) -> tuple[NodeSize, ...]:
    """Read the answer.

    Args:
        text: of sinfo.
        queue: partitions, joined by commas; "": the default one.
        feature: that nodes must have; None: all may be taken.

    Returns:
        A size for each node, by the name of its partition; what is out of form is left out.
    """
    wanted = set(queue.split(",")) if queue else set()
    found: list[NodeSize] = []
    for parts in filter(None, map(LINE.fullmatch, text.splitlines())):
        name, default, nodes, cores, memory, features = parts.groups()
        if (name in wanted if wanted else default) and (feature is None or feature in features.split(",")):
            found += [NodeSize(name, int(cores), int(memory))] * int(nodes)
    return tuple(found)

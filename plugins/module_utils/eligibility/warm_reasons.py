# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a guest can start warm, and why not: the same answer at submission and on the node."""

from __future__ import annotations

import typing as t

from . import guest_saving

ASKED, KIND, UEFI, IMAGE, SEEDS, RDMA = "asked", "kind", "uefi", "image", "seeds", "rdma"
CORES, QUEUES, OWN_IMAGE = "cores", "queues", "own image"
REASONS: dict[str, str] = {
    ASKED: "the job asked for a cold start (warm=false)",
    KIND: "it is no guest of Linux",
    IMAGE: "its image cannot be warm",
    UEFI: "its image boots by UEFI",
    CORES: "it shows the sockets, NUMA cells or pages of the cores that it asked for",
    QUEUES: "its network card has a queue for each of its cores for virtual I/O",
    RDMA: "it has an RDMA device",
    SEEDS: "the site has templates of its own for cloud-init",
    guest_saving.NETWORKS: "it has cards on further networks",
    guest_saving.PLAN9: guest_saving.REASONS[guest_saving.PLAN9],
    guest_saving.PCI: guest_saving.REASONS[guest_saving.PCI],
    guest_saving.SHARED_MEMORY: guest_saving.REASONS[guest_saving.SHARED_MEMORY],
    OWN_IMAGE: "a process of the user's serves its image",
}
"""What keeps a guest from starting warm, in a clause."""


def describe_warm_start(found: t.Collection[str]) -> str:
    """Return how the guests of a job will start, in a clause.

    Args:
        found: names of `REASONS`, as far as they are known.
    """
    reasons = "; ".join(reason for name, reason in REASONS.items() if name in found)
    return f"its guests boot: {reasons}" if reasons else "its guests start warm where their node has a template"

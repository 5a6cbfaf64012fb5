# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the memory of a guest can be saved to a file, and why not: the same answer at submission and on the node.

Sources: QEMU 7.2 and libvirt 9.0 refuse a domain with vhost-user-fs, a mounted 9p or an assigned device
("non-migratable device"); a `qemu-nbd` of a user's ends when its only client does.
"""

from __future__ import annotations

import typing as t

VIRTIOFS, PLAN9, PCI, SHARED_MEMORY, USER_DISK = "virtiofs", "9p", "pci", "shared memory", "user disk"
HUGE_PAGES, CELLS = "huge pages", "cells"
REASONS: dict[str, str] = {
    VIRTIOFS: "it mounts a directory of its node by virtiofs",
    PLAN9: "it mounts a directory of its node by 9p",
    PCI: "it has a PCI device of its node",
    SHARED_MEMORY: "it shares memory with other guests",
    USER_DISK: "a process of the user's serves its disk or image",
    HUGE_PAGES: "its memory is of huge pages, which the next job may take",
    CELLS: "its memory is bound to NUMA cells, which the next job may fill",
}
"""What a guest may have that its memory cannot be saved with, and that in a clause."""


def objections_to_saving(found: t.Collection[str]) -> tuple[str, ...]:
    """Return why a guest cannot be saved; () where it can.

    Args:
        found: what it has, names of `REASONS` among others.
    """
    return tuple(reason for name, reason in REASONS.items() if name in found)


def describe_suspension(mode: str, found: t.Collection[str]) -> str:
    """Return what becomes of the guests of a job that the batch system suspends, in a clause.

    Args:
        mode: the site's `suspend_guests`.
        found: see `objections_to_saving`.
    """
    if mode == "session":
        return "its guests run on, and its script alone stops"
    reasons = "; ".join(objections_to_saving(found))
    if mode == "pause":
        return "its guests are paused, and stay in memory"
    return f"its guests are paused, and not saved: {reasons}" if reasons else "its guests are saved to disk"

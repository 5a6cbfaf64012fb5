# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest's disk costs on a copy of its image that is there, beside one on the pool's own file."""

from __future__ import annotations

from .measure import Guest, Progress
from .site import Site

RUNS = 10


def measure(site: Site, guest: Guest, progress: Progress) -> dict[str, list[float]]:
    """The figures of disks, by key; both kinds in turn on one node.

    Raises:
        Trouble: a disk was not made, or the copy did not come.
    """
    progress("disks on the pool and on a copy", 0, 1)
    seconds = site.ask("cn1", "overlay_cost", guest.image, RUNS)
    ratios = [copy / pool for copy, pool in zip(seconds["local"], seconds["sharedfs"], strict=True)]
    return {"cache_disk_s": seconds["local"], "cache_disk_ratio": ratios, "cache_fetch_s": [seconds["fetch"]]}

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What further guests on one node cost: jobs whose guests really boot, beside as many that libvirt boots alone."""

from __future__ import annotations

import contextlib
import typing as t

from .figures import Pair, ratios
from .measure import SCRIPT, TEXT, Guest, Progress
from .site import USER, Site

COUNTS = (1, 2, 4)
RUNS = 3


def measure(site: Site, guest: Guest, progress: Progress) -> dict[str, list[float]]:
    """The figures of jobs with so many guests on one node, by key; bare boots and jobs in turn.

    Raises:
        Trouble: a guest did not boot, or a job did not become ready.
    """
    site.ask("fe", "write_file", SCRIPT, TEXT, user=USER)
    for host in ("fe", "cn1"):
        # a lab's node has as many cores as there are guests at most: none is kept for the host
        site.ask(host, "set_parameter", "host_os_core_count", 0)
    pairs: dict[int, list[Pair]] = {count: [] for count in COUNTS}
    for count in COUNTS:
        for number in range(RUNS):
            progress(f"{count} booted guests on one node", number, RUNS)
            boot_s = site.ask("cn1", "bare_boot", guest.image, guest.ram_mib, USER, count)["seconds"]
            pairs[count].append(Pair(boot_s, _job(site, f"{guest.request},vms_per_node={count}")))
    return ratios(pairs)


def _job(site: Site, request: str) -> float:
    """From the start of the prologue to the ready record."""
    seen, job = follow_job(site, request)
    return t.cast(float, seen["ready"] - job["record"]["phases"]["prologue"]["began"])


def follow_job(site: Site, request: str) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Run a job to its end; returns what the watches of its ready record and of itself have seen.

    Args:
        site: runs it on node cn1.
        request: as behind `-vm`.
    """
    with contextlib.ExitStack() as stack:
        over = stack.enter_context(site.program("cn1", "job_watch"))
        over.line()
        ready = stack.enter_context(site.program("cn1", "ready_watch"))
        ready.line()
        site.ask("fe", "submit", request, SCRIPT, user=USER)
        return ready.line(), over.line()

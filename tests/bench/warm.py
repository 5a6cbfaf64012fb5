# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs whose guests start from a template of their node, each beside one whose guest boots."""

from __future__ import annotations

import dataclasses
import typing as t

from .guests import follow_job
from .measure import SCRIPT, TEXT, Guest, Progress
from .site import USER, Site, Trouble

RUNS = 3
AT_ONCE = 4


@dataclasses.dataclass(frozen=True)
class Start:
    """A job's start, in seconds from the start of its prologue.

    Attributes:
        ready_s: until its ready record.
        first_line_s: until the first line of its script.
    """

    ready_s: float
    first_line_s: float


def measure(site: Site, guest: Guest, progress: Progress) -> dict[str, list[float]]:
    """The figures of warm starts, by key; a cold and a warm job in turn.

    Raises:
        Trouble: no template was made, or a job did not start as it was to.
    """
    site.ask("fe", "write_file", SCRIPT, TEXT, user=USER)
    for host in ("fe", "cn1"):
        for name, value in (("host_os_core_count", 0), ("warm_start", True), ("home_via", "nfs")):
            site.ask(host, "set_parameter", name, value)
    progress("a template", 0, 1)
    made_s = site.ask("cn1", "warm_template", guest.image, guest.ram_mib)["seconds"]
    pairs = []
    for number in range(RUNS):
        progress("a guest that boots, and one that is warm", number, RUNS)
        pairs.append((_job(site, f"{guest.request},warm=false", warm=False), _job(site, guest.request, warm=True)))
    four = []
    for number in range(RUNS):
        progress(f"{AT_ONCE} warm guests at once", number, RUNS)
        four.append(_job(site, f"{guest.request},vms_per_node={AT_ONCE}", warm=True).ready_s)
    return figures_of(pairs, four, made_s)


def figures_of(
    pairs: t.Sequence[tuple[Start, Start]], four: t.Sequence[float], made_s: float
) -> dict[str, list[float]]:
    """Return the figures of measured starts, each warm one held against the cold one of its own pair.

    Args:
        pairs: a cold and a warm start each.
        four: of so many warm guests at once, until ready, in seconds.
        made_s: for the template, in seconds.
    """
    return {
        "warm_ready_s": [warm.ready_s for _cold, warm in pairs],
        "warm_ratio": [warm.ready_s / cold.ready_s for cold, warm in pairs],
        "warm_first_line_s": [warm.first_line_s for _cold, warm in pairs],
        "warm_4_ready_s": list(four),
        "warm_make_ratio": [made_s / cold.ready_s for cold, _warm in pairs],
    }


def _job(site: Site, request: str, *, warm: bool) -> Start:
    """A job, which runs to its end."""
    seen, job = follow_job(site, request)
    hows = {guest.get("warm", "") for guest in job["record"]["guests"]}
    if (hows == {"yes"}) is not warm:
        raise Trouble(f"job {job['job']} ({request}) did not start as it was to: {', '.join(sorted(hows))}")
    began = job["record"]["phases"]["prologue"]["began"]
    return Start(seen["ready"] - began, job["first_line"] - began)

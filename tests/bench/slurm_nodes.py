# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs over several nodes on a real Slurm and on what acts like Torque, in turn; guests boot nothing (`nodes.py`)."""

from __future__ import annotations

import typing as t

from .measure import SCRIPT
from .nodes import NAMES, REQUEST, Progress, on_first, stand_in
from .site import USER, Site, Trouble

COUNTS = (2, 4, 8)
RUNS = 3
NODES = NAMES[: max(COUNTS)]
SYSTEMS = ("torque", "slurm")


def measure(sites: t.Mapping[str, Site], progress: Progress) -> dict[str, list[float]]:
    """The figures, by key.

    Args:
        sites: clusters with the nodes `NODES`, by their batch system.
        progress: what is at work, how often it was done, and how often it will be.

    Raises:
        Trouble: a job did not become ready.
    """
    for system, site in sites.items():
        stand_in(site, NODES)
        # every node makes its first guest now, whose libvirt asks qemu what it can
        progress(f"a job over {max(COUNTS)} nodes ({system})", 0, 1)
        _start_s(site, system, max(COUNTS))
    runs: dict[int, list[dict[str, float]]] = {}
    for count in COUNTS:
        for number in range(RUNS):
            progress(f"a job over {count} nodes, on each", number, RUNS)
            turn = {system: _start_s(site, system, count) for system, site in sites.items()}
            runs.setdefault(count, []).append(turn)
    return figures_of(runs)


def figures_of(runs: t.Mapping[int, t.Sequence[t.Mapping[str, float]]]) -> dict[str, list[float]]:
    """Return Slurm's figures, and each over Torque's of the same turn.

    Args:
        runs: seconds of starts by number of nodes, of each turn by batch system.
    """
    torque, slurm = SYSTEMS
    found: dict[str, list[float]] = {}
    for count, turns in runs.items():
        found[f"slurm_nodes_{count}_overhead_s"] = [turn[slurm] for turn in turns]
        found[f"slurm_nodes_{count}_ratio"] = [turn[slurm] / turn[torque] for turn in turns]
    return found


def options_of(system: str, count: int) -> list[str]:
    """Return what a job over the first so many nodes is submitted with."""
    if system == "slurm":
        return ["--parsable", "-N", str(count), "-w", ",".join(NODES[:count])]
    return on_first(count)


def _start_s(site: Site, system: str, count: int) -> float:
    """From the start of the prologue to the ready record."""
    with site.program("cn1", "ready_watch", False) as ready:
        ready.line()
        job_id = site.ask("fe", "submit", REQUEST, SCRIPT, options_of(system, count), user=USER)
        seen = ready.line()
    # nobody is in the guest to run it
    site.ask("fe", "delete", job_id, system, user=USER)
    record = site.ask("cn1", "record_at_end", seen["job"])
    if len({guest["node"] for guest in record["guests"]}) != count:
        raise Trouble(f"job {seen['job']} has no guest on each of {count} nodes: {record}")
    began: float = record["phases"]["prologue"]["began"]
    return float(seen["ready"]) - began

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same measured on a real Slurm and on what acts like Torque, in turn, on two clusters side by side."""

from __future__ import annotations

import typing as t

from .figures import Pair
from .measure import HOOKS, SCRIPT, SUBMISSIONS, TEXT, Guest, Progress, job
from .recorded import read_call, read_slurm_call
from .site import USER, Site, Trouble

HOME = "/home/alice"
BATCH = "slurm"


def measure(torque: Site, slurm: Site, guest: Guest, progress: Progress) -> dict[str, list[float]]:
    """Return every figure's runs.

    Args:
        torque, slurm: the clusters.
        guest: which one, and how often.
        progress: what is at work, how often it was done, and how often it will be.

    Raises:
        Trouble: a guest did not boot, or a job did not run.
    """
    sites = {"torque": torque, BATCH: slurm}
    for site in sites.values():
        site.ask("fe", "write_file", SCRIPT, TEXT, user=USER)
    jobs: dict[str, list[tuple[Pair, float]]] = {name: [] for name in sites}
    for number in range(guest.pairs):
        progress("a bare boot and a job, on each", number, guest.pairs)
        for name, site in sites.items():
            boot_s = site.ask("cn1", "bare_boot", guest.image, guest.ram_mib, USER, 1)["seconds"]
            seen = slurm_job(site, guest) if name == BATCH else job(site, guest)
            phases = seen["record"]["phases"]
            pair = Pair(boot_s, seen["first_line"] - phases["prologue"]["began"])
            jobs[name].append((pair, seen["over"] - phases["epilogue"]["began"]))
    extra, cpu = {}, {}
    for name, site in sites.items():
        progress(f"submissions ({name})", 0, 1)
        submitted = site.ask("fe", "submit_cost", guest.request, SCRIPT, SUBMISSIONS, name, user=USER)
        extra[name] = [ours_s - theirs_s for ours_s, theirs_s in submitted]
        progress(f"the hooks of a job without a guest ({name})", 0, 1)
        calls = [read_call(one) for one in ("prologue", "epilogue")]
        if name == BATCH:
            calls = [read_slurm_call(one) for one in ("prolog", "epilog")]
        cpu[name] = site.ask("cn1", "hook_cost", [(call.argv, call.environment) for call in calls], HOOKS)
    return compare(jobs, extra, cpu)


def compare(
    jobs: t.Mapping[str, t.Sequence[tuple[Pair, float]]],
    extra: t.Mapping[str, t.Sequence[float]],
    cpu: t.Mapping[str, t.Sequence[float]],
) -> dict[str, list[float]]:
    """Return the figures of Slurm, and each over Torque's of the same turn.

    Args:
        jobs: of each batch system bare boots with their jobs, and the seconds of the epilogue.
        extra: what submission costs beyond the batch system's own, in seconds.
        cpu: processor time of the hooks of a job without a guest, in seconds.
    """
    figures: dict[str, list[float]] = {}
    starts = {name: [pair.job_s / pair.boot_s for pair, _end_s in runs] for name, runs in jobs.items()}
    epilogues = {name: [end_s for _pair, end_s in runs] for name, runs in jobs.items()}
    figures["slurm_overhead_s"] = [pair.job_s - pair.boot_s for pair, _end_s in jobs[BATCH]]
    figures["slurm_overhead_ratio"] = _over(starts)
    for key, runs in (("epilogue", epilogues), ("submit_extra", extra), ("bare_job_cpu", cpu)):
        figures[f"slurm_{key}_s"] = list(runs[BATCH])
        figures[f"slurm_{key}_ratio"] = _over(runs)
    return figures


def _over(runs: t.Mapping[str, t.Sequence[float]]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(runs[BATCH], runs["torque"], strict=True)]


def slurm_job(site: Site, guest: Guest) -> dict[str, t.Any]:
    """Return what was seen of one job from its submission to its end, as `measure.job` does.

    Raises:
        Trouble: it did not run, or only when it was tried again: then the first line was the reason of that.
    """
    with site.program("cn1", "slurm_job_watch", HOME) as watch:
        watch.line()
        site.ask("fe", "submit", guest.request, SCRIPT, ["--parsable", "-o", f"{HOME}/slurm-%j.out"], user=USER)
        seen: dict[str, t.Any] = watch.line()
    if "epilogue" not in seen["record"].get("phases", {}):
        raise Trouble(f"job {seen['job']} did not run in a guest: {seen['record']}")
    if seen["first_line"] < seen["record"]["phases"]["prologue"]["began"]:
        raise Trouble(f"job {seen['job']} was tried again: its first start failed, which `vmgr job log` has")
    return seen

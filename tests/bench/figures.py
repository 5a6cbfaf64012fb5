# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured, what it should be, and the file that keeps it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import typing as t


@dataclasses.dataclass(frozen=True)
class Figure:
    """One thing that is measured.

    Attributes:
        key: its name in the file; the unit is its end, none for a ratio.
        text: what it is, for people.
        target: what it should not exceed, or None.
        digits: behind the point, where it is shown.
    """

    key: str
    text: str
    target: float | None
    digits: int = 2

    @property
    def unit(self) -> str:
        """`s`, `MiB`, or "" for a ratio."""
        return {"s": "s", "mib": "MiB"}.get(self.key.rpartition("_")[2], "")

    def formatted(self, value: float) -> str:
        """A value with its unit."""
        return f"{value:.{self.digits}f} {self.unit}".rstrip()


JOB = (
    Figure("boot_s", "boot of the guest by libvirt alone", None),
    Figure("overhead_s", "prologue to first line, less that boot", 1.0),
    Figure("overhead_ratio", "prologue to first line, over that boot", None),
    Figure("vsub_extra_s", "vsub, less qsub", 0.15, 3),
    Figure("bare_job_cpu_s", "processor time of a bare job's hooks", 0.020, 4),
    Figure("epilogue_s", "epilogue, with everything gone", 1.5),
    Figure("ms_peak_mib", "memory of the job's programs, peak", 150.0, 0),
)
"""One job in one guest."""


SLURM = (
    Figure("slurm_overhead_s", "Prolog to first line, less a bare boot", 1.0),
    Figure("slurm_overhead_ratio", "Prolog to first line over that boot, over Torque's", None),
    Figure("slurm_submit_extra_s", "vsbatch, less sbatch", 0.15, 3),
    Figure("slurm_submit_extra_ratio", "the same, over vsub less qsub", None),
    Figure("slurm_epilogue_s", "Epilog, with everything gone", 1.5),
    Figure("slurm_epilogue_ratio", "the same, over Torque's epilogue", None),
    Figure("slurm_bare_job_cpu_s", "processor time of a bare job's Prolog and Epilog", 0.010, 4),
    Figure("slurm_bare_job_cpu_ratio", "the same, over Torque's hooks", None),
)
"""One job in one guest on Slurm, each figure beside Torque's of the same run; Prolog and Epilog 5 ms each."""


def of_slurm_nodes(counts: t.Sequence[int]) -> tuple[Figure, ...]:
    """The figures of jobs over so many nodes of Slurm, each beside Torque's of the same run."""
    found = []
    for count in counts:
        found.append(Figure(f"slurm_nodes_{count}_overhead_s", f"{count} nodes: Prolog to ready record", None))
        found.append(Figure(f"slurm_nodes_{count}_ratio", "the same, over Torque's", 1.1))
    return tuple(found)


DISKS = (
    Figure("cache_disk_s", "a guest's disk on a copy that is there", 0.05, 3),
    Figure("cache_disk_ratio", "the same, over one on the pool's own file", None),
    Figure("cache_fetch_s", "the copy, fetched and verified", None),
)
"""A start from a warm cache costs what an overlay costs."""


WARM = (
    Figure("warm_ready_s", "warm: prologue to ready record", 3.0),
    Figure("warm_ratio", "the same, over a job whose guest boots", 0.2),
    Figure("warm_first_line_s", "warm: prologue to first line", 4.0),
    Figure("warm_4_ready_s", "four warm guests at once: prologue to ready record", 6.0),
    Figure("warm_make_ratio", "a template made, over prologue to ready of a guest that boots", 1.5),
)
"""Jobs whose guests start from a template; the targets are those of a Debian guest."""


SURVIVE = (
    Figure("survive_pause_s", "suspended: from the order until all guests stand still", 8.0),
    Figure("survive_save_s", "from then until they are on the disk", 2.0),
    Figure("survive_save_ratio", "the same, over virsh save", None),
    Figure("survive_resume_s", "from the order to resume until they run", None),
    Figure("survive_resume_ratio", "the same, over virsh restore", None),
    Figure("survive_checkpoint_s", "pause for a checkpoint", None),
    Figure("survive_move_s", "move to a spare node", 2.0),
    Figure("survive_move_ratio", "the same, over virsh migrate", None),
    Figure("survive_gap_s", "longest silence on the job's connection meanwhile", 0.5),
)
"""Jobs that are suspended to disk, saved and moved, each beside a bare guest; the targets are those of an idle node."""


PAGE = (
    Figure("site_report_s", "the page, from the program's start to its end", 2.0),
    Figure("site_report_cpu_s", "the same, processor time", None),
    Figure("site_report_mib", "its size", 2.0),
    Figure("job_watch_s", "the live view of a job, until it would query the batch server", 0.3),
    Figure("job_watch_cpu_s", "the same, processor time", None),
)
"""The page of a site with 10,000 records (`vmgr site report`), and the beginning of `vmgr job watch`."""


PROFILES = (
    Figure("debian_fast_s", "the fast profile, until ready", None),
    Figure("debian_stock_s", "Debian as it is by itself, until ready", None),
    Figure("debian_fast_ratio", "the fast profile, over that", 0.85),
)
"""Two images of role guest_image, booted by libvirt alone."""


def of_nodes(counts: t.Sequence[int]) -> tuple[Figure, ...]:
    """The figures of jobs over so many nodes."""
    found = []
    for count in counts:
        where = f"{count} nodes" if count > 1 else "1 node"
        found.append(Figure(f"nodes_{count}_overhead_s", f"{where}: prologue to ready record", NODES_S.get(count)))
    for count in counts:
        where = f"{count} nodes" if count > 1 else "1 node"
        key = f"nodes_{count}_ms_cpu_per_node_s"
        found.append(Figure(key, f"{where}: processor time of the prologue, a node", NODES_CPU_S.get(count), 3))
    most = max(counts)
    return (*found, Figure(f"nodes_{most}_ms_peak_mib", f"{most} nodes: memory of the job's programs", None, 0))


def of_guests(counts: t.Sequence[int]) -> tuple[Figure, ...]:
    """The figures of jobs with so many guests on one node."""
    return tuple(
        Figure(f"guests_{count}_ratio", f"{count} booted at once, over that many bare boots", 1.1) for count in counts
    )


NODES_S = {8: 4.0, 32: 12.0}
NODES_CPU_S = {8: 0.15, 16: 0.15, 32: 0.15}
"""What one job costs whatever its nodes is shared by them: it says nothing of a few."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A bare boot and a job, one after the other.

    Attributes:
        boot_s: the bare boot.
        job_s: from the start of the prologue until the first line of the job's script.
    """

    boot_s: float
    job_s: float


def compare(pairs: t.Sequence[Pair]) -> dict[str, list[float]]:
    """The figures of bare boots and jobs, each job held against the boot of its own pair."""
    return {
        "boot_s": [pair.boot_s for pair in pairs],
        "overhead_s": [pair.job_s - pair.boot_s for pair in pairs],
        "overhead_ratio": [pair.job_s / pair.boot_s for pair in pairs],
    }


def ratios(pairs: t.Mapping[int, t.Sequence[Pair]]) -> dict[str, list[float]]:
    """The figures of many guests: jobs, less what a job of one guest adds to its boot, over bare boots of as many.

    Args:
        pairs: bare boots, and jobs until their ready record, by the number of guests; 1 is among them.
    """
    one_s = statistics.median(pair.job_s - pair.boot_s for pair in pairs[1])
    return {
        f"guests_{count}_ratio": [(pair.job_s - one_s) / pair.boot_s for pair in some] for count, some in pairs.items()
    }


def flat(
    figures: t.Sequence[Figure], runs: t.Mapping[str, t.Sequence[float]], prefix: str = ""
) -> dict[str, float | list[float]]:
    """The form of the file: each figure's median, and beside it every run.

    Args:
        figures: what was to be measured.
        runs: every figure's runs, by key.
        prefix: before each key: which guest it was, unless it was the tiny one.

    Raises:
        ValueError: a figure is missing or has no run.
    """
    form: dict[str, float | list[float]] = {}
    for figure in figures:
        values = runs.get(figure.key, ())
        if not values:
            raise ValueError(f"{figure.key} was not measured")
        form[f"{prefix}{figure.key}"] = round(statistics.median(values), 6)
        form[f"{prefix}{figure.key}_runs"] = [round(value, 6) for value in values]
    return form


def keep(path: pathlib.Path, form: t.Mapping[str, t.Any]) -> None:
    """Write the figures into the file; what it says of another guest stays."""
    known: dict[str, t.Any] = {}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps({**known, **form}, indent=1) + "\n", encoding="utf-8")
    new.rename(path)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured, one after the other, on a lab that is up."""

from __future__ import annotations

import dataclasses
import typing as t

from .figures import Pair, compare
from .recorded import read_call
from .site import USER, Program, Site, Trouble

SCRIPT = "/home/alice/bench.sh"
TEXT = "#!/bin/sh\necho begun\n"


@dataclasses.dataclass(frozen=True)
class Guest:
    """Which guest, and how often.

    Attributes:
        image: name in the pool.
        ram_mib: its memory.
        prefix: of the keys in the file.
        pairs: of bare boots and jobs.
        watched: jobs whose memory is sampled; they come first, so that every later run finds files in memory.
    """

    image: str
    ram_mib: int
    prefix: str
    pairs: int
    watched: int

    @property
    def request(self) -> str:
        """What `vsub -vm` is told."""
        return f"img={self.image},vcpus=1,ram={self.ram_mib}M"


GUESTS = {
    "tiny": Guest("tiny", 192, "", pairs=7, watched=3),
    "debian": Guest("debian12", 512, "debian_", pairs=3, watched=1),
}
SUBMISSIONS, HOOKS = 15, 20

Progress = t.Callable[[str, int, int], None]


@dataclasses.dataclass
class Measured:
    """Everything that a run brought.

    Attributes:
        runs: every figure's runs.
        jobs: what was seen of each job, beside the bare boot of its pair.
        largest: which programs made up the greatest memory seen, in MiB.
    """

    runs: dict[str, list[float]]
    jobs: list[tuple[dict[str, t.Any], float]]
    largest: dict[str, float]


def measure(site: Site, guest: Guest, progress: Progress) -> Measured:
    """Measure everything.

    Args:
        progress: told what is at work, how often it was done, and how often it will be.

    Raises:
        Trouble: a guest did not boot, or a job did not run.
    """
    site.ask("fe", "write_file", SCRIPT, TEXT, user=USER)
    peaks = []
    for number in range(guest.watched):
        progress("memory of a job's programs", number, guest.watched)
        peaks.append(watched_job(site, guest))
    pairs, jobs = [], []
    for number in range(guest.pairs):
        progress("a bare boot, then a job", number, guest.pairs)
        boot_s = site.ask("cn1", "bare_boot", guest.image, guest.ram_mib, USER, 1)["seconds"]
        seen = job(site, guest)
        jobs.append((seen, boot_s))
        pairs.append(Pair(boot_s, seen["first_line"] - seen["record"]["phases"]["prologue"]["began"]))
    progress("vsub and qsub in turn", 0, 1)
    submitted = site.ask("fe", "submit_cost", guest.request, SCRIPT, SUBMISSIONS, user=USER)
    progress("the hooks of a job without a guest", 0, 1)
    calls = [(call.argv, call.environment) for call in map(read_call, ("prologue", "epilogue"))]
    runs = {
        **compare(pairs),
        "vsub_extra_s": [vsub_s - qsub_s for vsub_s, qsub_s in submitted],
        "bare_job_cpu_s": site.ask("cn1", "hook_cost", calls, HOOKS),
        "epilogue_s": [seen["over"] - seen["record"]["phases"]["epilogue"]["began"] for seen, _boot_s in jobs],
        "ms_peak_mib": [peak["peak_mib"] for peak in peaks],
    }
    return Measured(runs, jobs, max(peaks, key=lambda peak: peak["peak_mib"])["programs"])


def job(site: Site, guest: Guest) -> dict[str, t.Any]:
    """One job from its submission to its end.

    Returns:
        What was seen on its node: when its script's first line was written and when it was over (seconds since the
        epoch), and its record.

    Raises:
        Trouble: it did not run.
    """
    with site.program("cn1", "job_watch") as watch:
        watch.line()
        return _follow(site, guest, watch)


def _follow(site: Site, guest: Guest, watch: Program) -> dict[str, t.Any]:
    site.ask("fe", "submit", guest.request, SCRIPT, user=USER)
    seen: dict[str, t.Any] = watch.line()
    if seen["first_line"] is None:
        raise Trouble(f"job {seen['job']} wrote nothing: {seen['record']}")
    return seen


def watched_job(site: Site, guest: Guest) -> dict[str, t.Any]:
    """The greatest memory of all programs that one job made run on its node."""
    # who looks at the job is there first, and so is none of its programs
    with site.program("cn1", "job_watch") as watch:
        watch.line()
        with site.program("cn1", "memory_watch") as memory:
            memory.line()
            _follow(site, guest, watch)
            memory.finish()
            seen: dict[str, t.Any] = memory.line()
    return seen

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench`: what vTorque costs, side by side with what it adds to, in one run on the lab.

Figures, no verdict: the exit status is 0 whatever they are, 1 when nothing could be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import signal
import statistics
import sys
import typing as t

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.system.state import LabError

from . import devices, disks, guests, iron, nodes, page, profiles, slurm, slurm_nodes, survive, warm
from .figures import (
    DISKS,
    JOB,
    PAGE,
    PROFILES,
    SLURM,
    SURVIVE,
    WARM,
    Figure,
    flat,
    keep,
    of_guests,
    of_nodes,
    of_slurm_nodes,
)
from .measure import GUESTS, Guest, Measured, measure
from .measure import Progress as Progressing
from .site import Site, Trouble
from .timeline import draw, phases_of

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
POOL = BUILD / "pool"
NOTHING = BUILD / "bench-pool"
"""Of the image that boots nothing: no other lab has it."""


PARTS = ("job", "guests", "warm", "survive", "nodes", "cache", "boot", "slurm", "page", "devices")
APART = ("devices",)
"""Asked for by name alone: it takes as long as all others."""


def say_first(console: Console, guest: Guest, parts: t.Sequence[str]) -> None:
    """How often, and on what."""
    output = {
        "job": f"{guest.pairs} pairs of a boot and a job in {guest.image}, {guest.watched} more jobs for their memory",
        "guests": f"{guests.RUNS} pairs of bare boots and a job for each of {_and(guests.COUNTS)} guests on one node",
        "warm": f"a template of {guest.image}, {warm.RUNS} pairs of a job whose guest boots and one whose guest is "
        f"warm, {warm.RUNS} jobs with {warm.AT_ONCE} warm guests",
        "survive": f"{survive.RUNS} times virsh save, restore and migrate of a bare {guest.image}, and jobs that are "
        "suspended, saved and moved",
        "cache": f"{disks.RUNS} pairs of disks, on a copy of {guest.image} on the node and on the pool's own file",
        "slurm": f"{guest.pairs} pairs of a boot and a job in {guest.image} on Slurm, and as many on Torque, in turn;\n"
        f"    {slurm_nodes.RUNS} jobs over each of {_and(slurm_nodes.COUNTS)} nodes on each; of these {nodes.STAND_IN}",
        "boot": f"{profiles.RUNS} pairs of boots of {_and(profiles.IMAGES.values())}, and one more of each",
        "devices": f"{devices.ROUNDS} rounds over disks and cards of each setting, in one guest by KVM;\n"
        f"    a job of two guests for each of {_and(setting.name for setting in iron.SETTINGS)}",
        "page": f"{page.RUNS} pages of a site with {page.RECORDS} records",
        "nodes": f"jobs over {_and(nodes.COUNTS)} nodes, all played by this machine;\n    {nodes.STAND_IN}",
    }
    for part in parts:
        console.print(f"  {output[part]}", highlight=False, markup=False)
    load = f"load {os.getloadavg()[0]:.1f}: other work on it counts in every figure"
    console.print(f"  this machine has {os.cpu_count()} processors, {load}", highlight=False, markup=False)


def _and(arguments: t.Iterable[object]) -> str:
    *most, last = map(str, arguments)
    return f"{', '.join(most)} and {last}"


T = t.TypeVar("T")


def with_progress(console: Console, work: t.Callable[[Progressing], T]) -> T:
    """Measure, with a bar on a terminal and a line a step elsewhere."""
    columns = (TextColumn("  {task.description:<42}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)
            if not console.is_terminal and done == 0:
                console.print(f"  {what}", highlight=False, markup=False)

        return work(progress)


def table(title: str, figures: t.Sequence[Figure], runs: t.Mapping[str, t.Sequence[float]], *, targets: bool) -> Table:
    """Figures, with their targets beside them."""
    grid = Table(title=title, title_justify="left", box=box.SIMPLE)
    grid.add_column("")
    for heading in ("median", "range", "runs", "target"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        values = runs[figure.key]
        target = f"<= {figure.formatted(figure.target)}" if figure.target is not None and targets else ""
        spread = f"{min(values):.{figure.digits}f} .. {max(values):.{figure.digits}f}"
        grid.add_row(figure.text, figure.formatted(statistics.median(values)), spread, str(len(values)), target)
    return grid


def middle(measured: Measured) -> tuple[dict[str, t.Any], float]:
    """The job whose way to its first line took the middle time, and the bare boot of its pair."""
    ordered = sorted(
        measured.jobs, key=lambda one: one[0]["first_line"] - one[0]["record"]["phases"]["prologue"]["began"]
    )
    return ordered[len(ordered) // 2]


def run_job(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """One job in one guest."""
    with Site(POOL) as site:
        measured = with_progress(console, lambda progress: measure(site, guest, progress))
    title = f"one job in one guest ({guest.image})"
    console.print(table(title, JOB, measured.runs, targets=not guest.prefix), highlight=False)
    largest = sorted(measured.largest.items(), key=lambda item: -item[1])
    printed = ", ".join(f"{name} {mib:.0f}" for name, mib in largest if mib >= 1)
    console.print(f"memory at the peak, MiB: {printed}", highlight=False, markup=False)
    keep(out, flat(JOB, measured.runs, guest.prefix))
    picture = out.with_name(f"{out.stem}-{guest.prefix.replace('_', '-')}timeline.svg")
    seen, boot_s = middle(measured)
    phases = phases_of(seen, boot_s)
    picture.write_text(draw(phases, f"One job in a virtual machine (guest {guest.image})"), encoding="utf-8")
    console.print(f"picture: {picture}", highlight=False, markup=False)


def run_guests(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """Several guests on one node."""
    with Site(POOL) as site:
        runs = with_progress(console, lambda progress: guests.measure(site, guest, progress))
    figures = of_guests(guests.COUNTS)
    console.print(table(f"several guests on one node ({guest.image})", figures, runs, targets=True), highlight=False)
    keep(out, flat(figures, runs, guest.prefix))


def run_warm(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """Guests from a template."""
    with Site(POOL) as site:
        runs = with_progress(console, lambda progress: warm.measure(site, guest, progress))
    console.print(table(f"warm starts ({guest.image})", WARM, runs, targets=bool(guest.prefix)), highlight=False)
    keep(out, flat(WARM, runs, guest.prefix))


def run_survive(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """Jobs that are suspended, saved and moved."""
    with Site(POOL, survive.NODES) as site:
        runs = with_progress(console, lambda progress: survive.measure(site, guest, progress))
    title = f"suspended, saved and moved ({guest.image})"
    console.print(table(title, SURVIVE, runs, targets=True), highlight=False)
    keep(out, flat(SURVIVE, runs, guest.prefix))


def run_slurm(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """One job on Slurm beside one on Torque."""
    with Site(POOL) as torque, Site(POOL, system=slurm.BATCH) as other:
        runs = with_progress(console, lambda progress: slurm.measure(torque, other, guest, progress))
    console.print(table(f"Slurm beside Torque ({guest.image})", SLURM, runs, targets=not guest.prefix), highlight=False)
    keep(out, flat(SLURM, runs, guest.prefix))
    nodes.make_image(NOTHING)
    with Site(NOTHING, slurm_nodes.NODES) as torque, Site(NOTHING, slurm_nodes.NODES, slurm.BATCH) as other:
        sites = dict(zip(slurm_nodes.SYSTEMS, (torque, other), strict=True))
        runs = with_progress(console, lambda progress: slurm_nodes.measure(sites, progress))
    figures = of_slurm_nodes(slurm_nodes.COUNTS)
    console.print(table("Slurm beside Torque, guests that boot nothing", figures, runs, targets=True), highlight=False)
    console.print(nodes.STAND_IN, highlight=False, markup=False)
    keep(out, flat(figures, runs))


def run_disks(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """Disks on copies."""
    with Site(POOL) as site:
        runs = with_progress(console, lambda progress: disks.measure(site, guest, progress))
    console.print(table(f"disks on copies of their image ({guest.image})", DISKS, runs, targets=True), highlight=False)
    keep(out, flat(DISKS, runs, guest.prefix))


def run_page(console: Console, out: pathlib.Path) -> None:
    """The page of a site."""
    runs = with_progress(console, page.measure)
    console.print(table(f"the page of {page.RECORDS} jobs", PAGE, runs, targets=True), highlight=False)
    keep(out, flat(PAGE, runs))


def run_boot(console: Console, out: pathlib.Path) -> None:
    """The fast profile beside the stock one."""
    with Site(POOL) as site:
        boots = with_progress(console, lambda progress: profiles.measure(site, progress))
    console.print(table("Debian, fast and stock", PROFILES, boots.runs, targets=True), highlight=False)
    console.print(stage_table(boots.stages), highlight=False)
    stages = {
        f"debian_{profile}_stages": {phase: dataclasses.asdict(stage) for phase, stage in found.items()}
        for profile, found in boots.stages.items()
    }
    keep(out, {**flat(PROFILES, boots.runs), **stages})


def stage_table(stages: t.Mapping[str, t.Mapping[str, profiles.Stage]]) -> Table:
    """When each part of a boot was at work, for one profile beside the other."""
    grid = Table(title="where the seconds go (vmgr image profile)", title_justify="left", box=box.SIMPLE)
    grid.add_column("")
    for profile in stages:
        for heading in (f"{profile}: from", "to", "seconds"):
            grid.add_column(heading, justify="right", no_wrap=True)
    for phase in profiles.PHASES:
        if not any(phase in found for found in stages.values()):
            continue
        cells = []
        for found in stages.values():
            stage = found.get(phase)
            cells += [f"{value:.2f}" for value in dataclasses.astuple(stage)] if stage else ["", "", "-"]
        grid.add_row(phase, *cells)
    return grid


def run_devices(console: Console, out: pathlib.Path) -> None:
    """Settings of disks and cards, and switches of requests."""
    runs = with_progress(console, lambda progress: devices.measure(POOL, progress))
    figures = devices.figures()
    title = "settings of disks and cards, and switches of requests (guests by KVM)"
    console.print(table(title, figures, runs, targets=False), highlight=False)
    keep(out, flat(figures, runs))


def run_nodes(console: Console, out: pathlib.Path) -> None:
    """Many nodes."""
    nodes.make_image(NOTHING)
    with Site(NOTHING, nodes.NAMES) as site:
        runs = with_progress(console, lambda progress: nodes.measure(site, progress))
    figures = of_nodes(nodes.COUNTS)
    console.print(table("many nodes, guests that boot nothing", figures, runs, targets=True), highlight=False)
    console.print(nodes.STAND_IN, highlight=False, markup=False)
    keep(out, flat(figures, runs))


def run(console: Console, guest: Guest, parts: t.Sequence[str], out: pathlib.Path) -> None:
    """Say, measure, show, keep; what one part has brought is kept before the next begins.

    Raises:
        Trouble, LabError: nothing was measured.
    """
    say_first(console, guest, parts)
    of_guest = {
        "job": run_job,
        "guests": run_guests,
        "warm": run_warm,
        "survive": run_survive,
        "slurm": run_slurm,
        "cache": run_disks,
    }
    others = {"boot": run_boot, "page": run_page, "nodes": run_nodes, "devices": run_devices}
    for part, run_part in of_guest.items():
        if part in parts:
            run_part(console, guest, out)
    for part, run_other in others.items():
        if part in parts:
            run_other(console, out)
    console.print(f"figures: {out}", highlight=False, markup=False)


def _ended(number: int, _frame: object) -> t.NoReturn:
    # unwinds, so that the lab goes down
    raise SystemExit(128 + number)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--guest", choices=sorted(GUESTS), default="tiny")
    parser.add_argument("--part", choices=("all", *PARTS), default="all", help="what is measured (%(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=BUILD / "bench.json", help="file of the figures")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)
    console = Console(soft_wrap=True)
    try:
        parts = [part for part in PARTS if part not in APART] if arguments.part == "all" else (arguments.part,)
        run(console, GUESTS[arguments.guest], parts, arguments.out.absolute())
    except (Trouble, LabError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

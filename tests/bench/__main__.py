# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench`: what vTorque costs, side by side with what it adds to, in one run on the lab.

Figures, no verdict: the exit status is 0 whatever they are, 1 when nothing could be measured.
"""

from __future__ import annotations

import argparse
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

from lab.state import LabError

from .figures import FIGURES, flat, keep
from .measure import GUESTS, Guest, Measured, measure
from .site import Site, Trouble
from .timeline import draw, phases_of

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
POOL = BUILD / "pool"


def say_first(console: Console, guest: Guest) -> None:
    """How often, and on what."""
    load = f"load {os.getloadavg()[0]:.1f}: other work on it counts in every figure"
    console.print(
        f"  {guest.pairs} pairs of a boot and a job in the guest {guest.image}, {guest.watched} more for their memory\n"
        f"  this machine has {os.cpu_count()} processors, {load}",
        highlight=False, markup=False,
    )  # fmt: skip


def with_progress(console: Console, site: Site, guest: Guest) -> Measured:
    """Measure, with a bar on a terminal and a line a step elsewhere."""
    columns = (TextColumn("  {task.description:<38}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)
            if not console.is_terminal and done == 0:
                console.print(f"  {what}", highlight=False, markup=False)

        return measure(site, guest, progress)


def table(measured: Measured, guest: Guest) -> Table:
    """The figures, with their targets beside them."""
    grid = Table(title=f"guest {guest.image}", title_justify="left", box=box.SIMPLE)
    grid.add_column("")
    for heading in ("median", "range", "runs", "target"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for figure in FIGURES:
        values = measured.runs[figure.key]
        target = f"<= {figure.shown(figure.target)}" if figure.target is not None and not guest.prefix else ""
        spread = f"{min(values):.{figure.digits}f} .. {max(values):.{figure.digits}f}"
        grid.add_row(figure.words, figure.shown(statistics.median(values)), spread, str(len(values)), target)
    return grid


def middle(measured: Measured) -> tuple[dict[str, t.Any], float]:
    """The job whose way to its first line took the middle time, and the bare boot of its pair."""
    ordered = sorted(
        measured.jobs, key=lambda one: one[0]["first_line"] - one[0]["record"]["phases"]["prologue"]["began"]
    )
    return ordered[len(ordered) // 2]


def run(console: Console, guest: Guest, out: pathlib.Path) -> None:
    """Say, measure, show, keep.

    Raises:
        Trouble, LabError: nothing was measured.
    """
    say_first(console, guest)
    with Site(POOL) as site:
        measured = with_progress(console, site, guest)
    console.print(table(measured, guest), highlight=False)
    largest = sorted(measured.largest.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {mib:.0f}" for name, mib in largest if mib >= 1)
    console.print(f"memory at the peak, MiB: {shown}", highlight=False, markup=False)
    keep(out, flat(measured.runs, guest.prefix))
    picture = out.with_name(f"{out.stem}-{guest.prefix.replace('_', '-')}timeline.svg")
    seen, boot_s = middle(measured)
    phases = phases_of(seen, boot_s)
    picture.write_text(draw(phases, f"One job in a virtual machine (guest {guest.image})"), encoding="utf-8")
    console.print(f"figures: {out}\npicture: {picture}", highlight=False, markup=False)


def _ended(number: int, _frame: object) -> t.NoReturn:
    # unwinds, so that the lab goes down
    raise SystemExit(128 + number)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--guest", choices=sorted(GUESTS), default="tiny")
    parser.add_argument("--out", type=pathlib.Path, default=BUILD / "bench.json", help="file of the figures")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)
    console = Console(soft_wrap=True)
    try:
        run(console, GUESTS[arguments.guest], arguments.out.absolute())
    except (Trouble, LabError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

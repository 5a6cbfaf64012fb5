# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job watch`: jobs as they go on, on a terminal live, elsewhere a line for each change.

What the batch server says of a job is there on every host; its phase, guests and work are in its record.  While it
runs, that is on the job's first node, which shows the front end how it stands from time to time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pwd
import sys
import time
import typing as t

from .....module_utils.errors import UserFault, VTorqueError
from .....module_utils.job.batch.api import BatchJob, UnknownJob
from .....module_utils.job.batch.registry import open_batch
from .....module_utils.job.config.parameters import Policy
from .....module_utils.job.config.policy_file import load_usable
from .....module_utils.job.records import job_record, location
from .....module_utils.job.records.job_record import JobRecord
from .....module_utils.job.request.request import PREFIX
from .....module_utils.slow_libraries import load_library
from .....module_utils.state import layout
from .....module_utils.text import printable
from .....module_utils.wire.series import FIGURES

EVERY_S = 2.0
ASK_S = 10.0
STATES = {
    "Q": "queued",
    "W": "waiting",
    "H": "held",
    "T": "moving",
    "R": "running",
    "S": "suspended",
    "E": "ending",
    "C": "ended",
}
GONE = "gone"
HEADINGS = ("job", "name", "user", "state", "phase", "nodes", "guests", "work")
RECORD_S = 20.0
"""How long a job that is gone may take to bring its record here."""
MOST = 50
"""Rows on a terminal."""
TICKS = "▁▂▃▄▅▆▇█"
LAST_SAMPLES = 12
_READ_BYTES = 1 << 16
OLD_S = 120.0
"""Samples that were written longer ago say so."""
RUNNING = layout.STATE_DIR / layout.RUNNING
EPILOG = """\
With JOB: until it is gone; without: all of your jobs in guests (root: everybody's) that the batch system knows, until
none is left.  On a terminal the table is drawn anew every two seconds; elsewhere there is a line for each change.
Ctrl-C ends it, and does nothing to the job.

Phase, guests and work come from the job's record: on its first node while it runs, on the front end as the sweep of
that node has sent it last: first within two minutes, then ever more rarely.  Work is a bar for each of the last
samples: how many of its vCPUs were busy, and how long ago that was.

examples:
  vmgr job watch 4711           this job, until it is gone
  vmgr job watch                all of mine
  vmgr job watch 4711 | tee w   a line for each change
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """How a job stands.

    Attributes:
        state: in one word; `GONE`: the batch system does not know it any more.
        phase: what has been done last of its start or end; "": not known here.
        guests: how many it has; "": not known here.
        work: a bar for each of the last samples; "": not known here.
    """

    job_id: str
    name: str
    user: str
    state: str
    phase: str
    nodes: str
    guests: str
    work: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the texts of the columns (`HEADINGS`); `-` is not known."""
        found = (self.job_id, self.name, self.user, self.state, self.phase, self.nodes, self.guests, self.work)
        return tuple(text or "-" for text in found)


class Jobs:
    """The jobs that are watched, as they stand now.

    Args:
        named: one job, by its whole id; "": all of the user's.
        policy: says where the batch system is.
        user: whose jobs; "": everybody's.
    """

    def __init__(self, named: str, policy: Policy, user: str) -> None:
        self._named, self._policy, self._user = named, policy, user
        self._known: dict[str, BatchJob] = {}
        self._gone_at: dict[str, float] = {}

    def read(self) -> tuple[Row, ...]:
        """Ask for all of them.

        Raises:
            VTorqueError: the batch server does not answer.
        """
        batch = open_batch(self._policy, front_end=True, timeout_s=ASK_S)
        if self._named:
            with contextlib.suppress(UnknownJob):
                self._known[self._named] = batch.job(self._named)
                return (self._row(self._known[self._named], there=True),)
            there: set[str] = set()
        else:
            jobs = {job.job_id: job for job in batch.all_jobs() if self._is_meant(job)}
            self._known.update(jobs)
            there = set(jobs)
        return tuple(self._row(job, there=job_id in there) for job_id, job in self._known.items())

    def _is_meant(self, job: BatchJob) -> bool:
        return PREFIX in job.x and self._user in ("", job.owner_user)

    def _row(self, job: BatchJob, *, there: bool) -> Row:
        record = find_record(job.job_id)
        ended = not there or job.state == "C"
        if ended:
            self._gone_at.setdefault(job.job_id, time.monotonic())
        state = STATES.get(job.state, job.state) if not ended else _end_of(job, record)
        nodes = ",".join(dict.fromkeys(job.nodes or (record.nodes if record else ())))
        return Row(
            printable(job.alias or job.job_id),
            printable(job.name),
            printable(job.owner_user),
            printable(state),
            printable(_phase_of(record)),
            printable(nodes),
            str(len(record.guests)) if record and record.guests else "",
            work_of(record) if record and not ended else "",
        )

    def all_gone(self) -> bool:
        """Return whether each of them has ended, and its record is here or does not come."""
        for job_id in self._known:
            gone_at = self._gone_at.get(job_id)
            if gone_at is None:
                return False
            record = find_record(job_id)
            arrived = record is not None and record.ended is not None
            if not arrived and self._named and time.monotonic() - gone_at < RECORD_S:
                return False
        return True


def find_record(job_id: str) -> JobRecord | None:
    """Return the record of a job that is here, of its newest start, whole or as it stands; None: none to be read."""
    found = []
    for directory in (job_record.RECORDS, RUNNING):
        with contextlib.suppress(VTorqueError):
            found.append(job_record.find(job_id, directory))
    return max(found, key=lambda record: record.start, default=None)


def _end_of(job: BatchJob, record: JobRecord | None) -> str:
    if record is not None and record.ended is not None:
        status = "" if record.exit_status is None else f", exit status {record.exit_status}"
        return f"{record.state}{status}"
    return f"ended, exit status {job.exit_status}" if job.exit_status is not None else GONE


def _phase_of(record: JobRecord | None) -> str:
    if record is None or not record.phases:
        return ""
    name = list(record.phases)[-1].partition(".")[0]
    return {"present": "guests", "absent": "gone"}.get(name, name)


def work_of(record: JobRecord) -> str:
    """Return a bar for each of the last samples of a running job that are here: how many of its vCPUs were busy.

    Args:
        record: of the job.
    """
    vcpus = sum(guest.vcpus or 0 for guest in record.guests) or 1
    samples: list[tuple[float, float]] = []
    age_s = 0.0
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
        with (record.directory / layout.SAMPLES).open("rb") as stream:
            age_s = time.time() - os.fstat(stream.fileno()).st_mtime
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _READ_BYTES))
            lines = stream.read(_READ_BYTES).decode("ascii").splitlines()
        column = FIGURES.index("cpu_s")
        for line in lines[1:][-LAST_SAMPLES - 1 :]:
            sample = json.loads(line)
            samples.append((sample["at"], sum(figures[column] or 0.0 for figures in sample["guests"].values())))
    bars = []
    for (before_s, before), (after_s, after) in itertools.pairwise(samples):
        share = (after - before) / max(0.001, after_s - before_s) / vcpus
        bars.append(TICKS[min(len(TICKS) - 1, max(0, int(share * len(TICKS))))])
    return "".join(bars) + (f" {age_s / 60:.0f} min ago" if bars and age_s > OLD_S else "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb.

    Args:
        parser: of the verb.
    """
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="SECONDS", help=f"now {EVERY_S:.0f}")


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Watch jobs until they are gone; see `Subject` of `main.py`.

    Raises:
        UserFault: there is no such job, or none at all.
        VTorqueError: the batch server does not answer at all.
    """
    if not 0.1 <= call.every <= 3600:
        raise UserFault(f"--every {call.every:g}", "is not from 0.1 to 3600 seconds")
    if sys.stdout.isatty():
        with _live() as draw:
            draw((), "asking the batch server ...")
            return _watch(call, load, draw)
    return _watch(call, load, _Lines().print)


def _watch(
    call: argparse.Namespace, load: t.Callable[[], Policy], draw: t.Callable[[t.Sequence[Row], str], None]
) -> int:
    policy, _broken = load_usable(load)
    named = _find(call.job, policy) if call.job else ""
    user = "" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    jobs, answered = Jobs(named, policy, user), False
    try:
        while True:
            try:
                rows, trouble = jobs.read(), ""
                answered = True
            except VTorqueError as error:
                if not answered:
                    raise
                rows, trouble = (), str(error)
            if answered and not trouble:
                if not rows and named:
                    raise UserFault(f"job {named}", "the batch system does not know it (any more)", "vmgr job show")
                draw(rows, "" if rows else "no jobs in guests")
                if jobs.all_gone():
                    return 0
            elif trouble:
                draw((), trouble)
            time.sleep(call.every)
    except KeyboardInterrupt:
        return 130


def _find(job: str, policy: Policy) -> str:
    job_id = location.find_id(job, policy)
    if not job_id:
        raise UserFault(f"job {printable(job[:60])}", "the batch system does not know it (any more)", "vmgr job show")
    return job_id


class _Lines:
    """A line for each change, for programs and files."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, ...]] = {}

    def print(self, rows: t.Sequence[Row], trouble: str) -> None:
        """Print what has changed."""
        for row in rows:
            cells = row.cells[:-1]
            if self._last.get(row.job_id) != cells:
                self._last[row.job_id] = cells
                print(time.strftime("%H:%M:%S"), "  ".join(cells), flush=True)
        if trouble and self._last.get("") != (trouble,):
            self._last[""] = (trouble,)
            print(time.strftime("%H:%M:%S"), trouble, flush=True)


@contextlib.contextmanager
def _live() -> t.Iterator[t.Callable[[t.Sequence[Row], str], None]]:
    """A table on the terminal that is drawn anew; the last one stays."""
    live, box, table = load_library("rich.live"), load_library("rich.box"), load_library("rich.table")
    text, group = load_library("rich.text").Text, load_library("rich.console").Group
    console = load_library("rich.console").Console()

    def render(rows: t.Sequence[Row], trouble: str) -> t.Any:
        drawn = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        cells = [row.cells for row in rows[:MOST]]
        for number, heading in enumerate(HEADINGS):
            if any(one[number] != "-" for one in cells) or number == 0:
                drawn.add_column(heading, no_wrap=True, overflow="ellipsis")
            else:
                cells = [(*one[:number], "", *one[number + 1 :]) for one in cells]
        for one in cells:
            drawn.add_row(*(text(cell) for cell in one if cell))
        more = f"{len(rows) - MOST} more are not listed" if len(rows) > MOST else ""
        return group(drawn, text(trouble or more)) if trouble or more else drawn

    with live.Live(console=console, auto_refresh=False) as screen:
        yield lambda rows, trouble: screen.update(render(rows, trouble), refresh=True)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a site's page reports, out of records, jobs and nodes: pure functions.

Nothing is in it that the batch system does not list for everybody: of a record its job, times, images of the pool, and
what became of it; never the request, reasons, addresses or consoles, which are the owner's alone.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import typing as t

from .....module_utils.job.batch.api import NOTE_PREFIX, BatchJob, BatchNode
from .....module_utils.job.batch.liveness import RUNNING
from .....module_utils.job.records.job_record import JobRecord
from .....module_utils.job.records.samples import series_file
from .....module_utils.job.request.request import PREFIX
from .....module_utils.text import printable
from ..job_usage import uses_of
from .job_parts import Piece, pieces_of

DAYS = 7
"""Of the page: today, and those before it."""
MOST_LISTED = 200
"""Recent jobs that are drawn one by one: the page is read on a phone, too."""
MOST_RUNNING = 500
MOST_TEXT = 80
"""Characters of a name or a note."""
USER_IMAGE = "image of a user"
"""In place of the path of an image that is not the pool's."""
OUTCOMES = {
    "finished": "finished",
    "guest lost": "lost",
    "refused": "refused",
    "did not run: tried again": "requeued",
    "did not run: held": "held",
}
"""By the state of a record; all others are `unknown`."""
KINDS = (*OUTCOMES.values(), "unknown")


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """What a page is made of.

    Attributes:
        now: seconds since the epoch.
        host: which host writes it.
        records: those that were read, each start of a job once.
        unread: older records that were not read.
        jobs: of the batch server.
        nodes: of the batch server.
        fault: why it does not answer; "": it does.
        names_public: whether each user may see users and names of all jobs.
    """

    now: float
    host: str
    records: t.Sequence[JobRecord]
    unread: int
    jobs: t.Sequence[BatchJob]
    nodes: t.Sequence[BatchNode]
    fault: str
    names_public: bool


@dataclasses.dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has nodes now; moments in seconds since the epoch, None: not known."""

    job_id: str
    user: str
    name: str
    state: str
    nodes: tuple[str, ...]
    began: float | None
    walltime_s: int


@dataclasses.dataclass(frozen=True, slots=True)
class RecentJob:
    """A start of a job that is over.

    Attributes:
        moment: when it ended, or began where that is not known.
        pieces: where its time went; (): its record does not say.
        cpu_share: of its vCPUs, from 0 to 1; None: not known.
        wait_share: of the time of its vCPUs, in which they waited for a processor; None: not known.
        energy_j: of all nodes that can measure it; None: none of them can.
        energy_estimated: whether a part of that is estimated.
    """

    job_id: str
    start: int
    user: str
    name: str
    outcome: str
    exit_status: int | None
    moment: float
    nodes: tuple[str, ...]
    guests: int
    images: tuple[str, ...]
    pieces: tuple[Piece, ...]
    cpu_share: float | None
    wait_share: float | None
    energy_j: float | None
    energy_estimated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class NodeState:
    """A node of the site.

    Attributes:
        states: the batch server's.
        jobs: how many have slots of it.
        note: "" for none.
        noted_by_vtorque: whether vTorque wrote the note.
    """

    name: str
    states: tuple[str, ...]
    slots: int
    jobs: int
    offline: bool
    note: str
    noted_by_vtorque: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Day:
    """What became of the starts of a day.

    Attributes:
        date: as 2026-11-26.
        counts: by `KINDS`, without zeros.
    """

    date: str
    counts: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class VerdictCount:
    """Verdicts of one kind.

    Attributes:
        fault: whose it was (`VTorqueError.fault`).
        action: what became of the job; `lost`: a guest was lost while it ran.
        offline: nodes that were set offline with them.
        last: the latest of them.
    """

    fault: str
    action: str
    count: int
    offline: tuple[str, ...]
    last: float


@dataclasses.dataclass(frozen=True, slots=True)
class ImageStarts:
    """How long starts with an image took, in seconds, in ascending order."""

    image: str
    seconds: tuple[float, ...]

    def quantile(self, share: float) -> float:
        """Return the least time within which this share (0 to 1) of the starts was over."""
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


@dataclasses.dataclass(frozen=True, slots=True)
class SiteFacts:
    """All that the page reports.

    Attributes:
        since: midnight before the first of `DAYS`.
        listed: the last `MOST_LISTED` of `starts`.
        starts: how many starts of jobs ended in these days.
        undated: records that name no time.
        incomplete: whether records of these days were left unread.
    """

    now: float
    since: float
    host: str
    fault: str
    names_public: bool
    running: tuple[RunningJob, ...]
    not_listed: int
    waiting: int
    held: int
    nodes: tuple[NodeState, ...]
    days: tuple[Day, ...]
    verdicts: tuple[VerdictCount, ...]
    images: tuple[ImageStarts, ...]
    listed: tuple[RecentJob, ...]
    starts: int
    undated: int
    incomplete: bool

    def to_dict(self) -> dict[str, t.Any]:
        """Return the facts for programs."""
        return dataclasses.asdict(self)


def collect(sources: Sources) -> SiteFacts:
    """Return what the page reports.

    Args:
        sources: what was read.
    """
    dates = days_of(sources.now)
    since = datetime.datetime.combine(dates[0], datetime.time()).timestamp()
    ended, going, undated = [], [], 0
    oldest = sources.now
    for record in sources.records:
        state = record.state
        moment = record.ended or record.began
        if state == "running":
            going.append(record)
        elif moment is None:
            undated += 1
        else:
            oldest = min(oldest, moment)
            if since <= moment:
                ended.append((moment, OUTCOMES.get(state, "unknown"), record))
    ended.sort(key=lambda one: one[0], reverse=True)
    mine = [job for job in sources.jobs if PREFIX in job.x]
    running = _running(mine, going, sources.names_public)
    return SiteFacts(
        now=sources.now,
        since=since,
        host=printable(sources.host),
        fault=printable(sources.fault),
        names_public=sources.names_public,
        running=running[:MOST_RUNNING],
        not_listed=max(0, len(running) - MOST_RUNNING),
        waiting=sum(job.state in "QWT" for job in mine),
        held=sum(job.state == "H" for job in mine),
        nodes=tuple(map(_node, sorted(sources.nodes, key=lambda node: node.name))),
        days=_days(dates, ended),
        verdicts=_verdicts(ended),
        images=_images(ended),
        listed=tuple(_recent(*one, sources.names_public) for one in ended[:MOST_LISTED]),
        starts=len(ended),
        undated=undated,
        incomplete=sources.unread > 0 and oldest > since,
    )


def days_of(now: float) -> list[datetime.date]:
    """Return the days of the page, today last, by this host's clock.

    Args:
        now: seconds since the epoch.
    """
    today = datetime.datetime.fromtimestamp(now).date()
    return [today - datetime.timedelta(days=ago) for ago in range(DAYS - 1, -1, -1)]


_Ended = tuple[float, str, JobRecord]


def _running(jobs: t.Iterable[BatchJob], going: t.Iterable[JobRecord], names: bool) -> tuple[RunningJob, ...]:
    """The server's word counts; what it does not know of is there as far as its record goes."""
    found = [
        RunningJob(
            printable(job.job_id[:MOST_TEXT]),
            _cut(job.euser or job.owner_user) if names else "",
            _cut(job.name) if names else "",
            {"R": "running", "E": "ending", "S": "suspended"}[job.state],
            tuple(map(_cut, job.nodes)),
            job.started_s or None,
            job.walltime_s,
        )
        for job in jobs
        if job.state in RUNNING
    ]
    known = {job.job_id for job in found}
    found += [
        RunningJob(
            record.job_id,
            _cut(record.user) if names else "",
            _cut(record.name) if names else "",
            "running",
            record.nodes,
            record.began,
            0,
        )
        for record in going
        if record.job_id not in known
    ]
    return tuple(sorted(found, key=lambda job: (-(job.began or 0), job.job_id)))


def _node(node: BatchNode) -> NodeState:
    return NodeState(
        name=_cut(node.name),
        states=tuple(sorted(map(_cut, node.states))),
        slots=node.slots,
        jobs=len(node.jobs),
        offline=node.offline,
        note=printable(node.note[:300]),
        noted_by_vtorque=node.note.startswith(NOTE_PREFIX),
    )


def _days(dates: t.Iterable[datetime.date], ended: t.Iterable[_Ended]) -> tuple[Day, ...]:
    found: dict[datetime.date, collections.Counter[str]] = {date: collections.Counter() for date in dates}
    for moment, outcome, _record in ended:
        day = datetime.datetime.fromtimestamp(moment).date()
        if day in found:  # a node's clock may be ahead
            found[day][outcome] += 1
    return tuple(
        Day(date.isoformat(), {kind: counts[kind] for kind in KINDS if counts[kind]}) for date, counts in found.items()
    )


def _verdicts(ended: t.Iterable[_Ended]) -> tuple[VerdictCount, ...]:
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for moment, outcome, record in ended:
        verdict = record.raw.get("verdict")
        if outcome == "lost":
            found.setdefault(("guest", "lost"), []).append((moment, ""))
        elif isinstance(verdict, dict):
            fault, action, node = (_text(verdict.get(key)) for key in ("fault", "action", "node"))
            found.setdefault((fault or "unclear", action or outcome), []).append((moment, node))
    counts = [
        VerdictCount(fault, action, len(ones), tuple(sorted({node for _moment, node in ones if node})), max(ones)[0])
        for (fault, action), ones in found.items()
    ]
    return tuple(sorted(counts, key=lambda one: (-one.count, one.fault, one.action)))


def _images(ended: t.Iterable[_Ended]) -> tuple[ImageStarts, ...]:
    """Starts whose job ran; one with several images counts for each."""
    found: dict[str, list[float]] = {}
    for _moment, outcome, record in ended:
        seconds = _seconds(record, "prologue")
        if outcome in ("finished", "lost") and seconds is not None:
            for image in _images_of(record):
                found.setdefault(image, []).append(seconds)
    starts = [ImageStarts(image, tuple(sorted(seconds))) for image, seconds in found.items()]
    return tuple(sorted(starts, key=lambda one: (-len(one.seconds), one.image)))


def _images_of(record: JobRecord) -> tuple[str, ...]:
    guests = record.raw.get("guests")
    images = [_text(one.get("image")) for one in guests if isinstance(one, dict)] if isinstance(guests, list) else []
    return tuple(sorted({USER_IMAGE if "/" in image else image for image in images if image}))


def _seconds(record: JobRecord, phase: str) -> float | None:
    """Read one phase: `JobRecord.phases` reads all of them, which thousands of records need not pay."""
    phases = record.raw.get("phases")
    one = phases.get(phase) if isinstance(phases, dict) else None
    seconds = one.get("seconds") if isinstance(one, dict) else None
    good = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < 1e9
    return float(t.cast(float, seconds)) if good else None


def _recent(moment: float, outcome: str, record: JobRecord, names: bool) -> RecentJob:
    uses = uses_of(record)
    energy = series_file.read_energy(record)
    return RecentJob(
        job_id=record.job_id,
        start=record.start,
        user=_cut(record.user) if names else "",
        name=_cut(record.name) if names else "",
        outcome=outcome,
        exit_status=record.exit_status if outcome in ("finished", "lost") else None,
        moment=moment,
        nodes=record.nodes,
        guests=len(record.guests),
        images=_images_of(record),
        pieces=pieces_of(record),
        cpu_share=_mean([use.share for use in uses if use.kind == "vcpus"]),
        wait_share=_mean([use.share for use in uses if use.kind == "waits"]),
        energy_j=sum(joules for joules, _how in energy) if energy else None,
        energy_estimated=any(how != "measured" for _joules, how in energy),
    )


def _mean(shares: t.Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def _cut(text: str) -> str:
    return printable(text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…")


def _text(value: object) -> str:
    return _cut(value) if isinstance(value, str) else ""

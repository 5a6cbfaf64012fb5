# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of jobs, as people ask for them: by a short job id, with their own rights, and whole or not.

What cannot be told is None here and "unknown" or "-" for people; a record that is half there, or garbage, is shown as
far as it goes.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

from ...errors import UserFault, VTorqueError
from ...state import layout
from ...system import files
from ...text import printable
from . import schema
from .guest_record import Guest, figure_of, list_of, mapping_of, read_guest, text_of

RECORDS = layout.STATE_DIR / "records"
_NAMED = re.compile(r"([0-9]{1,12})(\[[0-9]{0,7}\]|[_+][0-9]{1,7})?(?:\.([A-Za-z0-9.-]{1,254}))?")
_NOT_ENDED = ("requeue", "hold")
"""Actions of a verdict after which a job that did not run is still there."""
_OF_GUEST = ("guest", "node", "image", "address", "vcpus", "ram")
_USED = ("cpu used", "ram peak", "read", "written", "received", "sent", "updates")
GUEST_HEADINGS = (*_OF_GUEST, *_USED)
"""Columns of a table of guests, in a terminal or on a page."""


class NoRecord(UserFault):
    """There is no record of this job here."""


@dataclasses.dataclass(frozen=True, slots=True)
class JobRecord:
    """One start of a job.

    Attributes:
        directory: where its files are.
        wrong: what is wrong with its record; "": nothing.
        raw: the record as it is.
    """

    job_id: str
    start: int
    directory: pathlib.Path
    wrong: str
    raw: dict[str, t.Any]

    @property
    def user(self) -> str:
        """The job's user, "" when it is not known."""
        return text_of(self.raw.get("user"))

    @property
    def name(self) -> str:
        """The job's name, "" when it is not known."""
        return text_of(self.raw.get("name"))

    @property
    def request(self) -> dict[str, str]:
        """What was asked for with `-vm`, as far as it was said."""
        return {text_of(key): text_of(value) for key, value in mapping_of(self.raw.get("request")).items()}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The job's nodes, the mother superior first."""
        return tuple(text_of(node) for node in list_of(self.raw.get("nodes")))

    @property
    def bare(self) -> tuple[str, ...]:
        """Return the nodes that had no guests (a mixed request)."""
        return tuple(text_of(node) for node in list_of(self.raw.get("bare")))

    @property
    def spares(self) -> tuple[str, ...]:
        """Return the nodes that were there to take the place of another, and had nothing to do."""
        return tuple(text_of(node) for node in list_of(self.raw.get("spares")))

    @property
    def replaced(self) -> tuple[tuple[str, str, str], ...]:
        """Nodes that failed at the start, which node took the place of each, and why."""
        found = [mapping_of(one) for one in list_of(self.raw.get("replaced"))]
        return tuple((text_of(one.get("node")), text_of(one.get("by")), text_of(one.get("why"))) for one in found)

    @property
    def survival(self) -> dict[str, str]:
        """What its guests live through, each in a clause (`guest_saving.Survival`), as far as it is known."""
        return {text_of(key): text_of(value) for key, value in mapping_of(self.raw.get("survival")).items() if value}

    @property
    def guests(self) -> tuple[Guest, ...]:
        """By rank, as far as they are known."""
        found = [read_guest(one) for one in list_of(self.raw.get("guests")) if isinstance(one, dict)]
        return tuple(sorted(found, key=lambda guest: (guest.rank is None, guest.rank or 0)))

    @property
    def phases(self) -> dict[str, tuple[float, float]]:
        """When each phase began (seconds since the epoch), and how many seconds it took; by beginning."""
        found = {}
        for name, one in mapping_of(self.raw.get("phases")).items():
            begin, seconds = (figure_of(mapping_of(one).get(key)) for key in ("began", "seconds"))
            if begin is not None and seconds is not None:
                found[text_of(name)] = (begin, seconds)
        return dict(sorted(found.items(), key=lambda item: item[1]))

    @property
    def began(self) -> float | None:
        """Seconds since the epoch."""
        return min((begin for begin, _seconds in self.phases.values()), default=None)

    @property
    def ended(self) -> float | None:
        """Seconds since the epoch; None: not yet, or not known."""
        return figure_of(self.raw.get("ended"))

    @property
    def exit_status(self) -> int | None:
        """As the batch system told it to the epilogue."""
        status = self.raw.get("exit_status")
        return status if isinstance(status, int) and not isinstance(status, bool) else None

    @property
    def state(self) -> str:
        """How it stands with this start, in words."""
        action = text_of(mapping_of(self.raw.get("verdict")).get("action"))
        if self.wrong:
            return "unknown"
        if action in _NOT_ENDED:
            return "did not run: tried again" if action == "requeue" else "did not run: held"
        if self.raw.get("refusal"):
            return "refused"
        if self.ended is None:
            return "running" if _runs(self.job_id, self.start) else "end not known"
        if self.raw.get("lost"):
            return "guest lost"
        return "finished"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it did not run, or did not run well; and what became of a job that is queued again or held."""
        verdict = mapping_of(self.raw.get("verdict"))
        found: list[str] = []
        for key in ("refusal", "lost", "error"):
            facts = mapping_of(self.raw.get(key))
            parts = [text_of(facts.get(part)) for part in ("what", "why", "hint", "reason", "console")]
            line = ": ".join(word for word in parts if word)
            if key == "lost" and facts:
                line = f"guest {text_of(facts.get('guest'))} on {text_of(facts.get('node'))} was lost: {line}"
            if line and line not in found:
                found.append(line)
            # the refusal was written before the verdict, for the owner of a job that ends
            spoken = verdict if key == "refusal" and text_of(verdict.get("action")) in _NOT_ENDED else facts
            found += [text for one in list_of(spoken.get("lines")) if (text := text_of(one)) and text not in found]
        return tuple(found)


def read_all(directory: pathlib.Path = RECORDS, *, last: int = 0) -> tuple[tuple[JobRecord, ...], int]:
    """The records that the caller may read, those that were written last first.

    Args:
        directory: of all records of this host.
        last: no more than this many; 0: all.

    Returns:
        The records, and how many more entries there are that were not looked at.

    Raises:
        VTorqueError: the directory cannot be listed.
    """
    entries = sorted(_entries(directory), key=_read_write_time, reverse=True)
    found: list[JobRecord] = []
    for number, (job_id, start, path) in enumerate(entries):
        if last and len(found) == last:
            return tuple(found), len(entries) - number
        record = _read(job_id, start, path)
        if record is not None:
            found.append(record)
    return tuple(found), 0


def find(named: str, directory: pathlib.Path = RECORDS, *, start: int | None = None) -> JobRecord:
    """The record that a job's name means: the newest start, unless one is asked for.

    Args:
        named: `4711`, `4711.head`, `72[1]`, `72[1].head`, or its alias, `33_1`.
        directory: of all records of this host.
        start: the number of a start.

    Returns:
        The record.

    Raises:
        NoRecord: there is none.
        UserFault: several jobs are meant, there is no such start, or it is somebody else's.
    """
    entries = _named(named, directory)
    jobs = list(dict.fromkeys(job_id for job_id, _start, _path in entries))
    if len(jobs) > 1:
        raise UserFault(f"job {named}", f"means {len(jobs)} jobs", f"name one of them: {', '.join(jobs[:8])}")
    starts = sorted({number for _job, number, _path in entries})
    if start is not None and start not in starts:
        raise UserFault(
            f"start {start} of job {jobs[0]}", "no record of it", f"there are: {', '.join(map(str, starts))}"
        )
    number = starts[-1] if start is None else start
    path = next(path for _job, one, path in entries if one == number)
    record = _read(jobs[0], number, path)
    if record is None:
        raise UserFault(f"job {jobs[0]}", "its record is not yours to read", "its owner and root may read it")
    return record


def find_all(named: str, directory: pathlib.Path = RECORDS) -> tuple[JobRecord, ...]:
    """Every start that the caller may read of the jobs that a name means; `72[]` and `72` mean all of an array.

    Raises:
        UserFault: there is none.
    """
    found = (_read(job_id, start, path) for job_id, start, path in _named(named, directory))
    return tuple(record for record in found if record is not None)


def _named(named: str, directory: pathlib.Path) -> list[tuple[str, int, pathlib.Path]]:
    asked = _NAMED.fullmatch(named)
    if not asked:
        raise UserFault(
            f"job {printable(named[:60])}", "not of the form of a job id", "4711, 4711.head, 72[1], or 33_1"
        )
    number, member, server = asked[1], asked[2], asked[3]
    found = []
    for job_id, start, path in _entries(directory):
        whole, _dot, its_server = job_id.partition(".")
        its_number, bracket, _rest = whole.partition("[")
        if its_number != number or (server and not _same(server, its_server)):
            continue
        if member in (None, "[]") or (bracket and f"[{_rest}" == member):
            found.append((job_id, start, path))
    if member and not any("[" in job_id for job_id, _start, _path in found):
        called = [entry for entry in _entries(directory) if _is_called(_alias(*entry), number, member)]
        found = list(dict.fromkeys(found + called))
    if not found:
        raise NoRecord(
            f"job {named}",
            f"no record of it in {directory}",
            "records are kept where the job's first node was, on the front end where the site has one, and for a time",
        )
    return sorted(found, key=lambda one: (*_numbers_of(one[0]), one[1]))


def _alias(job_id: str, start: int, path: pathlib.Path) -> str:
    """As the job's user calls it, where that is not its own number; "" too where it is somebody else's."""
    record = _read(job_id, start, path)
    return text_of(record.raw.get("alias")) if record else ""


def _is_called(alias: str, number: str, member: str) -> bool:
    """Return whether a record's alias is this member of an array, however that was named, or any of `[]`."""
    if member == "[]":
        return alias.startswith(f"{number}_")
    return alias == number + (f"_{member[1:-1]}" if member.startswith("[") else member)


def _numbers_of(job_id: str) -> tuple[int, int, str]:
    """Number and member of a job, for an order that people expect."""
    whole, _dot, server = job_id.partition(".")
    number, _bracket, member = whole.partition("[")
    return int(number), int(member.rstrip("]") or 0), server


def _same(asked: str, server: str) -> bool:
    return asked == server or server.startswith(f"{asked}.") or asked.startswith(f"{server}.")


def _entries(directory: pathlib.Path) -> list[tuple[str, int, pathlib.Path]]:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise VTorqueError(f"{directory} cannot be listed", error.strerror or str(error)) from error
    return [(*start, directory / name) for name in names if (start := layout.start_of(name)) is not None]


def _read_write_time(entry: tuple[str, int, pathlib.Path]) -> float:
    try:
        return entry[2].stat().st_mtime
    except OSError:
        return 0.0


def _read(job_id: str, start: int, path: pathlib.Path) -> JobRecord | None:
    """None: the caller may not read it."""
    wrong, raw = "", {}
    try:
        raw = files.read_json(path / layout.RECORD, limit=schema.LIMIT)
    except PermissionError:
        return None
    except FileNotFoundError:
        if not _may_list(path):
            return None
        wrong = "there is no record yet" if (path / layout.LOG).exists() else "there is no record here, only consoles"
    except (OSError, VTorqueError) as error:
        wrong = str(error)
    return JobRecord(job_id, start, path, wrong, raw)


def _may_list(path: pathlib.Path) -> bool:
    try:
        list(path.iterdir())
    except OSError:
        return False
    return True


def _runs(job_id: str, start: int) -> bool:
    """Return whether this start is still there, on this host."""
    try:
        return layout.run_directory(job_id, start).exists()
    except (OSError, VTorqueError):
        return False

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job`: what happened to a job, for people and programs."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import pathlib
import sys
import typing as t

from ....module_utils.errors import UserFault
from ....module_utils.job.config.parameters import Policy
from ....module_utils.job.config.policy_file import load_usable
from ....module_utils.job.records import console_files, job_record, location
from ....module_utils.job.records import html_report as report
from ....module_utils.job.records.guest_record import Guest
from ....module_utils.job.records.job_record import GUEST_HEADINGS, JobRecord, NoRecord
from ....module_utils.job.records.moves import describe_move, read_moves
from ....module_utils.job.records.timeline_svg import GUEST_PHASES
from ....module_utils.state import event_log, layout
from ....module_utils.text import format_bytes_short
from ..output.json_output import add_json, print_json
from ..output.named_file import write_file
from ..output.verbs import add_verb
from . import job_usage
from .jobs import checkpoint, export, log_lines, watch
from .jobs.epilogs import CONSOLE_EPILOG, LIST_EPILOG, LOG_EPILOG, REPORT_EPILOG, SHOW_EPILOG

with contextlib.suppress(ImportError):  # the roles install it; ansible-test imports this file without it
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

HELP = "what happened to a job"
LAST = 25
VERBS = "list | show | watch | log | console | report | export | checkpoint | suspend"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr job`.

    Args:
        parser: of the subject.
    """
    job = parser.add_subparsers(dest="verb", required=True, metavar=VERBS)

    def verb(name: str, summary: str, epilog: str, *, named: str | None = None) -> argparse.ArgumentParser:
        own = add_verb(job, name, summary, epilog)
        own.add_argument("job", metavar="JOB", nargs=named, help="number or id of the job")
        if name not in ("list", "watch", "checkpoint", "suspend"):
            own.add_argument("--start", type=int, metavar="N", help="this start of the job, not the newest")
        return own

    listing = verb("list", "the jobs whose records are here", LIST_EPILOG, named="?")
    listing.add_argument("--last", type=int, default=LAST, metavar="N", help=f"only the last N, 0: all (now {LAST})")
    add_json(listing)
    add_json(verb("show", "one job: its guests, what they used, where the time went", SHOW_EPILOG))
    watch.add_arguments(verb("watch", "jobs as they go on, until they are gone", watch.EPILOG, named="?"))
    log = verb("log", "what vTorque did for a job", LOG_EPILOG)
    log.add_argument("--level", choices=event_log.LEVELS, help="only lines of this level or a graver one")
    add_json(log, "for programs: a list of objects, one a line")
    console = verb("console", "what a job's guests wrote on their serial consoles", CONSOLE_EPILOG)
    console.add_argument("--guest", metavar="NAME", help="only this guest's")
    console.add_argument("--node", metavar="NODE", help="only the guests of this node")
    add_json(console, "for programs: lists of lines by guest")
    report = verb("report", "a picture of where a job's time went", REPORT_EPILOG)
    kind = report.add_mutually_exclusive_group(required=True)
    kind.add_argument("--svg", metavar="FILE", help="as a picture; - is standard output")
    kind.add_argument("--html", metavar="FILE", help="as a page with tables; - is standard output")
    saving = verb("checkpoint", "have the guests of a running job saved", checkpoint.EPILOG)
    saving.add_argument("--delete", action="store_true", help="remove what was saved of it (root)")
    verb("suspend", "save a running job, and free its nodes until it is released", checkpoint.SUSPEND_EPILOG)
    export.add_arguments(verb("export", "a job in the form of other programs", export.EPILOG))


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Do what was asked for.

    Args:
        call: as the parser read it.
        load: gives the site's policy, asked only for where a record is that is not here: what is here can be read
            whatever is wrong with it.

    Returns:
        The exit status.

    Raises:
        UserFault: there is no such record, or it is somebody else's.
    """
    place = job_record.RECORDS
    if call.verb == "list":
        _list(call, place)
        return 0
    if call.verb in ("watch", "checkpoint", "suspend"):
        return (watch if call.verb == "watch" else checkpoint).run(call, load)
    try:
        record = job_record.find(call.job, place, start=call.start)
    except NoRecord as error:
        record = _find_elsewhere(call, place, load, error)
    {"show": _print_record, "log": _log, "console": _console, "report": _report, "export": export.run}[call.verb](
        call, record
    )
    return 0


def _find_elsewhere(
    call: argparse.Namespace, place: pathlib.Path, load: t.Callable[[], Policy], error: NoRecord
) -> JobRecord:
    """Find a record by the id that the batch system knows, or say where it may be.

    Raises:
        UserFault: there is none here.
    """
    policy, _broken = load_usable(load)
    job_id = location.find_id(call.job, policy)
    try:
        if job_id and not job_id.startswith(f"{call.job}."):
            return job_record.find(job_id, place, start=call.start)
    except NoRecord:
        pass
    raise UserFault(
        error.what, error.why, (location.describe(job_id, policy) if job_id else "") or error.hint
    ) from error


def _list(call: argparse.Namespace, place: pathlib.Path) -> None:
    if call.last < 0:
        raise UserFault(f"--last {call.last}", "is not a number of jobs")
    more = 0
    if call.job:
        found = job_record.find_all(call.job, place)
    else:
        found, more = job_record.read_all(place, last=call.last)
    if call.json:
        print_json(call, [_facts(record) for record in found])
        return
    if not found:
        print("no records that you may read" if not call.job else "no records of it that you may read")
        print("(the record of a job comes to the front end when the job ends; vmgr job watch follows one that runs)")
        return
    rows = [
        (
            record.job_id,
            str(record.start),
            record.user or "-",
            record.name or "-",
            _when(record.began),
            _lasted(record),
            str(len(record.guests)) if record.guests else "-",
            ",".join(record.nodes) or "-",
            record.state,
            "-" if record.exit_status is None else str(record.exit_status),
        )
        for record in found
    ]
    _table(("job", "start", "user", "name", "began", "took", "guests", "nodes", "state", "status"), rows, "RLLLLRRLLR")
    if more:
        print(f"{more} older ones were not looked at: vmgr job list --last 0")


def _print_record(call: argparse.Namespace, record: JobRecord) -> None:
    if call.json:
        print_json(call, _facts(record))
        return
    print(headline(record))
    _print_indented(record.reasons)
    if record.wrong:
        print(f"  {record.wrong}")
    if record.request:
        print(f"  -vm {','.join(f'{key}={value}' for key, value in record.request.items())}")
    _print_indented([f"bare hosts: {', '.join(record.bare)}"] if record.bare else [])
    _print_indented([f"spare nodes: {', '.join(record.spares)}"] if record.spares else [])
    _print_indented([f"{by} took the place of {node}: {why}" for node, by, why in record.replaced])
    _print_indented([f"{event}: {clause}" for event, clause in record.survival.items()])
    _print_indented([f"{one.guest} moved {describe_move(one)}" for one in read_moves(record.raw)])
    if record.guests:
        _print_guests(record.guests)
    if record.phases:
        print()
        names, seconds = zip(*phase_figures(record), strict=True)
        _table(("phase", *names), [("seconds", *(f"{one:.1f}" for one in seconds))], "L" + "R" * len(names))
    bars = job_usage.draw(job_usage.all_uses(record), plain=not _has_blocks())
    bars += [energy] if (energy := job_usage.format_energy(record)) else []
    for heading, lines in (("used", bars), ("advice", job_usage.advise(record))):
        if lines:
            print(f"\n{heading}", *lines, sep="\n  ")


def _print_indented(found: t.Iterable[str]) -> None:
    for line in found:
        print(f"  {line}")


def _print_guests(guests: t.Sequence[Guest]) -> None:
    print()
    _table(GUEST_HEADINGS, [_guest_row(guest) for guest in guests], "LLLLRRRRRRRRL")
    for guest in guests:
        _print_notes(guest)


def _has_blocks() -> bool:
    """Return whether standard output can hold the characters of bars."""
    try:
        "".join(job_usage.BLOCKS).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _print_notes(guest: Guest) -> None:
    """Print what a table has no column for."""
    if guest.devices:
        print(f"  devices of the host in {guest.name or '-'}: {guest.devices}")
    if guest.networks:
        print(f"  networks of {guest.name or '-'}: {guest.networks}")
    if guest.updates_words:
        print(f"  security updates of {guest.name or '-'}: {guest.updates_words}")
    if guest.vcpu_cores:
        on = ", ".join(f"vCPU {vcpu} on {cores}" for vcpu, cores in enumerate(guest.vcpu_cores))
        print(f"  cores of {guest.name or '-'}: {on}; other threads on {guest.other_cores or '-'}")
    if guest.io_least:
        uses = [f"{guest.io_least} in any case"]
        if "io_cores_most" in guest.used:
            uses.append(f"at most {guest.used['io_cores_most']:.0f} used")
            uses.append(f"changed {guest.used.get('io_changes', 0):.0f} times")
        print(f"  virtual I/O of {guest.name or '-'}: cores {guest.other_cores or '-'}, {', '.join(uses)}")
    if guest.cells:
        parts = [cell.split(":") for cell in guest.cells]
        has = "; ".join(f"{mib} MiB of NUMA cell {cell} for vCPU {vcpus}" for cell, vcpus, mib in parts)
        pages = f", in pages of {guest.pages}" if guest.pages else ""
        print(f"  memory of {guest.name or '-'}: {has}{pages}")
    if guest.warm:
        print(f"  warm start of {guest.name or '-'}: {guest.warm}")
    if guest.side_channels:
        print(f"  side channels of {guest.name or '-'}: {guest.side_channels}")


def headline(record: JobRecord) -> str:
    """One line that says what became of the job."""
    guests, nodes = len(record.guests), len(record.nodes) - len(record.bare)
    parts = [f"job {record.job_id}", record.user or "-"]
    parts += [record.name] if record.name else []
    if nodes:
        each = (
            f" x {guests // nodes} guest{'s' if guests // nodes != 1 else ''}" if guests and not guests % nodes else ""
        )
        bare = f" + {len(record.bare)} bare" if record.bare else ""
        parts.append(f"{nodes} node{'s' if nodes != 1 else ''}{each}{bare}")
    state = record.state
    if record.exit_status is not None and state in ("finished", "guest lost"):
        state += f", exit status {record.exit_status}"
    parts.append(state)
    if record.start > 1:
        parts.append(f"start {record.start}")
    return "  ".join(parts)


def phase_figures(record: JobRecord) -> list[tuple[str, float]]:
    """Where the time went: the steps of the slowest guest, what was around them, the job, the end."""
    phases = record.phases
    found = [(name, seconds) for name, (_begin, seconds) in phases.items() if "." not in name and name != "epilogue"]
    guests: dict[str, float] = {}
    for guest in record.guests:
        for name, seconds in guest.seconds.items():
            guests[name] = max(guests.get(name, 0.0), seconds)
    found += sorted(guests.items(), key=lambda one: GUEST_PHASES.index(one[0]) if one[0] in GUEST_PHASES else 99)
    if "prologue" in phases and "epilogue" in phases:
        begin, seconds = phases["prologue"]
        found.append(("job", max(0.0, phases["epilogue"][0] - begin - seconds)))
    gone = [seconds for name, (_begin, seconds) in phases.items() if name.startswith("absent.")]
    found += [("gone", max(gone))] if gone else []
    found += [("epilogue", phases["epilogue"][1])] if "epilogue" in phases else []
    return found


def _log(call: argparse.Namespace, record: JobRecord) -> None:
    lines = console_files.read_lines(record.directory / layout.LOG)
    least = event_log.LEVELS.index(call.level or event_log.TRACE)
    found = [
        entry
        for entry in log_lines.read_lines(lines)
        if call.level is None or ("level" in entry and event_log.LEVELS.index(entry["level"]) >= least)
    ]
    if call.json:
        print_json(call, found)
        return
    for entry in found:
        for line in log_lines.format_entry(entry):
            print(line)


def _console(call: argparse.Namespace, record: JobRecord) -> None:
    chosen = console_files.choose_consoles(record, guest=call.guest, node=call.node)
    if call.json:
        print_json(call, {name: list(console_files.read_lines(path)) for name, path in chosen.items()})
        return
    for name, path in chosen.items():
        if len(chosen) > 1:
            print(f"==> {name} <==")
        for line in console_files.read_lines(path):
            print(line)
    away = {} if call.guest or call.node else console_files.consoles(record).elsewhere
    if away:
        print(f"vmgr: not here: {', '.join(f'{n} (on {node})' for n, node in away.items())}", file=sys.stderr)


def _report(call: argparse.Namespace, record: JobRecord) -> None:
    if call.svg is not None:
        name, text = call.svg, report.picture(record, headline(record))
    else:
        name = call.html
        text = report.page(
            record, headline(record), [_guest_row(guest) for guest in record.guests], phase_figures(record)
        )
    write_file(name, text)


def _facts(record: JobRecord) -> dict[str, t.Any]:
    """A record for programs: what was written, and what follows from it."""
    here = console_files.consoles(record).here
    return {
        **record.raw,
        "job_id": record.job_id,
        "start": record.start,
        "state": record.state,
        "wrong": record.wrong,
        "directory": str(record.directory),
        "consoles": {name: str(path) for name, path in here.items()},
        "use": [{**dataclasses.asdict(use), "share": round(use.share, 3)} for use in job_usage.all_uses(record)],
        "advice": job_usage.advise(record),
    }


def _guest_row(guest: Guest) -> tuple[str, ...]:
    used = guest.used
    return (
        guest.name or "-",
        guest.node or "-",
        guest.image or "-",
        guest.address or "-",
        "-" if guest.vcpus is None else str(guest.vcpus),
        "-" if guest.ram_mib is None else format_bytes_short(guest.ram_mib * 2**20),
        duration(used["cpu_s"]) if "cpu_s" in used else "-",
        *(
            format_bytes_short(used[key]) if used.get(key, -1) >= 0 else "-"
            for key in ("ram_peak_bytes", "read_bytes", "written_bytes", "received_bytes", "sent_bytes")
        ),
        guest.updates or "-",
    )


def duration(seconds: float) -> str:
    """Seconds as people say them: 0.42s, 12.3s, 5m02s, 5h41m."""
    if seconds < 60:
        return f"{seconds:.2f}s" if seconds < 10 else f"{seconds:.1f}s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m{int(seconds % 60):02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def _when(moment: float | None) -> str:
    if moment is None:
        return "-"
    try:
        return datetime.datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return "-"


def _lasted(record: JobRecord) -> str:
    if record.began is None or record.ended is None:
        return "-"
    return duration(max(0.0, record.ended - record.began))


def _table(headings: t.Sequence[str], rows: t.Sequence[t.Sequence[str]], sides: str) -> None:
    """A table for people; a column that no row fills is left out."""
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    filled = [any(row[i] not in ("", "-") for row in rows) for i in range(len(headings))]
    for heading, side, there in zip(headings, sides, filled, strict=True):
        if there:
            table.add_column(heading, justify="right" if side == "R" else "left", no_wrap=True)
    for row in rows:
        # as text: what a record holds is never markup
        table.add_row(*(Text(cell) for cell, there in zip(row, filled, strict=True) if there))
    # whoever reads a pipe wants the whole of it
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 10_000).print(table, crop=False)

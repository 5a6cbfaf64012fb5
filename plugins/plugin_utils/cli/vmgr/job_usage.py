# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job's guests used of what the job asked for, as bars, and what its user may change next time.

Pure functions of a record, and of the samples beside it.  A figure that is not there is left out, and never taken for
zero.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ....module_utils.job.records.guest_record import Guest
from ....module_utils.job.records.job_record import JobRecord
from ....module_utils.job.records.samples import series_file
from ....module_utils.job.records.samples.rates import GuestRates, rates_of
from ....module_utils.text import format_bytes_short, format_mib

BAR_CELLS = 24
BLOCKS = ("█", "░")
ASCII = ("#", ".")
MOST_GUESTS = 8
"""Of more guests, the ones that used most and least are drawn."""
MOST_ADVICE = 3
JUDGED_S = 60.0
"""A shorter job says nothing about the resources that it needs."""
IDLE_SHARE = 0.5
"""Advice is given where less than this share of the vCPUs worked."""
"""Of a node; more is no figure."""
LITTLE_MEMORY = 0.4
"""Advice is given where less than this share of the memory was ever touched."""
MUCH_WAITING = 0.1
"""Advice is given where vCPUs waited for more than this share of their time."""
MEMORY_MARGIN = 1.5
LEAST_MIB = 512
ALONE_SHARE = 0.9
"""Advice is given where one of several guests did more than this share of the work."""
TRAFFIC = {"disk": ("read_bw", "write_bw"), "net": ("receive_bw", "send_bw")}
LEAST_TRAFFIC = 100 << 20
"""Bytes: a job that moved less has no bar for it, since the guests' own start reads as much."""
LONG_START_S = 30.0
"""Advice is given where a start took longer than this, and longer than the job."""


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """Something that a guest was given, and how much of it was used.

    Attributes:
        guest: its name.
        kind: `vcpus`, `waits` (vCPUs that waited for a core), `memory`, `disk` or `net`.
        used: vCPUs on average, bytes at most, or bytes per second on average.
        given: vCPUs, or bytes; of `disk` and `net` the most bytes per second that a guest of the job has reached.
    """

    guest: str
    kind: str
    used: float
    given: float

    @property
    def share(self) -> float:
        """From 0 to 1: what a process of qemu needs beside its guest's memory is not more than the guest has."""
        return min(1.0, self.used / self.given)


def uses_of(record: JobRecord) -> tuple[Use, ...]:
    """Return what is known of the guests of a job that has ended, by rank.

    Args:
        record: of the start.
    """
    seconds = guest_seconds(record)
    found = []
    for guest in record.guests:
        if guest.vcpus and "cpu_s" in guest.used and seconds:
            found.append(Use(guest.name, "vcpus", min(guest.used["cpu_s"] / seconds, guest.vcpus), guest.vcpus))
        if guest.vcpus and "wait_s" in guest.used and seconds:
            found.append(Use(guest.name, "waits", min(guest.used["wait_s"] / seconds, guest.vcpus), guest.vcpus))
        if guest.ram_mib and guest.used.get("ram_peak_bytes"):
            found.append(Use(guest.name, "memory", guest.used["ram_peak_bytes"], guest.ram_mib * 2**20))
    return tuple(found)


def traffic_of(rates: t.Sequence[GuestRates]) -> tuple[Use, ...]:
    """Return how many bytes per second guests moved on average, measured by the most that one of them has reached.

    Args:
        rates: of the job's guests.
    """
    found = []
    for kind, names in TRAFFIC.items():
        moved: dict[str, list[tuple[float, float]]] = {}
        for guest in rates:
            for one in guest.intervals:
                known = [rate for rate in map(one.rates.__getitem__, names) if rate is not None]
                if known:
                    moved.setdefault(guest.name, []).append((one.end_s - one.begin_s, sum(known)))
        pieces = [piece for guest in moved.values() for piece in guest]
        if sum(seconds * rate for seconds, rate in pieces) < LEAST_TRAFFIC:
            continue
        most = max(rate for _seconds, rate in pieces)
        for name, its in moved.items():
            seconds = sum(one for one, _rate in its)
            found.append(Use(name, kind, sum(one * rate for one, rate in its) / seconds, most))
    return tuple(found)


def all_uses(record: JobRecord) -> tuple[Use, ...]:
    """Return what is known by a record and by the samples beside it, those of a guest together.

    Args:
        record: of the start.
    """
    series = series_file.read_series(record.directory)
    guests: dict[str, list[Use]] = {}
    for use in (*uses_of(record), *(traffic_of(rates_of(series)) if series else ())):
        guests.setdefault(use.guest, []).append(use)
    return tuple(use for of_guest in guests.values() for use in of_guest)


def guest_seconds(record: JobRecord) -> float:
    """Return the seconds that guests were there: from the last guest's start to the epilogue; 0.0: not known."""
    phases = record.phases
    if "prologue" not in phases or "epilogue" not in phases:
        return 0.0
    begins = [begin for name, (begin, _seconds) in phases.items() if name.startswith("present.")]
    return max(0.0, phases["epilogue"][0] - max(begins, default=phases["prologue"][0]))


def job_seconds(record: JobRecord) -> float:
    """Return the seconds from the prologue's end to the epilogue, in which the job itself ran; 0.0: not known."""
    phases = record.phases
    if "prologue" not in phases or "epilogue" not in phases:
        return 0.0
    begin, seconds = phases["prologue"]
    return max(0.0, phases["epilogue"][0] - begin - seconds)


def draw(uses: t.Sequence[Use], *, plain: bool) -> list[str]:
    """Return a line with a bar for each use.

    Args:
        uses: as `uses_of` returns them.
        plain: with ASCII characters alone, where the terminal has no others.
    """
    chosen = _choose(uses)
    width = max((len(use.guest) for use in chosen), default=0)
    lines, guest = [], ""
    for use in chosen:
        full, empty = ASCII if plain else BLOCKS
        cells = round(use.share * BAR_CELLS)
        drawn = full * cells + empty * (BAR_CELLS - cells)
        label = use.guest if use.guest != guest else ""
        lines.append(f"{label:{width}}  {use.kind:6}  {drawn}  {use.share * 100:3.0f} % of {_format_given(use)}")
        guest = use.guest
    left_out = len({use.guest for use in uses}) - len({use.guest for use in chosen})
    if left_out:
        lines.append(f"{left_out} guests between them are not listed: --json has all")
    return lines


def format_energy(record: JobRecord) -> str:
    """Return what the nodes of a job have measured of energy, as one line; "": none of them can.

    Args:
        record: of the start.
    """
    found = series_file.read_energy(record)
    if not found:
        return ""
    how = "measured" if all(how == "measured" for _joules, how in found) else "estimated by processor time"
    nodes = len(record.nodes) - len(record.bare)
    of = f", of {len(found)} of {nodes} nodes" if len(found) < nodes else ""
    return f"energy: {format_joules(sum(joules for joules, _how in found))}, {how}{of}"


def format_joules(joules: float) -> str:
    """Return energy as people write it: 820 J, 12.3 kJ, 4.56 MJ."""
    for unit, size in (("GJ", 1e9), ("MJ", 1e6), ("kJ", 1e3)):
        if joules >= size:
            return f"{joules / size:.3g} {unit}"
    return f"{joules:.0f} J"


def _format_given(use: Use) -> str:
    if use.kind == "waits":
        return f"{use.given:.0f} vCPU{'s' if use.given != 1 else ''}, {use.used:.1f} waited for a core on average"
    if use.kind == "vcpus":
        return f"{use.given:.0f} vCPU{'s' if use.given != 1 else ''}, {use.used:.1f} on average"
    if use.kind in TRAFFIC:
        return f"{format_bytes_short(use.given)}/s at most, {format_bytes_short(use.used)}/s on average"
    own = " with qemu itself" if use.used > use.given else ""
    return f"{format_bytes_short(use.given)}, {format_bytes_short(use.used)} at most{own}"


def _choose(uses: t.Sequence[Use]) -> list[Use]:
    """Return the uses of all guests, or of those with the largest and smallest shares where there are many."""
    shares: dict[str, float] = {}
    for use in uses:
        shares[use.guest] = max(shares.get(use.guest, 0.0), use.share)
    if len(shares) <= MOST_GUESTS:
        return list(uses)
    ranked = sorted(shares, key=lambda name: -shares[name])
    names = {*ranked[: MOST_GUESTS // 2], *ranked[-MOST_GUESTS // 2 :]}
    return [use for use in uses if use.guest in names]


def advise(record: JobRecord) -> list[str]:
    """Return at most three sentences that help the user to ask for what the job needs.

    Args:
        record: of a start; a job that has not run, or not long enough, gives none.
    """
    if record.state != "finished":
        return []
    seconds = job_seconds(record)
    found = [*_about_start(record, seconds)]
    if seconds >= JUDGED_S:
        uses = uses_of(record)
        found += [*_about_balance(record.guests), *_about_waits(uses), *_about_vcpus(uses), *_about_memory(uses)]
    return found[:MOST_ADVICE]


def _about_start(record: JobRecord, seconds: float) -> t.Iterator[str]:
    start = record.phases["prologue"][1] if "prologue" in record.phases else 0.0
    if 0 < seconds < start and start > LONG_START_S:
        yield (
            f"start: the guests took {start:.0f} s to start and the job ran for {seconds:.1f} s; "
            "several short steps in one job start them once"
        )


def _about_balance(guests: t.Sequence[Guest]) -> t.Iterator[str]:
    work = {guest.name: guest.used["cpu_s"] for guest in guests if "cpu_s" in guest.used}
    total = sum(work.values())
    if len(work) < 2 or len(work) != len(guests) or not total:
        return
    name, most = max(work.items(), key=lambda one: one[1])
    if most > ALONE_SHARE * total:
        yield (
            f"guests: {name} did {most / total * 100:.0f} % of the work of {len(work)} guests; "
            "does the program use all hosts of the job?"
        )


def _about_waits(uses: t.Sequence[Use]) -> t.Iterator[str]:
    most = max((use for use in uses if use.kind == "waits"), key=lambda use: use.share, default=None)
    if most is not None and most.share > MUCH_WAITING:
        yield (
            f"vCPUs: those of {most.guest} waited {most.share * 100:.0f} % of the time for a core of the node; "
            "vcpu_pinning=true gives each a core of its own"
        )


def _about_vcpus(uses: t.Sequence[Use]) -> t.Iterator[str]:
    """The busiest guest counts: the others are the same size."""
    vcpus = [use for use in uses if use.kind == "vcpus"]
    busiest = max(vcpus, key=lambda use: use.used, default=None)
    if busiest is None or busiest.share >= IDLE_SHARE or busiest.given < 2:
        return
    enough = max(1, math.ceil(busiest.used))
    if enough < busiest.given:
        yield f"vCPUs: {busiest.used:.1f} of {busiest.given:.0f} worked on average; vcpus={enough} would do"


def _about_memory(uses: t.Sequence[Use]) -> t.Iterator[str]:
    memory = [use for use in uses if use.kind == "memory"]
    largest = max(memory, key=lambda use: use.used, default=None)
    if largest is None or largest.share >= LITTLE_MEMORY:
        return
    given = round(largest.given / 2**20)
    wanted = max(LEAST_MIB, math.ceil(largest.used * MEMORY_MARGIN / 2**20 / LEAST_MIB) * LEAST_MIB)
    if wanted < given:
        yield (
            f"memory: at most {largest.share * 100:.0f} % of {format_mib(given)} was used; "
            f"ram={format_mib(wanted)} would do"
        )

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of what the guests of one start use, taken by the worker that watches them.

All figures but those of disks are the kernel's, which answers at once.  Disks are libvirt's to know, and behind it a
qemu may hang: a few threads query one guest at a time, and no guest again before it has answered.  The sampler waits
for no answer; one that comes late is in the next sample.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import re
import threading
import time
import typing as t

from ...errors import VTorqueError
from ...state import event_log
from ...state.layout import job_key
from ...wire import series
from ...wire.messages import GuestSpec, NodePart
from ..state.guest_file import GuestFile, read_guest_file
from ..state.settings import NodeSettings
from ..system import process_figures
from . import node_figures, textfile
from .energy import EnergyMeter
from .sample_file import SampleFile, was_alone

ANSWER_S = 0.5
"""Between the queries about disks and the sample."""
MAX_OPEN_QUERIES = 3
"""Guests with an open query at a time: libvirt takes five calls of a client, and one must be left for an end."""
ENERGY_EVERY_S = 300
"""Greatest time between two readings of energy: a counter of 262 kJ, at 800 W, wraps around not much later."""
SYS_NET = pathlib.Path("/sys/class/net")
TICKS_S = os.sysconf("SC_CLK_TCK")
_READ, _WRITTEN = re.compile(r"block\.[0-9]+\.rd\.bytes"), re.compile(r"block\.[0-9]+\.wr\.bytes")


class RunningSums:
    """Sums of a guest over all of its processes: one that returns from the disk has a process that counts from 0."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], float] = {}
        self._offset: dict[tuple[str, int], float] = {}

    def accumulate(self, name: str, figures: t.Sequence[float | None]) -> list[float | None]:
        """Return the figures of a guest since it began.

        Args:
            name: of the guest.
            figures: of its process now, in the order of `series.FIGURES`.
        """
        return [self._accumulate(name, number, figure) for number, figure in enumerate(figures)]

    def _accumulate(self, name: str, number: int, figure: float | None) -> float | None:
        if figure is None or series.FIGURES[number] == "memory_bytes":
            return figure
        key = (name, number)
        if figure < (last := self._last.get(key, 0)):
            self._offset[key] = self._offset.get(key, 0) + last
        self._last[key] = figure
        return round(figure + self._offset.get(key, 0), 3)

    @property
    def cpu_s(self) -> float:
        """Processor time of all guests, those that are gone too."""
        return sum(
            figure for table in (self._last, self._offset) for (_name, number), figure in table.items() if not number
        )


class DiskFigureSource(t.Protocol):
    """Reads the figures of disks (`domain.connection.Domains`)."""

    def figures(self, names: t.Collection[str], within_s: float | None) -> dict[str, dict[str, int]]:
        """Return libvirt's figures by guest."""


class DiskQueries:
    """Queries about disks, which run in threads; no caller waits for them."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._waiting: collections.deque[str] = collections.deque()
        self._asked: set[str] = set()
        self._answers: dict[str, dict[str, int]] = {}

    def start(self, domains: DiskFigureSource, names: t.Iterable[str]) -> None:
        """Start a query for each guest that has none open.

        Args:
            domains: a connection to libvirt.
            names: of guests.
        """
        new = [name for name in names if name not in self._asked]
        self._asked.update(new)
        self._waiting.extend(new)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _one in range(min(len(self._waiting), MAX_OPEN_QUERIES - len(self._threads))):
            thread = threading.Thread(target=self._work, args=(domains,), daemon=True, name="blocks")
            self._threads.append(thread)
            thread.start()

    def _work(self, domains: DiskFigureSource) -> None:
        while self._waiting:
            try:
                name = self._waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                self._answers.update(domains.figures([name], None))
            except VTorqueError:
                continue
            finally:
                self._asked.discard(name)

    def take(self) -> dict[str, dict[str, int]]:
        """Return the answers that have come since this was called last, by guest."""
        answers, self._answers = self._answers, {}
        return answers


class Sampler:
    """The samples of one start on this node.

    Args:
        part: whose guests they are.
        settings: NodeSettings of this node.
        guests: their directories.
        log: takes a line for the job's log.
    """

    def __init__(
        self,
        part: NodePart,
        settings: NodeSettings,
        guests: t.Iterable[pathlib.Path],
        log: event_log.Log,
    ) -> None:
        self._part, self._settings, self._log = part, settings, log
        self._key = job_key(part.job_id, part.start)
        wanted = settings.sample_s and settings.metrics != "off"
        self._guests = {one.name: one for path in guests if wanted and (one := read_guest_file(path))}
        self._specs = {spec.rank: spec for spec in part.guests}
        self._blocks = DiskQueries()
        self._energy = EnergyMeter() if self._guests and settings.sample_s <= ENERGY_EVERY_S else None
        self._began = self._next_at = time.monotonic()
        self._take_at: float | None = None
        self._disks: dict[str, tuple[float | None, float | None]] = {}
        self._sums = RunningSums()
        self._problem = ""
        self._file: SampleFile | None = None
        if self._guests and settings.metrics in ("record", "both"):
            named = {name: [one.rank, self._tag(one)] for name, one in self._guests.items()}
            head = {"began": round(time.time(), 3), "every_s": settings.sample_s, "guests": named}
            self._file = SampleFile(settings.record_dir(part.job_id, part.start), head, part.owner.uid)

    def due_s(self) -> float:
        """Seconds until `follow` has something to do."""
        if not self._guests:
            return float("inf")
        at = self._next_at if self._take_at is None else self._take_at
        return max(0.0, at - time.monotonic())

    def run_due(
        self, domains: DiskFigureSource | None, lost: t.Collection[str] = (), *, suspended: bool = False
    ) -> None:
        """Start queries about disks, or take a sample, whichever is due; nothing is waited for.

        Args:
            domains: the connection to libvirt; None: there is none, and disks are left out.
            lost: guests that are there no more.
            suspended: the guests stand still: what the node uses meanwhile is not theirs.
        """
        if not self._guests or self.due_s() > 0:
            return
        try:
            self._run_due(domains, lost, suspended=suspended)
        except Exception as error:  # whatever it is, the guests are watched on
            self._log(
                f"the guests are not sampled any more: {type(error).__name__}: {error}", event_log.WARNING, "metrics"
            )
            self._guests = {}
            textfile.remove(self._key, self._settings)

    def _run_due(self, domains: DiskFigureSource | None, lost: t.Collection[str], *, suspended: bool) -> None:
        if self._take_at is None:
            if domains is not None:
                self._blocks.start(domains, [name for name in self._guests if name not in lost])
            self._take_at = time.monotonic() + ANSWER_S
            return
        self._take_at = None
        self._take(lost, suspended=suspended)
        # one that was late is not made up for
        self._next_at = max(self._next_at + self._settings.sample_s, time.monotonic())

    def finish(self, lost: t.Collection[str] = ()) -> None:
        """Take the last sample, of what the kernel knows; afterwards nothing is sampled.

        Args:
            lost: guests that are there no more.
        """
        if self._guests:
            with contextlib.suppress(Exception):  # whatever it is, the guests are to go
                self._take(lost, last=True)
            self._guests = {}
            textfile.remove(self._key, self._settings)

    def _take(self, lost: t.Collection[str], *, last: bool = False, suspended: bool = False) -> None:
        at_s = round(time.monotonic() - self._began, 3)
        for name, counters in self._blocks.take().items():
            self._disks[name] = (_sum(counters, _READ), _sum(counters, _WRITTEN))
        figures = {name: self._read(one) for name, one in self._guests.items() if name not in lost}
        known = {name: self._sums.accumulate(name, found) for name, found in figures.items() if found is not None}
        self._log(f"sample at {at_s:.0f} s: {len(known)} of {len(self._guests)} guests", event_log.TRACE, "metrics")
        energy = None
        if self._energy is not None:
            self._energy.read(self._sums.cpu_s, TICKS_S, suspended=suspended)
            if self._energy.node_j is not None and self._energy.share_j is not None:
                energy = [round(self._energy.node_j, 3), round(self._energy.share_j, 3)]
        try:
            if self._file is not None:
                self._file.append({"at": at_s, "guests": known, "energy": energy}, last=last)
            if textfile.wanted(self._settings) and not last:
                textfile.write(self._key, textfile.format_samples(self._samples(known, energy)), self._settings)
            problem = ""
        except (OSError, VTorqueError) as error:
            problem = str(error)
        if problem and problem != self._problem:
            self._log(f"figures of guests were not written: {problem}", event_log.WARNING, "metrics")
        self._problem = problem
        node_figures.write_node(self._settings)

    def _read(self, guest: GuestFile) -> list[float | None] | None:
        """The figures of a guest in the order of `series.FIGURES`; None: its process has ended."""
        pid = process_figures.read_pid(guest.name)
        found = process_figures.read_figures(pid) if pid is not None else None
        if found is None:
            return None
        cards = [SYS_NET / tap / "statistics" for tap in self._settings.tap_names(guest.slot)]
        # what the node sends into a device is what the guest receives
        received, sent = _count(cards, "tx_bytes"), _count(cards, "rx_bytes")
        waited = None if found.wait_s is None else round(found.wait_s, 3)
        disks = self._disks.get(guest.name, (None, None))
        return [round(found.cpu_s, 3), waited, found.memory_bytes, *disks, received, sent]

    def _samples(
        self, known: t.Mapping[str, t.Sequence[float | None]], energy: t.Sequence[float] | None
    ) -> t.Iterator[textfile.Sample]:
        node = self._settings.node_name
        for name, figures in known.items():
            guest = self._guests[name]
            labels = (("jobid", self._part.job_id), ("rank", str(guest.rank)), ("node", node))
            for metric, figure in zip(textfile.OF_FIGURES, figures, strict=True):
                if figure is not None:
                    yield textfile.Sample(metric, labels, figure)
            spec = self._specs.get(guest.rank)
            if spec is not None:
                yield textfile.Sample("vtorque_guest_vcpus", labels, spec.vcpus)
                yield textfile.Sample("vtorque_guest_memory_limit_bytes", labels, spec.ram_mib * 2**20)
            more = (("user", self._part.owner.user), ("image", _image(spec)), ("tag", self._tag(guest)))
            yield textfile.Sample("vtorque_guest_info", (*labels, *more), 1)
        if energy is not None:
            alone = was_alone(self._settings.record_dir(self._part.job_id, self._part.start))
            source, joules = (series.MEASURED, energy[0]) if alone else (series.ESTIMATED, energy[1])
            job = (("jobid", self._part.job_id), ("node", node), ("source", source))
            yield textfile.Sample("vtorque_job_energy_joules_total", job, joules)

    def _tag(self, guest: GuestFile) -> str:
        return series.format_tag(
            self._settings.metrics_tag,
            user=self._part.owner.user,
            job_id=self._part.job_id,
            node=self._settings.node_name,
            rank=guest.rank,
        )


def _image(spec: GuestSpec | None) -> str:
    """The name of an image of the pool; the path of a user's own is theirs to choose, and no label."""
    return "" if spec is None else "own" if spec.own_image else spec.image


def _sum(counters: t.Mapping[str, int], pattern: re.Pattern[str]) -> float | None:
    found = [figure for key, figure in counters.items() if pattern.fullmatch(key)]
    return sum(found) if found else None


def _count(cards: t.Iterable[pathlib.Path], name: str) -> int | None:
    """The sum of a counter of a guest's cards; None: none of them can be read."""
    found = []
    for card in cards:
        with contextlib.suppress(OSError, ValueError):
            found.append(int((card / name).read_text(encoding="ascii")))
    return sum(found) if found else None

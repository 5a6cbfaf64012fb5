# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual I/O of a start gets more of its cores under load, and gives them back: in the worker that watches its guests.

Nothing of the guests depends on it.  When it ends, threads stay where they are, within the start's own cores.
"""

from __future__ import annotations

import pathlib
import re
import time
import typing as t

from ...errors import VTorqueError
from ...state.layout import job_key
from ...wire.messages import NodePart
from ..placement import claims, threads
from ..placement.pins import Pins
from ..state.settings import NodeSettings
from ..system import cpus
from . import interrupts
from .balance import Load, State, decide, measure
from .changes import LIMIT, Changes

ROUND_S = 1.0
LOOK_ROUNDS = 10
"""Between two proofs that threads are where they should be: an administrator or a program may have moved them."""
_VCPU = re.compile(rb"(CPU [0-9]{1,5}|ALL CPUs)/(KVM|TCG)")
Processes = tuple[int, tuple[int, ...]]
"""The number of a guest's qemu, and those of what serves it."""


class _Guest:
    """A guest, its cores, and its threads as they were found last."""

    def __init__(self, directory: pathlib.Path, pins: Pins) -> None:
        self.directory, self.pins = directory, pins
        self.processes: Processes | None = None
        self.of_kernel: tuple[int, ...] = ()

    @property
    def lives(self) -> bool:
        return self.processes is not None and (threads.PROC / str(self.processes[0])).exists()


class Balancer:
    """The cores for virtual I/O of one start on this node.

    Args:
        part: whose guests they are.
        settings: NodeSettings of this node.
        guests: their directories.
        log: takes a line for the job's log.
        find: finds the processes of a guest, by its directory.
        is_alone: says whether the job has this node for itself.
    """

    def __init__(
        self,
        part: NodePart,
        settings: NodeSettings,
        guests: t.Iterable[pathlib.Path],
        log: t.Callable[[str], None],
        find: t.Callable[[pathlib.Path], Processes | None],
        is_alone: t.Callable[[], bool],
    ) -> None:
        self._key, self._settings, self._log = job_key(part.job_id, part.start), settings, log
        self._find, self._is_alone = find, is_alone
        found = ((path, claims.read_pins(path)) for path in guests)
        self._guests = [_Guest(path, pins) for path, pins in found if pins is not None and pins.io]
        self._io = self._guests[0].pins.io if self._guests else ()
        least = self._guests[0].pins.io_least if self._guests else 0
        record = settings.record_dir(part.job_id, part.start)
        self._changes = Changes(record, self._io, least, part.owner.uid)
        self._least, self._state = least, State(least)
        self._irqs: tuple[int, ...] | None = None
        self._before: dict[int, float] = {}
        self._before_at = self._next_at = time.monotonic()
        self._rounds = 0
        self._problems: set[str] = set()

    def due_s(self) -> float:
        """Seconds until `follow` has something to do."""
        return max(0.0, self._next_at - time.monotonic()) if self._guests else float("inf")

    def follow(self, away: t.Container[str] = (), *, suspended: bool = False) -> None:
        """Look at the load of a round, as it is due, and act on it.

        Args:
            away: guests that are lost, or whose memory is on the disk.
            suspended: the job is: others may have the node meanwhile, and its interrupts.
        """
        if not self._guests or self.due_s() > 0:
            return
        try:
            self._follow([guest for guest in self._guests if guest.directory.name not in away], suspended=suspended)
        except Exception as error:  # whatever it is, the guests are watched on
            self._log(f"cores for virtual I/O stay as they are from now on: {type(error).__name__}: {error}")
            self._guests = []

    def _follow(self, guests: t.Sequence[_Guest], *, suspended: bool) -> None:
        if not self._rounds:
            self._changes.begin()
        is_place_due = self._rounds % LOOK_ROUNDS == 0
        self._rounds += 1
        for guest in guests:
            found = not guest.lives
            if found:
                guest.processes, guest.of_kernel = self._find(guest.directory), ()
            if (is_place_due or found) and guest.processes is not None:
                self._place(guest)
        if suspended:
            self._irqs = None
            interrupts.put_back(self._key, self._settings)
        elif is_place_due:
            if self._irqs is None and self._is_alone():
                self._irqs = interrupts.find_interrupts(self._settings.bridge)
            self._move_interrupts()  # again and again: irqbalance may have moved them
        now = time.monotonic()
        wanted_s = {task: seconds for guest in guests for task, seconds in _wanted_s(guest)}
        # a thread that was not there when the round began is measured from the next one on
        common = {task: seconds for task, seconds in wanted_s.items() if task in self._before}
        load = measure(self._before, common, max(0.1, now - self._before_at)) if self._before else Load(0.0, 0)
        self._before, self._before_at, self._next_at = wanted_s, now, now + ROUND_S
        self._act(decide(self._state, load, self._least, len(self._io)), load, guests)

    def _act(self, state: State, load: Load, guests: t.Sequence[_Guest]) -> None:
        before, self._state = self._state.used, state
        if state.used == before:
            return
        for guest in guests:
            if guest.processes is not None:
                self._place(guest)
        self._move_interrupts()
        self._changes.add(time.time(), state.used, load.cores)
        if not self._changes.is_full:
            on = cpus.format_cores(self._io[: state.used])
            self._log(f"virtual I/O on cores {on}, {state.used} in place of {before}: it wanted {load.cores:.2f} cores")
        else:
            self._log_once(f"virtual I/O has changed its cores {LIMIT} times: further changes are only counted")

    def _place(self, guest: _Guest) -> None:
        """Let the threads of a guest run where they should, all of them, and say which were elsewhere."""
        if guest.processes is None:
            return
        qemu, servers = guest.processes
        pins = guest.pins.with_io(self._state.used)
        try:
            threads.place_threads(guest.directory.name, qemu, servers, pins, exactly=True)
        except VTorqueError as fault:
            if guest.lives:
                self._log_once(str(fault))
        guest.of_kernel = threads.read_kernel_threads(qemu)

    def _move_interrupts(self) -> None:
        if self._irqs:
            cores = self._io[: self._state.used]
            moved = interrupts.move(self._irqs, cores, self._key, self._settings)
            some = f"{len(moved)} of {len(self._irqs)} interrupts of the node's network card"
            self._log_once(f"{some} come to the cores for virtual I/O while the job has the node")

    def _log_once(self, text: str) -> None:
        if text not in self._problems and len(self._problems) < LIMIT:
            self._problems.add(text)
            self._log(text)


def _wanted_s(guest: _Guest) -> t.Iterator[tuple[int, float]]:
    """How long each thread of virtual I/O ran, or was ready and waited for a core: all of a guest's but its vCPUs."""
    if guest.processes is None:
        return
    qemu, servers = guest.processes
    places = [threads.PROC / str(number) / "task" for number in (qemu, *servers)]
    tasks = [path for place in places for path in _entries(place)]
    for path in (*tasks, *(threads.PROC / str(number) for number in guest.of_kernel)):
        try:
            if not _VCPU.fullmatch((path / "comm").read_bytes().strip()):
                ran_ns, waited_ns, _slices = (path / "schedstat").read_bytes().split()
                yield int(path.name), (int(ran_ns) + int(waited_ns)) / 1e9
        except (OSError, ValueError):  # it ended meanwhile
            continue


def _entries(place: pathlib.Path) -> t.Iterator[pathlib.Path]:
    try:
        yield from place.iterdir()
    except OSError:
        return

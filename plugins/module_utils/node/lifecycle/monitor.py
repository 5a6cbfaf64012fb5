# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that are ready are watched for the life of the job: one that ends is lost, and that is said.

So is one that is paused, unless that was ordered (`pausing.py`).

That libvirt does not answer is never "the guest is gone".  What proves it: a report of libvirt, or the kernel's that
the guest's process has ended, or the virtiofsd of one of its mounts, which hang from then on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import threading
import time

from ...errors import VTorqueError
from ...state import event_log, records, shell_message
from ...state.layout import job_key
from ...state.records import LostRecord
from ...system.process.signals import SignalRecorder
from ...text import printable
from ...wire.messages import VERSION, LostGuest
from ..domain.connection import Domains
from ..domain.events import DomainEvent
from ..guest.console import Console
from ..io_cores.balancer import Balancer
from ..state import moves
from ..state.start_lock import OverWatch
from ..system import cpus
from ..telemetry.sample_file import was_alone
from ..telemetry.sampler import Sampler
from . import guest_processes as lifelines
from .builder import BuildRequest, readable
from .guest_processes import Lifeline
from .handover import WorkerEnd
from .loss_report import LossReporter
from .pausing import Follower, Pausing

FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 30.0
"""Between two attempts to reach a libvirt that was lost."""
WORD_S = 1.0
"""How long after the end of a guest's process libvirt may say why it ended; a guest that shuts down ends soon."""
CPUSETS_LOOK_S = 1.0
"""Between two looks for the cpuset of a job."""
CPUSETS_S = 600.0
"""For a job to get its cpuset: the batch system makes it when the hooks of all its nodes have ended."""
GIVEN_UP = "whoever asked for them went away, and nobody told them of their job"
_ENDED = {"stopped", "crashed"}
REASON_LIMIT, WORDS_LIMIT = 500, 4000
"""Characters that a mother superior takes of each (`LostGuest`)."""


@dataclasses.dataclass
class _Guest:
    """One guest, and what it needs, its own process first; one that is away has none by an order of ours."""

    name: str
    directory: pathlib.Path
    lifelines: list[Lifeline]
    lost: bool = False
    away: bool = False

    @property
    def itself(self) -> Lifeline:
        return self.lifelines[0]

    @property
    def ended(self) -> Lifeline | None:
        """What of it has ended; a guest that ends takes every virtiofsd with it, which may be heard first."""
        return next((one for one in self.lifelines if one.ended_at is not None), None)

    @property
    def lost_at(self) -> float | None:
        """When it will be told, unless libvirt tells more before."""
        if self.lost or self.away or (ended := self.ended) is None or ended.ended_at is None:
            return None
        return ended.ended_at + WORD_S


class _Connecting:
    """One attempt to reach libvirt, in a thread: a daemon that accepts and stays silent keeps nobody else waiting."""

    def __init__(self, uri: str) -> None:
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._result: Domains | None = None
        self._uri = uri
        threading.Thread(target=self._work, daemon=True, name="libvirt-connect").start()

    def _work(self) -> None:
        try:
            with contextlib.suppress(VTorqueError):
                domains = Domains(self._uri, connect_s=float("inf"))
                domains.listen()
                self._result = domains
        finally:
            os.eventfd_write(self._bell, 1)

    def fileno(self) -> int:
        return self._bell

    def result(self) -> Domains | None:
        """Once `fileno` is readable: a connection that listens, or None."""
        os.close(self._bell)
        return self._result


class Watching:
    """The guests of one start on this node.

    Args:
        request: by which they were created.
        log: takes a line for the job's log.

    Attributes:
        domains: the connection to libvirt, None while there is none.
    """

    def __init__(self, request: BuildRequest, log: event_log.Log) -> None:
        part, settings = request.part, request.settings
        self._part, self._settings, self._log, self._tell = part, settings, log, request.tell
        self._cores, self._cpusets = request.cores, request.cpusets
        self._cpusets_until, self._cpusets_at = time.monotonic() + CPUSETS_S, 0.0
        self._telling: LossReporter | None = None
        self._key = job_key(part.job_id, part.start)
        self.domains: Domains | None = None
        self._connecting: _Connecting | None = None
        self._retry_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        directory = settings.start_dir(part.job_id, part.start)
        self._directory = directory
        needed = lifelines.of_guests(directory, settings, part.owner)
        self._guests = {path.name: _Guest(path.name, path, some) for path, some in needed.items()}
        self._place = settings.run_dir / "jobs" / self._key
        self._words = shell_message.Listener(self._place)
        self._pausing = Pausing(part, settings, self._guests, log, self._place)
        self._follower = Follower(request.follow, self._place, log, max(0, part.checkpoint_min) * 60.0)
        self._sampler = Sampler(part, settings, needed, log)
        record = settings.record_dir(part.job_id, part.start)
        self._leaving = moves.Leaving(directory, record)
        self._io = Balancer(part, settings, needed, log, self._find_processes, lambda: was_alone(record))

    def run(self, over: OverWatch, noted: SignalRecorder, held: WorkerEnd) -> str:
        """Watch until the start is over, this process is told to end, or the guests are given up.

        Returns:
            Which of them, in words.
        """
        moves.save_part(self._directory, self._part)
        while True:
            self._connect()
            others = (over.fileno(), noted.fileno(), *held.filenos())
            heard = readable((*others, *self._filenos()), self._due_s())
            # first: what ends because the start is over is not lost
            if over.over():
                return "the start is over"
            if noted.first_signal():
                return f"told by {noted.first_signal()}"
            if held.is_abandoned():
                return GIVEN_UP
            self._handle_events(heard)
            self._stay_behind()
            self._confine()
            lost = [name for name, guest in self._guests.items() if guest.lost or name in self._leaving.names]
            self._pausing.follow(self.domains, lost)
            self._sampler.run_due(self.domains, [*lost, *self._pausing.away], suspended=self._pausing.suspended)
            self._note_away()
            self._io.follow((*lost, *self._pausing.away), suspended=self._pausing.suspended)
            if self._telling is not None:
                self._telling.go_on()

    def _stay_behind(self) -> None:
        """A guest whose move has ended, and that has not left, is here; or it is lost."""
        for name in self._leaving.finish_moves():
            self._lose_unknown(name, "it did not come to the node to which it was moved")

    def _lose_unknown(self, name: str, reason: str) -> None:
        with contextlib.suppress(VTorqueError):
            if self.domains is not None and self.domains.facts(name) is None:
                self._lose(self._guests[name], reason)

    def _find_processes(self, guest: pathlib.Path) -> tuple[int, tuple[int, ...]] | None:
        """The processes of a guest; None: it has none, or nobody can look."""
        with contextlib.suppress(OSError, VTorqueError):
            return lifelines.processes_of(guest, self._settings)
        return None

    def _note_away(self) -> None:
        """Who goes to the disk has no process that could be lost; who has come back has a new one."""
        away = self._pausing.away
        back = [name for name, guest in self._guests.items() if guest.away and name not in away]
        for guest in self._guests.values():
            guest.away = guest.name in away
        if not back:
            return
        found = lifelines.of_guests(self._directory, self._settings, self._part.owner)
        for path, some in found.items():
            if path.name in back:
                self._guests[path.name].lifelines, some = some, self._guests[path.name].lifelines
            for one in some:
                one.close()
        for name in back:  # or qemu has ended with a part of its memory on the disk
            self._lose_unknown(name, "libvirt no longer knows it")

    def end_samples(self) -> None:
        """Take the last sample, while the guests are still there."""
        self._sampler.finish([name for name, guest in self._guests.items() if guest.lost])

    def end_pause(self) -> None:
        """Let the guests of a start that is over go on: what is done in them before they go needs them."""
        self._pausing.follow(self.domains, over=True)

    def close(self) -> None:
        """Let go of libvirt and of the processes."""
        self._drop()
        self._words.close()
        self._follower.close()
        self._pausing.close()
        if self._telling is not None:
            self._telling.close()
        for guest in self._guests.values():
            self._forget_processes(guest)

    def _filenos(self) -> list[int]:
        needed = [one for guest in self._guests.values() for one in guest.lifelines]
        found = [one.process for one in needed if one.process is not None and one.ended_at is None]
        if self.domains is not None:
            found.append(self.domains.fileno())
        if self._connecting is not None:
            found.append(self._connecting.fileno())
        found += (*self._words.filenos(), *self._follower.filenos(), *self._pausing.filenos())
        return found + (self._telling.filenos() if self._telling is not None else [])

    def _due_s(self) -> float:
        due = [guest.lost_at for guest in self._guests.values() if guest.lost_at is not None]
        if self.domains is None and self._connecting is None:
            due.append(self._retry_at)
        if self._telling is not None:
            due.append(time.monotonic() + self._telling.due_s())
        if self._cpusets and self.domains is not None:
            due.append(self._cpusets_at)
        due += [time.monotonic() + one.due_s() for one in self._timed()]
        return max(0.0, min(due) - time.monotonic()) if due else float("inf")

    def _timed(self) -> tuple[Pausing | Follower | Sampler | Balancer | moves.Leaving, ...]:
        return self._pausing, self._follower, self._sampler, self._io, self._leaving

    # -- libvirt

    def _connect(self) -> None:
        if self.domains is None and self._connecting is None and time.monotonic() >= self._retry_at:
            self._connecting = _Connecting(self._settings.libvirt_uri)

    def _handle_events(self, heard: set[int]) -> None:
        if heard.intersection(self._words.filenos()) and (message := self._words.receive_message()):
            self._log(f"the job's shell: {message}")
        self._follower.handle_events(heard)
        if self._connecting is not None and self._connecting.fileno() in heard:
            self.domains, self._connecting = self._connecting.result(), None
            self._check_guests()
        if self.domains is not None and self.domains.fileno() in heard:
            for event in self.domains.events():
                self._take(event)
        now = time.monotonic()
        for guest in self._guests.values():
            for one in guest.lifelines:
                if one.process in heard and one.ended_at is None:
                    one.ended_at = now
            if guest.ended is not None and guest.lost_at is not None and now >= guest.lost_at:
                self._lose(guest, guest.ended.how)

    def _check_guests(self) -> None:
        """What happened while nobody listened; each attempt that fails is followed by a longer pause."""
        if self.domains is None:
            self._later()
            return
        try:
            states = {name: self.domains.facts(name) for name in self._guests}
        except VTorqueError:
            self._drop()
            self._later()
            return
        self._pause_s = FIRST_PAUSE_S
        self._log(f"worker {os.getpid()} watches the guests of start {self._key}")
        for name, facts in states.items():
            guest = self._guests[name]
            if guest.away or self._leaving.begins(name):
                continue
            if facts is not None and facts.state == "paused" and not self._pausing.stands_still(name):
                self._lose(guest, "it is paused")
            elif facts is None and (guest.itself.process is None or guest.itself.ended_at):
                self._lose(guest, "libvirt no longer knows it")
            elif facts is None:
                self._log(f"libvirt does not know guest {name}, whose process lives", event_log.WARNING)

    def _later(self) -> None:
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)

    def _drop(self) -> None:
        domains, self.domains = self.domains, None
        self._pausing.forget_events()
        if domains is not None:
            domains.close()

    def _take(self, event: DomainEvent) -> None:
        if event.kind == "lost":
            self._log(f"libvirt was lost ({event.reason or 'no reason'}); its guests may live", event_log.WARNING)
            self._drop()
            self._later()
        guest = self._guests.get(event.name)
        if guest is None or (guest.away and event.kind != "suspended") or self._leaving.begins(guest.name):
            return
        if event.kind == "shutdown":  # `stopped` follows, and says whether the guest or somebody else did it
            guest.itself.ended_at = guest.itself.ended_at or time.monotonic()
            guest.itself.how = event.reason or guest.itself.how
        elif event.kind in _ENDED:
            self._lose(guest, event.reason or event.kind)
        elif event.kind == "suspended" and not self._pausing.is_requested(event):
            self._lose(guest, f"it was paused: {event.reason}" if event.reason else "it was paused")

    # -- where they run

    def _confine(self) -> None:
        """Keep the guests in the cpuset of their job, as soon as the batch system has made it."""
        if not self._cpusets or self.domains is None or time.monotonic() < self._cpusets_at:
            return
        self._cpusets_at = time.monotonic() + CPUSETS_LOOK_S
        try:
            cores = cpus.of_groups(self._cpusets)
            if cores and not (self._cores and set(self._cores) <= set(cores)):
                for guest in self._guests.values():
                    if not guest.lost and guest.name not in self._leaving.names:
                        self.domains.pin(guest.name, cores)
                lifelines.confine(self._key, self._settings, cores)
                before = cpus.format_cores(self._cores)
                self._log(f"guests stay on the job's cores {cpus.format_cores(cores)}, and not on {before}")
        except (OSError, VTorqueError) as error:
            self._log(f"guests are not on the job's cores, it is tried again: {error}", event_log.WARNING)
            self._cpusets_at = time.monotonic() + LAST_PAUSE_S
            return
        if cores:
            self._cpusets = ()
        elif time.monotonic() > self._cpusets_until:
            self._log(f"the job has no cpuset: its guests stay on cores {cpus.format_cores(self._cores)}")
            self._cpusets = ()

    # -- what is said

    def _lose(self, guest: _Guest, reason: str) -> None:
        if self._leaving.begins(guest.name):
            for one in guest.lifelines:
                if one.ended_at is not None:
                    one.close()
                    one.ended_at = None
            return
        self._forget_processes(guest)
        if guest.lost:
            return
        guest.lost = True
        console = Console(guest.directory / "console.log", token="")
        with contextlib.suppress(OSError, VTorqueError):
            console.read()
        console.close()
        last_lines = console.last_output()
        self._log(f"guest {guest.name} is lost: {reason}; {last_lines or 'its console is silent'}", event_log.WARNING)
        if self._tell:
            self._notify_superior(guest.name, reason, last_lines)
            return
        lost = LostRecord(guest.name, self._settings.node_name, reason, last_lines, round(time.time(), 3))
        try:
            records.write_lost(self._place, lost, reader_uid=self._part.owner.uid)
        except (OSError, VTorqueError) as error:
            self._log(f"lost.json was not written: {error}", event_log.WARNING)

    def _notify_superior(self, name: str, reason: str, last_lines: str) -> None:
        """The first word ends the job: there is no second."""
        if self._telling is None:
            part = self._part
            lost = LostGuest(
                VERSION,
                "lost",
                part.job_id,
                part.start,
                part.node,
                name,
                printable(reason)[:REASON_LIMIT],
                printable(last_lines)[-WORDS_LIMIT:],
            )
            self._telling = LossReporter(self._tell, lost, self._log)

    @staticmethod
    def _forget_processes(guest: _Guest) -> None:
        for one in guest.lifelines:
            one.close()

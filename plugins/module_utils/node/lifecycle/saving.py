# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that stand still go to the node's disk, and come back from it.

Both take as long as the disk needs for a guest's memory, so a thread does them; the worker hears when it has ended.
What is ordered stands in the guest's directory first (`state/saved_memory.py`): the end of a domain that we have saved
is no loss.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import threading
import typing as t

from ...eligibility.guest_saving import objections_to_saving
from ...errors import NodeFault, VTorqueError
from ...state import event_log
from ...state.layout import job_key
from ...system.clock import Deadline
from ...time_budget import RETURN_LOCK_S, SAVING_END_S
from ...wire.messages import GuestSpec, NodePart
from ..cache import disk_space
from ..domain import usage
from ..domain.connection import Domains
from ..domain.domain_xml import memory_bytes, unsavable_parts
from ..state import saved_memory, slots, start_lock
from ..state.guest_file import read_guest_file
from ..state.settings import NodeSettings
from ..system import memory, side_channels
from . import room

HERE, AWAY, UNKNOWN, STAYS = "here", "away", "unknown", "stays"
"""Where a guest is: in memory; on the disk, or on its way from or to it; one of both, since libvirt was lost while it
was saved; in memory, because it cannot be saved."""


class Saving:
    """Where the guests of one start are while their job is suspended.

    Args:
        part: whose guests they are.
        settings: NodeSettings of this node.
        names: of the guests.
        log: takes a line for the job's log.
    """

    def __init__(self, part: NodePart, settings: NodeSettings, names: t.Iterable[str], log: event_log.Log) -> None:
        self._settings, self._log = settings, log
        self._key = job_key(part.job_id, part.start)
        self._directory = settings.start_dir(part.job_id, part.start)
        self._specs: dict[int, GuestSpec] = {spec.rank: spec for spec in part.guests}
        self._places = dict.fromkeys(names, HERE)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._done: list[tuple[str, str]] = []
        self._used: dict[str, usage.GuestUse] = {}
        self._lack = ""
        self._over = False
        self.returning = False
        """Whether what was begun last is the return of guests, and not their saving."""

    def fileno(self) -> int:
        """Readable when a guest was saved or came back."""
        return self._bell

    @property
    def busy(self) -> bool:
        """Return whether guests are on their way."""
        return self._thread is not None

    @property
    def away(self) -> tuple[str, ...]:
        """The guests that are not in memory, or not for long."""
        return tuple(name for name, place in self._places.items() if place in (AWAY, UNKNOWN))

    @property
    def is_unknown(self) -> bool:
        """Return whether libvirt was lost while a guest was saved, so that it must be looked for."""
        return UNKNOWN in self._places.values()

    def can_go(self, names: t.Iterable[str]) -> tuple[str, ...]:
        """Return which of these guests are in memory and may be saved, or must be looked for."""
        return tuple(name for name in names if self._places[name] in (HERE, UNKNOWN))

    def stay_again(self) -> None:
        """What kept guests in memory is looked for anew at the next suspension."""
        self._places = {name: HERE if place == STAYS else place for name, place in self._places.items()}

    def save(self, domains: Domains, names: t.Sequence[str]) -> None:
        """Begin to save guests that stand still, one after the other; what is ordered of all is written first."""
        if not names:
            return
        orders = [(name, lambda name=name: self._order(domains, name)) for name in names]
        saves = [(name, lambda name=name: self._save(domains, name)) for name in names]
        self.returning = False
        self._begin([*orders, *saves])

    def bring_back(self, domains: Domains) -> bool:
        """Begin to bring back what is away; False: this node has no room for it now, and that is in the log.

        Raises:
            VTorqueError: it is not known whether it has.
            OSError: it was not noted that they return.
        """
        names = self.away
        taken = room.lack_of_addresses(self._settings, self._key)  # before the lock, for which other starts wait
        with start_lock.lock_alone(
            self._settings.run_dir / "locks" / slots.LOCK, self._settings, Deadline.after(RETURN_LOCK_S)
        ):
            lack = room.lack(self._settings, self._key, domains) or taken
            if not lack:
                for name in names:
                    saved_memory.order_return(self._directory / name)
        if lack:
            if lack != self._lack:
                self._log(f"saved guests stay on the disk: {lack}", event_log.WARNING, "suspension")
            self._lack = lack
            return False
        self._lack = ""
        self.returning = True
        self._begin([(name, lambda name=name: self._restore(domains, name)) for name in names])  # type: ignore[misc]
        return True

    def update(self) -> bool:
        """Take in what the thread has done; returns whether it has ended since."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return False
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for name, place in self._done:
            self._places[name] = place
        self._done.clear()
        return True

    def abandon(self, domains: Domains) -> None:
        """The start is over: what is on its way ends now, so that nothing is written where all is removed."""
        self._over = True
        if self._thread is None:
            return
        for name in self.away:
            with contextlib.suppress(VTorqueError):  # whoever removes the start says it
                domains.destroy(name)
        self._thread.join(SAVING_END_S)

    def close(self) -> None:
        """Nobody listens any more; what is on its way ends with the domain."""
        if self._thread is None:
            os.close(self._bell)

    def _begin(self, works: t.Sequence[tuple[str, t.Callable[[], str]]]) -> None:
        for name, _work in works:
            self._places[name] = AWAY

        def run() -> None:
            try:
                for name, work in works:
                    self._done.append((name, work()))
            finally:
                os.eventfd_write(self._bell, 1)

        self._thread = threading.Thread(target=run, daemon=True, name="saving")
        self._thread.start()

    # -- in the thread

    def _order(self, domains: Domains, name: str) -> str:
        """Note that a guest is about to be saved, where it can be and its memory has room."""
        guest = self._directory / name
        try:
            facts = domains.facts(name)
            if facts is not None and saved_memory.is_away(guest) and domains.is_saving(name):
                return UNKNOWN  # libvirt was silent, and writes the file all the same
        except NodeFault as error:
            return self._note_unknown(name, error)
        except VTorqueError:  # it has ended between the two questions
            return UNKNOWN
        try:
            if facts is None:  # an attempt of which nobody heard the end
                return self._find_saved(guest)
            saved_memory.forget(guest)  # what such an attempt has left counts as taken, and may not be whole
            why = "; ".join(objections_to_saving(unsavable_parts(facts.xml)))
            why = why or self._make_room(guest, memory_bytes(facts.xml))
        except (OSError, VTorqueError) as error:
            why = str(error)
        if why:
            self._stay(guest, why)
        return STAYS if why else AWAY

    def _make_room(self, guest: pathlib.Path, size: int) -> str:
        """Promise a guest's memory room on the disk; returns why there is none, or ""."""
        with disk_space.counted(self._settings, Deadline.after(RETURN_LOCK_S)) as taken:
            free = shutil.disk_usage(guest).free - taken.promised_bytes
            if size > free:
                return f"its memory of {size >> 20} MiB has no room on the disk, {max(0, free) >> 20} MiB are free"
            saved_memory.order_save(guest, size)
        return ""

    def _save(self, domains: Domains, name: str) -> str:
        guest = self._directory / name
        if self._over or dict(self._done)[name] != AWAY:
            return dict(self._done)[name]
        if saved_memory.is_complete(guest):
            return AWAY
        try:
            if (used := usage.measure_before(domains, guest)) is not None:
                self._used[name] = used
            domains.save(name, saved_memory.memory_file(guest))
            self._note_saved(guest)
        except (OSError, VTorqueError) as error:
            return self._find_unsaved(domains, guest, error)
        return AWAY

    def _note_saved(self, guest: pathlib.Path) -> None:
        file = saved_memory.memory_file(guest)
        file.chmod(0o600)
        if (used := self._used.pop(guest.name, None)) is not None:
            usage.note_before(guest, used)
        size = file.stat().st_blocks * 512
        self._log(
            f"guest {guest.name} is saved, {size >> 20} MiB on the disk of {self._settings.node_name}",
            component="suspension",
        )

    def _find_unsaved(self, domains: Domains, guest: pathlib.Path, error: OSError | VTorqueError) -> str:
        """Return where a guest is whose save has failed."""
        try:
            if isinstance(error, NodeFault) and error.cause == "libvirt":
                raise error
            if saved_memory.is_complete(guest) and domains.facts(guest.name) is None:
                return AWAY
        except NodeFault as lost:
            return self._note_unknown(guest.name, lost)
        self._stay(guest, str(error))
        return STAYS

    def _note_unknown(self, name: str, error: NodeFault) -> str:
        """A libvirt that is told to end lets nobody in, and ends what it writes: the file may still become whole."""
        if not self._over:
            why = f"guest {name} may be in memory or on the disk, it is looked for again: {error}"
            self._log(why, event_log.WARNING, "suspension")
        return UNKNOWN

    def _find_saved(self, guest: pathlib.Path) -> str:
        """Return where a guest is that libvirt does not know: on the disk, or nowhere, which `monitor` finds."""
        if not saved_memory.is_complete(guest):
            saved_memory.forget(guest)
            return STAYS
        with contextlib.suppress(OSError, VTorqueError):  # what it has used is not known then
            self._note_saved(guest)
        return AWAY

    def _stay(self, guest: pathlib.Path, why: str) -> None:
        if self._over:
            return
        self._log(f"guest {guest.name} is paused and not saved: {why}", event_log.WARNING, "suspension")
        saved_memory.forget(guest)

    def _restore(self, domains: Domains, name: str) -> str:
        guest = self._directory / name
        if self._over:
            return AWAY
        try:
            there = domains.facts(name) is not None
            if there and domains.is_saving(name):
                return UNKNOWN
            if not there and not saved_memory.is_complete(guest):
                return self._find_saved(guest)
            if not there:
                domains.restore(saved_memory.memory_file(guest))
            self._limit(domains, guest)
            side_channels.separate_threads(name, self._settings.side_channels)
        except (OSError, VTorqueError) as error:
            self._log(f"guest {name} is still on the disk, it is tried again: {error}", event_log.WARNING, "suspension")
            return UNKNOWN
        if self._over:
            return AWAY
        saved_memory.forget(guest)
        self._log(f"guest {name} is back from the disk", component="suspension")
        return HERE

    def _limit(self, domains: Domains, guest: pathlib.Path) -> None:
        file = read_guest_file(guest)
        if file is not None and (spec := self._specs.get(file.rank)) is not None:
            domains.limit_memory(guest.name, memory.limit_mib(spec, self._settings.host_ram_mib))

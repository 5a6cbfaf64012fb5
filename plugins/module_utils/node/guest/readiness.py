# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a guest is ready, and why not yet: one poll over its console, the neighbour table, libvirt and the clock.

Ready is a line with the guest's token on its console, and the expected host key answering at its address
(`ssh_probe.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import select
import time
import typing as t

from ...errors import GuestFault, ImpostorFault, NodeFault, SiteFault, UserFault, VTorqueError
from ...slow_libraries import load_library
from ...state import event_log
from ...system.clock import Deadline, Timings
from ...time_budget import LIBVIRT_RETURN_S
from ..domain.connection import Domains
from ..domain.events import DomainEvent
from ..network.addresses import Candidate, Neighbours, usable_address
from ..system import inotify
from .console import Console

_RETRY_FIRST_S, _RETRY_LAST_S = 0.1, 2.0
_OVER = {"stopped", "shutdown", "crashed", "undefined"}


class WrongHostKey(ImpostorFault):
    """Somebody answers in the guest's place: not a fault that goes away by trying again."""


@dataclasses.dataclass
class AwaitedGuest:
    """A guest that was started.

    Attributes:
        name: its domain.
        mac: of its interface, in small letters.
        start_probe: starts a probe at an address, for so many seconds: whether it is this guest that answers.
        console: its serial console.
        timings: gets the phases `address` (until the first candidate) and `ready` (from then on).
        expected: addresses that are known beforehand (the static map).
        announces: whether every image of its kind reports on the console that it is ready; False: it is probed at once.
    """

    name: str
    mac: str
    start_probe: t.Callable[[str, float], Probe]
    console: Console
    timings: Timings
    expected: tuple[Candidate, ...] = ()
    announces: bool = True


class Probe(t.Protocol):
    """One question to one address: whether it is our guest that answers there."""

    address: str
    deadline: Deadline

    def fileno(self) -> int:
        """Readable when there may be an answer."""

    def answer(self) -> str | None:
        """`right`, `wrong`, or words for "not yet"; None while there is none."""

    def end(self) -> None:
        """Whatever becomes of it, nobody listens any more."""


class _Watch:
    """What is known of one guest so far."""

    def __init__(self, guest: AwaitedGuest, probe_s: float) -> None:
        self.guest, self.probe_s = guest, probe_s
        self.began = time.monotonic()
        self.addressed: float | None = None
        self.candidates: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self.probe: Probe | None = None
        self.retry_s, self.retry_at = _RETRY_FIRST_S, 0.0
        self.moved_at = self.began
        self.address: str | None = None
        for candidate in guest.expected:
            self.learn(candidate)

    def learn(self, candidate: Candidate) -> None:
        """A candidate came to light."""
        if self.addressed is None:
            self.addressed = time.monotonic()
        self.candidates.setdefault(candidate.address, candidate.source)
        self.retry_at = 0.0

    def step(self) -> None:
        """Look at everything that may have moved.

        Raises:
            VTorqueError: the guest says that it failed, or its kernel does.
            WrongHostKey: another key answers at the address that the guest itself names.
        """
        if self.guest.console.read():
            self.moved_at = time.monotonic()
            if not self.guest.announces:
                self.retry_at = min(self.retry_at, self.moved_at + _RETRY_FIRST_S)
        console = self.guest.console
        if console.failed is not None:
            # the guest lives, and what its site promised is not there, or its image cannot have what its user asked for
            faults = {"mount": SiteFault, "unclot": UserFault, "vrdma": UserFault}
            fault = faults.get(console.failed.partition(":")[0], VTorqueError)
            raise fault(f"guest {self.guest.name} could not become ready", console.failed)
        if console.panic is not None:
            what = f"the kernel of guest {self.guest.name} panicked"
            raise GuestFault(what, console.panic, console.describe_end(), symptom="panicked")
        if self._silent():
            return
        if (claimed := usable_address(console.named_address)) is not None and claimed not in self.candidates:
            self.learn(Candidate(claimed, "console"))
        if self.probe is not None:
            self._read_probe()
        # the guest says so when its sshd listens; to ask earlier only costs
        if self.candidates and self.address is None and self.probe is None and time.monotonic() >= self.retry_at:
            self._start_probe()

    def _silent(self) -> bool:
        return self.guest.announces and self.guest.console.ready_address is None

    def _start_probe(self) -> None:
        """Ask at the address the guest names first, then in turn at the others."""
        order = sorted(self.candidates, key=lambda a: (a in self.refusals, a != self.guest.console.ready_address))
        if all(address in self.refusals for address in order):
            self.refusals.clear()
            order.sort(key=lambda a: a != self.guest.console.ready_address)
        event_log.note(2, f"guest {self.guest.name} is asked at {order[0]}", event_log.TRACE, "readiness")
        self.probe = self.guest.start_probe(order[0], self.probe_s)

    def _read_probe(self) -> None:
        probe = t.cast(Probe, self.probe)
        answer = probe.answer()
        if answer is None:
            return
        self.probe = None
        if answer == "right":
            self.address = probe.address
            self._note_timings()
        elif answer == "wrong" and probe.address == self.guest.console.ready_address:
            raise WrongHostKey(
                f"guest {self.guest.name}: another host key answers at {probe.address}",
                "the guest itself named this address, and its own key is known: somebody answers in its place",
                "look for a second machine with this address before the job is released",
            )
        else:
            self.refusals[probe.address] = "another host key answers" if answer == "wrong" else answer
            if all(address in self.refusals for address in self.candidates):
                self.retry_at = time.monotonic() + self.retry_s
                self.retry_s = min(self.retry_s * 2, _RETRY_LAST_S)

    def _note_timings(self) -> None:
        now = time.monotonic()
        addressed = self.addressed or now
        self.guest.timings.seconds.update({"address": addressed - self.began, "ready": now - addressed})

    def wakes_at(self) -> float:
        """When to look again although nothing moved (monotonic)."""
        if self.address is not None or self._silent() or not self.candidates:
            return float("inf")
        return self.probe.deadline.at if self.probe else self.retry_at

    def filenos(self) -> tuple[int, ...]:
        return (self.probe.fileno(),) if self.probe else ()

    def end(self) -> None:
        self.guest.console.close()
        if self.probe:
            self.probe.end()

    def describe(self) -> str:
        """Everything that is known, in words."""
        console = self.guest.console
        where = ", ".join(f"{address} ({source})" for address, source in self.candidates.items()) or "none"
        facts = [console.describe(), f"addresses seen: {where}"]
        if console.ready_address is not None:
            refused = "; ".join(f"{address}: {why}" for address, why in self.refusals.items())
            facts.append(f"it said that it is ready, but sshd did not answer ({refused or 'no answer yet'})")
        return "; ".join(facts)


def wait_ready(
    guests: t.Sequence[AwaitedGuest],
    domains: Domains,
    neighbours: Neighbours,
    deadline: Deadline,
    *,
    probe_s: float = 5.0,
) -> dict[str, str]:
    """Wait until every guest is ready.

    Args:
        guests: what was started.
        domains: the connection that started them; it has listened since before that.
        neighbours: candidates for all of them.
        probe_s: seconds for one question to one address.

    Returns:
        The proven address of each guest, by its name.

    Raises:
        VTorqueError: a guest died, was paused, or says that it failed; holds the last lines of its console.
        WrongHostKey: another key answers in a guest's place.
        SiteFault: the deadline passed while a guest lived; says what was waited for, how long, and what was seen.
        NodeFault: libvirt was lost, and did not come back.
    """
    began = time.monotonic()
    watches = {guest.name: _Watch(guest, probe_s) for guest in guests}
    with contextlib.ExitStack() as stack:
        for watch in watches.values():
            stack.callback(watch.end)
        consoles = stack.enter_context(_watch_consoles(guests))
        _check_alive(watches, domains)
        while True:
            try:
                _check_guests(watches, domains, neighbours)
            except NodeFault as lost:
                _return_to(domains, watches, lost, deadline)
            if not (waiting := [watch for watch in watches.values() if watch.address is None]):
                return {name: t.cast(str, watch.address) for name, watch in watches.items()}
            if deadline.passed:
                raise _late(waiting, time.monotonic() - began)
            _sleep(waiting, (domains.fileno(), consoles.fileno(), *neighbours.filenos()), deadline)
            consoles.read(timeout=0)


def _check_guests(watches: t.Mapping[str, _Watch], domains: Domains, neighbours: Neighbours) -> None:
    for mac, candidate in neighbours.candidates():
        for watch in watches.values():
            if watch.guest.mac == mac:
                watch.learn(candidate)
    events = domains.events()
    for watch in watches.values():
        if watch.address is None:
            watch.step()
    for event in events:
        changed = event.kind in _OVER or event.kind == "suspended"
        facts = domains.facts(event.name) if changed and event.name in watches else None
        # else a guest of that name ended before this one began, or this one stood still before it ran on, warm
        if facts is None or facts.state != "running":
            _check_event(event, watches)


def _return_to(domains: Domains, watches: t.Mapping[str, _Watch], lost: NodeFault, deadline: Deadline) -> None:
    """A daemon that was restarted has its guests again; who does not come back is the node's fault."""
    if lost.cause != "libvirt":
        raise lost
    try:
        domains.reconnect(deadline.left_s(LIBVIRT_RETURN_S))
    except NodeFault:
        raise lost from None
    event_log.note(2, f"{lost}; it is back", event_log.WARNING, "readiness")
    _check_alive(watches, domains)


def _sleep(waiting: t.Sequence[_Watch], filenos: t.Sequence[int], deadline: Deadline) -> None:
    """Until something is heard or something is due."""
    poll = select.poll()
    for fileno in (*filenos, *(fileno for watch in waiting for fileno in watch.filenos())):
        poll.register(fileno, select.POLLIN)
    due = min(watch.wakes_at() for watch in waiting) - time.monotonic()
    poll.poll(min(deadline.left_s(), max(0.0, due)) * 1000 + 1)


@contextlib.contextmanager
def _watch_consoles(guests: t.Sequence[AwaitedGuest]) -> t.Iterator[t.Any]:
    inotify_simple = load_library("inotify_simple")
    flags = inotify_simple.flags
    with contextlib.closing(inotify_simple.INotify(nonblocking=True)) as watcher:
        for guest in guests:
            # the directory, for the file may be replaced
            inotify.watch(watcher, guest.console.path.parent, flags.MODIFY | flags.CREATE | flags.MOVED_TO)
        yield watcher


def _check_alive(watches: t.Mapping[str, _Watch], domains: Domains) -> None:
    """What happened before anybody listened was not heard."""
    for name in watches:
        facts = domains.facts(name)
        if facts is None:
            _check_event(DomainEvent(name, "stopped"), watches)
        elif facts.state == "paused":
            _check_event(DomainEvent(name, "suspended"), watches)


def _check_event(event: DomainEvent, watches: t.Mapping[str, _Watch]) -> None:
    if event.kind == "lost":
        raise NodeFault(
            "libvirt was lost while guests were starting", event.reason or "the connection ended", cause="libvirt"
        )
    watch = watches.get(event.name)
    if watch is None or (event.kind not in _OVER and event.kind != "suspended"):
        return
    watch.guest.console.read()
    last = watch.guest.console.last_output()
    ending = f"; the last lines of its console: {last}" if last else "; its console is silent"
    if fault := watch.guest.console.failed or watch.guest.console.panic:
        ending = f"; it said: {fault}"
    if event.kind == "suspended":
        raise VTorqueError(f"guest {event.name} was paused", f"{event.reason or 'libvirt does not say why'}{ending}")
    raise GuestFault(
        f"guest {event.name} ended before it was ready",
        f"{event.reason or event.kind}{ending}",
        "a guest that powers off or restarts while it starts has lost its job",
        symptom="ended",
    )


def _late(waiting: t.Sequence[_Watch], waited_s: float) -> VTorqueError:
    what = f"guest {', '.join(watch.guest.name for watch in waiting)} was not ready within {waited_s:.0f} s"
    why = " / ".join(f"{watch.guest.name}: {watch.describe()}" for watch in waiting)
    hint = waiting[0].guest.console.describe_end()
    # a silent guest blames nobody; one that lives and is not reached has a site around it
    silent = all(watch.guest.console.bytes_seen == 0 for watch in waiting)
    return GuestFault(what, why, hint, symptom="silent") if silent else SiteFault(what, why, hint)

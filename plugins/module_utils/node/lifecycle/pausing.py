# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that stand still while the batch system has suspended their job, by an order (`node/state/pause_order.py`).

The order is followed whenever it can be: a libvirt that is away now is asked again when it is back.  Where the site
saves memory of suspended jobs, guests that stand still go to the disk (`saving.py`), and return before any goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import threading
import time
import typing as t

from ...errors import VTorqueError
from ...state import event_log, login_fifos, shell_message
from ...state.layout import job_key
from ...system.clock import Deadline
from ...system.process.environment import ROOT_ENVIRONMENT
from ...system.process.processes import open_process
from ...wire.messages import NodePart
from ..domain.connection import Domains
from ..domain.events import DomainEvent
from ..guest import clock
from ..network.unsent import unacknowledged_bytes
from ..removal import run_files
from ..state import pause_order
from ..state.settings import NodeSettings
from .saving import Saving

AGAIN_S = 5.0
"""Until an order that could not be followed is tried again."""
CLOCK_S = 30.0
"""For guests that go on to have their clocks set."""
TAKEN_S = 1.0
"""For a guest that is to stand still to take what its connections have written."""
QUIET_S = 1.0
"""Between two rings that are heard: whoever rings is the job's user."""


class Pausing:
    """Whether the guests of one start stand still on this node, as it is ordered.

    Args:
        part: whose guests they are.
        settings: NodeSettings of this node.
        names: of the guests.
        log: takes a line for the job's log.
        directory: the run directory of the start; it is not there on a sister.
    """

    def __init__(
        self,
        part: NodePart,
        settings: NodeSettings,
        names: t.Iterable[str],
        log: event_log.Log,
        directory: pathlib.Path,
    ) -> None:
        self._part, self._settings, self._log, self._directory = part, settings, log, directory
        self._key = job_key(part.job_id, part.start)
        self._paused = dict.fromkeys(names, False)
        self._expected = dict.fromkeys(self._paused, 0)
        self._since: float | None = None
        self._again_at = 0.0
        self._saving = Saving(part, settings, self._paused, log)
        self._connections = threading.Lock()
        self._stopped = False

    def filenos(self) -> tuple[int, ...]:
        """What to poll."""
        return (self._saving.fileno(),)

    def close(self) -> None:
        """Nobody follows orders any more."""
        self._saving.close()

    @property
    def away(self) -> tuple[str, ...]:
        """The guests whose memory is on the disk, or on its way: that their process ends is no loss."""
        return self._saving.away

    @property
    def suspended(self) -> bool:
        """Return whether the guests stand still, in memory or on the disk."""
        return any(self._paused.values())

    def due_s(self) -> float:
        """Seconds until `follow` has something to do by itself."""
        again_s = max(0.0, self._again_at - time.monotonic()) if self._again_at else float("inf")
        until = pause_order.checkpoint_until(self._settings, self._key) if self.suspended else None
        return min(again_s, max(0.0, until - time.time()) + 0.05) if until else again_s

    def stands_still(self, name: str) -> bool:
        """Return whether it is ours that a guest is paused."""
        return self._paused[name] or pause_order.is_ordered(self._settings, self._key)

    def is_requested(self, event: DomainEvent) -> bool:
        """Return whether such a pause was heard of because we have asked for it."""
        if event.reason or not self._expected.get(event.name):
            return event.name in self.away
        self._expected[event.name] -= 1
        return True

    def forget_events(self) -> None:
        """What libvirt has not told until now will not be heard."""
        self._expected = dict.fromkeys(self._expected, 0)

    def follow(self, domains: Domains | None, lost: t.Collection[str] = (), *, over: bool = False) -> None:
        """Pause the guests or let them go on, as it is ordered now; where libvirt is away, that is left for later.

        Args:
            domains: the connection to libvirt.
            lost: guests that are there no more.
            over: the start is over: they are to go on, whatever is ordered.
        """
        ordered = not over and pause_order.is_ordered(self._settings, self._key)
        # where they did not come back, or nobody knows
        if self._saving.update() and (self._saving.is_unknown if ordered else self.away and self._saving.returning):
            self._again_at = time.monotonic() + AGAIN_S
        living = [name for name in self._paused if name not in lost]
        here = [name for name in living if name not in self.away]
        due = [name for name in here if self._paused[name] != ordered]
        if not due and (over or not (here or self.away)):
            self._stop_connections(ordered)
        if domains is None:
            self._again_at = 0.0
            return
        if time.monotonic() < self._again_at and not over:
            return
        self._again_at = 0.0
        if over:
            self._saving.abandon(domains)
        if not over and not ordered and (self.away or self._saving.busy):
            self._bring_back(domains)
        elif due:
            self._turn_all(domains, due, ordered=ordered, over=over)
        elif ordered and self._goes_to_disk() and not self._saving.busy:
            self._saving.save(domains, self._saving.can_go(living))

    def _goes_to_disk(self) -> bool:
        """Return whether guests that stand still are saved: where the site wants it, and for each checkpoint."""
        return self._settings.suspend_guests == "save" or bool(pause_order.checkpoint_until(self._settings, self._key))

    def _bring_back(self, domains: Domains) -> None:
        """Have all guests in memory again, before the first goes on."""
        self._signal_connections(signal.SIGSTOP)  # the batch system lets go on whatever is the job's
        if self._saving.busy:
            return
        names = self.away
        try:
            begun = self._saving.bring_back(domains)
        except (OSError, VTorqueError) as error:
            self._log(
                f"saved guests are still on the disk, it is tried again: {error}", event_log.WARNING, "suspension"
            )
            begun = False
        for name in names if begun else ():  # that it stands still is heard once more
            self._expected[name] += 1
        if not begun:
            self._again_at = time.monotonic() + AGAIN_S

    def _stop_connections(self, ordered: bool) -> None:
        """Where no guest has to be turned: they have moved, and stand still on other nodes by the same order."""
        if self._stopped != ordered:
            with self._connections:
                self._signal_connections(signal.SIGSTOP if ordered else signal.SIGCONT)
            self._stopped = ordered

    def _turn_all(self, domains: Domains, due: t.Sequence[str], *, ordered: bool, over: bool) -> None:
        if ordered:  # before its guest is silent
            self._saving.stay_again()
            with self._connections:
                stopped = self._signal_connections(signal.SIGSTOP)
            self._stopped = True
            until = Deadline.after(TAKEN_S)  # what a guest that stands still does not take, ends its connection
            while unacknowledged_bytes(stopped) and not until.passed:
                time.sleep(TAKEN_S / 50)
        done = [name for name in due if self._turn(domains, name, ordered=ordered)]
        self._again_at = 0.0 if len(done) == len(due) else time.monotonic() + AGAIN_S
        if ordered and done:
            self._since = self._since or time.monotonic()
            self._log(f"paused, as the job is suspended: {', '.join(done)}", component="suspension")
            return
        if done:
            passed = f"{time.monotonic() - self._since:.1f} s" if self._since else "some time"
            self._log(f"gone on after {passed}: {', '.join(done)}", component="suspension")
        if any(self._paused.values()):
            return
        self._since, self._stopped = None, False
        if over or not done:
            self._signal_connections(signal.SIGCONT)
        else:  # the session goes on with the right time
            threading.Thread(target=self._go_on, args=(done,), daemon=True, name="clocks").start()

    def _go_on(self, names: t.Sequence[str]) -> None:
        self._set_clocks(names)
        with self._connections:
            if not pause_order.is_ordered(self._settings, self._key):
                self._signal_connections(signal.SIGCONT)

    def _signal_connections(self, number: int) -> tuple[int, ...]:
        """Stop the ssh of the job's shell or let it go on, the prologue's or its own: a silent guest is given up.

        Returns:
            Their processes.
        """
        found = list(login_fifos.send(self._directory, number))
        shell = run_files.living_shell(self._settings, self._key)
        if shell is None:
            return tuple(found)
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            pid = int(path.name)
            with contextlib.suppress(OSError):  # it has ended
                if not _is_connection(pid, shell.pid, self._part.owner.uid):
                    continue
                held = open_process(pid, functools.partial(_is_connection, pid, shell.pid, self._part.owner.uid))
                if held is not None:
                    with held:
                        held.send(number)
                    found.append(pid)
        return tuple(found)

    def _turn(self, domains: Domains, name: str, *, ordered: bool) -> bool:
        # its word may be heard before the call returns
        self._expected[name] += ordered
        try:
            new = domains.pause(name, paused=ordered)
        except VTorqueError as error:
            self._expected[name] -= ordered
            self._log(
                f"guest {name} {'runs on' if ordered else 'stands still'}, it is tried again: {error}",
                event_log.WARNING,
                "suspension",
            )
            return False
        if ordered and not new:
            self._expected[name] -= 1
        self._paused[name] = ordered
        return True

    def _set_clocks(self, names: t.Sequence[str]) -> None:
        try:
            problems = clock.set_clocks(
                self._part.job_id, self._part.start, self._settings, names, Deadline.after(CLOCK_S)
            )
        except (OSError, VTorqueError) as error:
            problems = (f"clocks were not set: {error}",)
        for problem in problems:
            self._log(problem, event_log.WARNING, "suspension")


def _is_connection(pid: int, shell: int, uid: int) -> bool:
    """Return whether a process is an ssh of a user's that a shell has started.

    Raises:
        OSError: it has ended.
    """
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    who = (facts.get("Name"), facts.get("PPid"), facts.get("Uid", "").split("\t")[0])
    return who == ("ssh", str(shell), str(uid))


class Follower:
    """Runs the command that queries the batch server while the job may be suspended.

    Args:
        command: gives the orders of a suspension on all nodes of the job, and ends with it; (): nobody does here.
        directory: the run directory of the start, with the FIFO of the job's shell.
        log: takes a line for the job's log.
        every_s: seconds between two checkpoints; 0: only the job's owner requests them.
    """

    def __init__(
        self, command: t.Sequence[str], directory: pathlib.Path, log: event_log.Log, every_s: float = 0.0
    ) -> None:
        self._command, self._log, self._every_s = list(command), log, every_s
        self._next_at = time.monotonic() + every_s if every_s and command else float("inf")
        self._notifications = shell_message.NotificationFifo(directory) if command else None
        self._process: subprocess.Popen[bytes] | None = None
        self._quiet_until = 0.0

    def filenos(self) -> tuple[int, ...]:
        """What to poll."""
        if self._notifications is None or time.monotonic() < self._quiet_until:
            return ()
        return self._notifications.filenos()

    def due_s(self) -> float:
        """Return the seconds until the FIFO is read again."""
        now = time.monotonic()
        left_s = self._quiet_until - now
        quiet_s = left_s if self._notifications is not None and left_s > 0 else float("inf")
        return min(quiet_s, max(0.0, self._next_at - now))

    def handle_events(self, heard: t.Collection[int]) -> None:
        """Have the server queried when the shell has notified this worker."""
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self._every_s
            self._start_command(shell_message.CHECKPOINT)
        if self._notifications is None or not set(heard).intersection(self._notifications.filenos()):
            return
        self._start_command(self._notifications.read_all())

    def _start_command(self, notified: bytes) -> None:
        """Hand on what the shell wrote, to the command that runs or to a new one."""
        wishes = (shell_message.PARK, shell_message.CHECKPOINT)
        what = next((wish for wish in wishes if wish in notified), b".")
        self._quiet_until = time.monotonic() + QUIET_S
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.write(t.cast("t.IO[bytes]", self._process.stdin).fileno(), what)
            return
        self._end()
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/", env=ROOT_ENVIRONMENT
            )
            os.set_blocking(t.cast("t.IO[bytes]", self._process.stdin).fileno(), False)
            if what in wishes:
                os.write(t.cast("t.IO[bytes]", self._process.stdin).fileno(), what)
        except OSError as error:
            self._log(f"whether the job is suspended was not asked: {error}", event_log.WARNING, "suspension")

    def close(self) -> None:
        """Nobody needs its orders any more."""
        if self._notifications is not None:
            self._notifications.close()
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                t.cast("t.IO[bytes]", process.stdin).close()
            process.kill()
            process.wait()

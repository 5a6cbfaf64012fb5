# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of one daemon: descriptors, timers and children, without polling."""

from __future__ import annotations

import heapq
import itertools
import os
import resource
import selectors
import time
import typing as t

Call = t.Callable[[], None]
ChildEnd = t.Callable[[int, resource.struct_rusage], None]


class Timer:
    """A call that will be made later, unless it is cancelled."""

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        """Let it never happen; harmless when it has happened."""
        self.call = None


class Loop:
    """Waits for descriptors, timers and children, and calls what was asked for."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._ended = False
        self.after_each: Call | None = None

    def watch(self, fd: int, events: int, call: t.Callable[[int], None]) -> None:
        """Call `call(events)` when the descriptor is ready; replaces an earlier watch of it."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, call)
        else:
            self._selector.register(fd, events, call)

    def forget(self, fd: int) -> None:
        """Watch the descriptor no more."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def after(self, seconds: float, call: Call) -> Timer:
        """Call once, `seconds` from now."""
        timer = Timer(call)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._count), timer))
        return timer

    def child(self, pid: int, call: ChildEnd) -> None:
        """Call with the wait status and the resources used when the child ends."""
        descriptor = os.pidfd_open(pid)

        def ended(_events: int) -> None:
            self.forget(descriptor)
            os.close(descriptor)
            _pid, status, used = os.wait4(pid, 0)
            call(status, used)

        self.watch(descriptor, selectors.EVENT_READ, ended)

    def stranger(self, pid: int, call: Call) -> None:
        """Call when a process ends that is no child of ours."""
        descriptor = os.pidfd_open(pid)

        def ended(_events: int) -> None:
            self.forget(descriptor)
            os.close(descriptor)
            call()

        self.watch(descriptor, selectors.EVENT_READ, ended)

    def drain(self, fd: int) -> None:
        """Read away what wakes the loop (a signal's byte)."""

        def read(_events: int) -> None:
            os.read(fd, 64)

        self.watch(fd, selectors.EVENT_READ, read)

    def stop(self) -> None:
        """Leave `run` after the present round."""
        self._ended = True

    def run(self) -> None:
        """Serve events until `stop`."""
        while not self._ended:
            for key, events in self._selector.select(self._patience()):
                if key.fd in self._selector.get_map():
                    key.data(events)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.call is not None:
                    timer.call()
            if self.after_each is not None:
                self.after_each()

    def _patience(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

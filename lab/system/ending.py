# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of what runs in a cluster of the lab's, and of nothing else."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from . import cgroups
from .state import LabError, Process, State

DOWN_TIMEOUT_S = 30


def end_all(state: State) -> None:
    """End what is in the lab's cgroups: nothing else is in there, and nothing of the lab is elsewhere."""
    limit = time.monotonic() + DOWN_TIMEOUT_S
    while members := cgroups.members(state):
        cgroups.thaw(state)
        held: dict[int, int] = {}
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                held[pid] = os.pidfd_open(pid)
        # asked again with the descriptors in hand: a number that is still a member names the process we hold
        still = cgroups.members(state)
        for pid in held.keys() & still:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held[pid], signal.SIGKILL)
        _wait(list(held.values()), limit)
        if time.monotonic() > limit:
            raise LabError(f"processes of the lab do not end: {sorted(members)}")


def end(init: Process) -> None:
    """Kill a node's process 1, with which the kernel ends all others of the node, and wait until they are gone."""
    descriptor = os.pidfd_open(init.pid)
    if init.alive:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    # its end is told when the last process of its namespace has ended
    _wait([descriptor], time.monotonic() + DOWN_TIMEOUT_S)


def _wait(descriptors: list[int], limit: float) -> None:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left = set(descriptors)
    while left and (events := poll.poll(max(0, limit - time.monotonic()) * 1000)):
        for descriptor, _ in events:
            poll.unregister(descriptor)
            left.discard(descriptor)
    for descriptor in descriptors:
        os.close(descriptor)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to a libvirt that is restarted: its domains live on, and who makes guests goes on with them."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
import typing as t

from ...errors import NodeFault
from ...system.clock import Deadline
from ...time_budget import LIBVIRT_CONNECT_S
from .events import DomainEvent
from .library import open_connection

RECONNECT_PAUSE_S = 0.1


class ReconnectingDomains:
    """What a connection (`connection.Domains`) does when it is lost."""

    uri: str
    _libvirt: t.Any
    _connection: t.Any
    _read_only: bool
    _number: int
    _reconnecting: threading.Lock
    _callback: int | None
    _heard: collections.deque[DomainEvent]

    def listen(self) -> None:
        """See `connection.Domains`."""
        raise NotImplementedError

    def reconnect(self, within_s: float) -> None:
        """Connect again where the connection was lost; that it was is then no event any more.

        Domains live on while their daemon is restarted.  What was called meanwhile has failed, and what happened to
        them meanwhile was not heard.

        Args:
            within_s: seconds in which the daemon must answer again.

        Raises:
            NodeFault: it does not.
        """
        with self._reconnecting:
            with contextlib.suppress(self._libvirt.libvirtError):
                if self._connection.isAlive():
                    return
            until = Deadline.after(within_s)
            while True:
                try:
                    left_s = until.left_s(LIBVIRT_CONNECT_S)
                    new = open_connection(self._libvirt, self.uri, read_only=self._read_only, connect_s=left_s)
                    break
                except NodeFault:
                    if until.passed:
                        raise
                    time.sleep(until.left_s(RECONNECT_PAUSE_S))
            self._connection = new
            self._number += 1
            self._heard = collections.deque(event for event in self._heard if event.kind != "lost")
            if self._callback is not None:
                self._callback = None
                self.listen()

    def repeat_if_lost(self, call: t.Callable[[], object], within_s: float) -> None:
        """Call what may be called twice, and once more where the daemon was restarted meanwhile.

        Args:
            call: asks this connection.
            within_s: as of `reconnect`.

        Raises:
            NodeFault: libvirt does not answer.
            VTorqueError: as of the call.
        """
        try:
            call()
        except NodeFault:
            self.reconnect(within_s)
            call()

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the restore: what a cold boot does last."""

from __future__ import annotations

import contextlib
import errno
import os
import time

from .channel import MAX_SECONDS
from .dhcp_client import Dhcp, way_of
from .dhcp_message import FOREVER, Lease
from .guest import Guest
from .network import use_lease
from .order import Order
from .system import StepError
from .template import CLOCKS, GO, READY_PID, SSHD

GUEST_ENV = "etc/vtorque/guest.env"
WAITS_S = 5.0
"""By when `ready` must wait for its guest."""
SETTLED_S = 5.0
"""From `ready` on, before anything else is started that the job does not wait for."""


class Start:
    """A guest that was restored, and has its identity: what a cold boot does last.

    Args:
        guest: this guest.
        order: what it was told.
    """

    def __init__(self, guest: Guest, order: Order) -> None:
        self._guest, self._order = guest, order
        self._card = guest.card()
        self._way = way_of(self._card)
        self._client = Dhcp(self._way, order.mac, order.hostname)

    def begin(self) -> Lease | None:
        """Become the job's: sshd comes up while the DHCP server is asked; `ready` does the rest, the identity first.

        Returns:
            The lease; None: none came, and `ready` reports it.
        """
        guest = self._guest
        guest.begin("systemctl", "--no-block", "start", self._sshd())
        lease = self._client.ask(self._order.address)
        if lease is not None:
            self._use(lease)
            self._know_names(lease)
        self._let_go()
        return lease

    def _let_go(self) -> None:
        """Have `ready` go on, which waits since before the save.

        Raises:
            StepError: it does not.
        """
        limit = time.monotonic() + WAITS_S
        while True:
            try:
                # without a reader a FIFO cannot be opened in this way
                descriptor = os.open(self._guest.path(GO), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                break
            except OSError as error:
                if error.errno != errno.ENXIO or time.monotonic() > limit:
                    raise StepError(f"ready does not wait: {error}") from error
            time.sleep(0.05)
        with os.fdopen(descriptor, "wb", buffering=0) as fifo:
            fifo.write(b"go\n")

    def go_on(self, lease: Lease | None) -> None:
        """Arm what a cold boot has armed, and keep the lease."""
        guest = self._guest
        limit = time.monotonic() + MAX_SECONDS
        while not self._is_ready() and time.monotonic() < limit:
            time.sleep(1.0)
        time.sleep(SETTLED_S)
        # it marks what it writes with the ids that it has read at its start
        guest.run("systemctl", "--no-block", "try-restart", "systemd-journald.service")
        guest.run("systemctl", "--no-block", "start", "timers.target")
        started = [unit for unit in (*CLOCKS, "cron.service", "crond.service") if self._is_enabled(unit)]
        if started:
            guest.run("systemctl", "--no-block", "start", *started)
        while lease is not None and lease.seconds != FOREVER:
            lease = self._hold(lease) or self._client.ask()
            if lease is not None:
                self._use(lease)

    def _hold(self, lease: Lease) -> Lease | None:
        """The lease that comes after this one; by the clock that people read, as a guest may stand still for hours."""
        began = time.time()
        for share in (0.5, 0.75, 0.875, 0.95):
            while time.time() < began + lease.seconds * share:
                time.sleep(min(30.0, max(1.0, lease.seconds / 100)))
            if renewed := self._client.renew(lease):
                return renewed
        return None

    def _use(self, lease: Lease) -> None:
        use_lease(self._card, lease)

    def _know_names(self, lease: Lease) -> None:
        servers = tuple(dict.fromkeys((*self._order.name_servers, *lease.name_servers)))
        search = tuple(dict.fromkeys((*self._order.search_domains, *lease.search)))
        if not servers:
            return
        path = self._guest.path("etc/resolv.conf")
        if path.is_symlink() and "systemd" in str(path.readlink()):
            self._guest.run("resolvectl", "dns", self._card, *servers)
            if search:
                self._guest.run("resolvectl", "domain", self._card, *search)
            return
        lines = [f"search {' '.join(search)}"] if search else []
        lines += [f"nameserver {address}" for address in servers]
        self._guest.write("etc/resolv.conf", "".join(f"{line}\n" for line in lines).encode(), 0o644)

    def _sshd(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return self._guest.environment(GUEST_ENV)["VTORQUE_SSHD"]
        return SSHD[0]

    def _is_ready(self) -> bool:
        """Has `ready` become the ordinary agent, which it does when it has reported?"""
        with contextlib.suppress(OSError):
            pid = self._guest.path(READY_PID).read_text().strip()
            return self._guest.path(f"proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"/usr/lib/vtorque/agent"]
        return False

    def _is_enabled(self, unit: str) -> bool:
        return self._guest.run("systemctl", "--quiet", "is-enabled", unit).returncode == 0

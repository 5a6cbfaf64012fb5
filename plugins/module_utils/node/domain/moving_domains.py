# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A domain that goes on in the libvirt of another node, with its memory and its disk, over sockets of ours alone.

libvirt's managed direct migration (`virDomainMigrate3`): whoever calls it speaks to both daemons.  A call that fails,
or whose caller ends, leaves the domain where it was.  Tried with libvirt 9.0 and QEMU 7.2.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import typing as t
import xml.etree.ElementTree as ET

from ...errors import VTorqueError
from .domain_xml import parse


class MovingDomains:
    """What a connection (`connection.Domains`) can do with them."""

    _libvirt: t.Any
    _connection: t.Any

    def _asking(self, what: str) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def move(
        self,
        name: str,
        there: MovingDomains,
        change: t.Callable[[ET.Element], None],
        memory: pathlib.Path,
        disk: pathlib.Path,
        *,
        pause_after_s: float,
        give_up_after_s: float,
    ) -> float:
        """Have a domain go on elsewhere, with its memory and with what its disk has over its image.

        Args:
            name: of the domain, which runs.
            there: a connection to the other node's libvirt; the disk is there, without what this one has written.
            change: makes of its XML what the other node has of it.
            memory: a socket, at which the other node's qemu can be reached here; it makes one of that path there.
            disk: the same, for its disk.
            pause_after_s: seconds after which it stands still until all of it is there: then it ends in any case.
            give_up_after_s: seconds after which the move is given up, and it goes on here.

        Returns:
            Seconds that it stood still, as libvirt measured it; -1: that is not known.

        Raises:
            NodeFault: a libvirt does not answer.
            VTorqueError: the domain has not moved; says why.
        """
        lib = self._libvirt
        with self._asking(f"the move of domain {name}"):
            domain = self._connection.lookupByName(name)
            xml = parse(domain.XMLDesc(lib.VIR_DOMAIN_XML_SECURE | lib.VIR_DOMAIN_XML_MIGRATABLE))
            for limit in xml.findall("memtune"):  # libvirt takes one for more than that (`limit_memory`)
                xml.remove(limit)
            change(xml)
            terms = {
                lib.VIR_MIGRATE_PARAM_URI: f"unix://{memory}",
                lib.VIR_MIGRATE_PARAM_DISKS_URI: f"unix://{disk}",
                lib.VIR_MIGRATE_PARAM_DEST_XML: ET.tostring(xml, encoding="unicode"),
            }
            flags = lib.VIR_MIGRATE_LIVE | lib.VIR_MIGRATE_NON_SHARED_INC | lib.VIR_MIGRATE_AUTO_CONVERGE
            flags |= lib.VIR_MIGRATE_ABORT_ON_ERROR
            with self._bounded(domain, pause_after_s, give_up_after_s) as late:
                try:
                    domain.migrate3(there._connection, terms, flags)  # pylint: disable=protected-access
                except lib.libvirtError as error:
                    if late:
                        raise VTorqueError(f"the move of domain {name}", late[0]) from error
                    raise
        return there.measured_pause_s(name)

    @contextlib.contextmanager
    def _bounded(self, domain: t.Any, pause_after_s: float, give_up_after_s: float) -> t.Iterator[list[str]]:
        """Pause a domain, and later give its move up, while this lasts; yields why it was given up, [] until then."""
        late: list[str] = []

        def pause() -> None:
            with contextlib.suppress(self._libvirt.libvirtError):  # it has moved
                domain.suspend()

        def give_up() -> None:
            late.append(f"it was not there after {give_up_after_s:.0f} s")
            with contextlib.suppress(self._libvirt.libvirtError):
                domain.abortJob()

        timers = [threading.Timer(pause_after_s, pause), threading.Timer(give_up_after_s, give_up)]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield late
        finally:
            for timer in timers:
                timer.cancel()

    def measured_pause_s(self, name: str) -> float:
        """Return for how many seconds a domain stood still that came here last, as far as libvirt knows; or -1."""
        lib = self._libvirt
        with contextlib.suppress(lib.libvirtError, KeyError, TypeError):
            domain = self._connection.lookupByName(name)
            found = domain.jobStats(lib.VIR_DOMAIN_JOB_STATS_COMPLETED)
            return float(found.get("downtime_net", found.get("downtime", -1000))) / 1000
        return -1.0

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domains whose memory goes to a file, and comes back from it.  Not libvirt's managed save: ours are transient."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t
import xml.etree.ElementTree as ET

from .domain_xml import parse


class SavedDomains:
    """What a connection (`connection.Domains`) can do with them."""

    _libvirt: t.Any
    _connection: t.Any

    def _asking(self, what: str) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def host_capabilities(self) -> ET.Element:
        """See `connection.Domains`."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Return what made a saved state: libvirt, qemu, and qemu's programs as they lie on the disk.

        Raises:
            NodeFault: libvirt does not answer.
        """
        with self._asking("its version"):
            found = {"libvirt": str(self._connection.getLibVersion()), "qemu": str(self._connection.getVersion())}
        programs = {element.text or "" for element in self.host_capabilities().iterfind("guest/arch/emulator")}
        for program in sorted(programs):
            with contextlib.suppress(OSError):
                facts = pathlib.Path(program).stat()
                found[program] = f"{facts.st_ino}.{facts.st_size}.{facts.st_mtime_ns}"
        return found

    def restore_paused(self, path: pathlib.Path) -> None:
        """Have a domain that stands still of what is read from a file or a FIFO, whose header says which domain it is.

        Args:
            path: what is read, once, from its beginning to its end.

        Raises:
            SiteFault: libvirt refuses the XML.
            NodeFault: libvirt does not answer.
            VTorqueError: the domain does not come; says why.
        """
        with self._asking("the start of a saved domain"):
            self._connection.restoreFlags(str(path), None, self._libvirt.VIR_DOMAIN_SAVE_PAUSED)

    def plug(self, name: str, devices: t.Iterable[str]) -> None:
        """Plug devices into a domain that is there.

        Args:
            name: of the domain.
            devices: XML of each.

        Raises:
            SiteFault: libvirt refuses the XML.
            NodeFault: libvirt does not answer.
            VTorqueError: one cannot be plugged in; says why.
        """
        with self._asking(f"the devices of domain {name}"):
            domain = self._connection.lookupByName(name)
            for xml in devices:
                domain.attachDeviceFlags(xml, self._libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def save(self, name: str, path: pathlib.Path) -> None:
        """Write all that a paused domain has in memory to a file, and end it.

        Args:
            name: of the domain.
            path: of the file, which becomes root's; its directory is there.

        Raises:
            NodeFault: libvirt does not answer; it may be at it.
            VTorqueError: the domain is as it was; says why.
        """
        with self._asking(f"the saving of domain {name}"):
            self._connection.lookupByName(name).saveFlags(str(path), None, self._libvirt.VIR_DOMAIN_SAVE_PAUSED)

    def is_saving(self, name: str) -> bool:
        """Return whether libvirt is at work on a domain that is there, such as a save of which we heard no end.

        Args:
            name: of the domain.

        Raises:
            NodeFault: libvirt does not answer.
            VTorqueError: the domain is not there, or does not say so.
        """
        with self._asking(f"what is done to domain {name}"):
            return bool(self._connection.lookupByName(name).jobInfo()[0] != self._libvirt.VIR_DOMAIN_JOB_NONE)

    def restore(self, path: pathlib.Path, change: t.Callable[[ET.Element], None] | None = None) -> None:
        """Have a saved domain again, which stands still as it did.

        A limit of its memory is left out, since libvirt takes one in its XML for more than that (`limit_memory`).

        Args:
            path: what `save` wrote; it stays.
            change: makes of its XML what this node has of it; None: it is as it was.

        Raises:
            NodeFault: libvirt does not answer.
            VTorqueError: the domain did not come back; says why.
        """
        lib = self._libvirt
        with self._asking("the return of a saved domain"):
            xml = parse(self._connection.saveImageGetXMLDesc(str(path), lib.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))
            limits = xml.findall("memtune")
            for limit in limits:
                xml.remove(limit)
            if change is not None:
                change(xml)
            changed = ET.tostring(xml, encoding="unicode") if limits or change else None
            self._connection.restoreFlags(str(path), changed, lib.VIR_DOMAIN_SAVE_PAUSED)

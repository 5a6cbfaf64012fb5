# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Domains of this node's libvirt: made, seen, heard of, and ended.  The only room that imports libvirt."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import typing as t
import xml.etree.ElementTree as ET

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...frozen import frozen
from ...time_budget import LIBVIRT_CONNECT_S
from .capabilities import Capabilities, read_capabilities
from .domain_xml import DomainFacts, differences, parse, read_facts
from .events import DomainEvent, describe_change
from .library import EventLoop, fault_of, load_libvirt, open_connection
from .moving_domains import MovingDomains
from .reconnecting import ReconnectingDomains
from .saved_domains import SavedDomains

_STATES = ("unknown", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "suspended")


@frozen
class Outcome:
    """What was done, or would be: for modules with check mode and diff."""

    changed: bool
    before: DomainFacts | None
    after: DomainFacts | None
    differences: tuple[str, ...] = ()


class Domains(SavedDomains, MovingDomains, ReconnectingDomains):
    """A connection to libvirt, as a context manager.

    Args:
        uri: `qemu:///system`, `test:///default`, `test+unix:///default?socket=...`.
        read_only: for looking alone.
        connect_s: seconds that it may take to answer at all.

    Raises:
        NodeFault: libvirt does not answer, or its binding is missing.
    """

    def __init__(self, uri: str, *, read_only: bool = False, connect_s: float = LIBVIRT_CONNECT_S) -> None:
        self.uri = uri
        self._libvirt = load_libvirt()
        EventLoop.start(self._libvirt)
        self._read_only = read_only
        self._connection = open_connection(self._libvirt, uri, read_only=read_only, connect_s=connect_s)
        self._number = 0
        self._reconnecting = threading.Lock()
        self._heard: collections.deque[DomainEvent] = collections.deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._callback: int | None = None
        self._capabilities: ET.Element | None = None
        self._closed = False

    def close(self) -> None:
        """End the connection; events that were not fetched are lost."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(self._libvirt.libvirtError):
            if self._callback is not None:
                self._connection.unregisterCloseCallback()
                self._connection.domainEventDeregisterAny(self._callback)
        with contextlib.suppress(self._libvirt.libvirtError):
            self._connection.close()
        os.close(self._bell)

    def __enter__(self) -> Domains:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- what is there

    @leaves_nothing
    def facts(self, name: str) -> DomainFacts | None:
        """A domain by its exact name; None when libvirt says that there is none.

        Raises:
            NodeFault: libvirt does not answer; that never means that the domain is gone.
        """
        with self._asking(f"domain {name}"):
            try:
                return self._facts(self._connection.lookupByName(name))
            except self._libvirt.libvirtError as error:
                if error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN:
                    return None
                raise

    @leaves_nothing
    def list(self, *, ours: bool = True) -> tuple[DomainFacts, ...]:
        """All domains, running or not, by name.

        Args:
            ours: only those that carry vTorque's metadata.
        """
        with self._asking("the list of domains"):
            found = []
            for domain in self._connection.listAllDomains(0):
                try:
                    found.append(self._facts(domain))
                except self._libvirt.libvirtError as error:
                    if error.get_error_code() != self._libvirt.VIR_ERR_NO_DOMAIN:
                        raise
        return tuple(sorted((f for f in found if f.mark or not ours), key=lambda f: f.name))

    def figures(self, names: t.Collection[str], within_s: float | None) -> dict[str, dict[str, int]]:
        """What domains have used so far: libvirt's own figures (`virConnectGetAllDomainStats`), and `cpu.process`.

        A qemu that does not answer must not keep anybody from ending it: the question is asked in a thread, and an
        answer that comes late is none.

        Args:
            names: exact names.
            within_s: seconds for the answer; None: the caller waits for it, in a thread of their own.

        Returns:
            Figures by their names in libvirt, for each domain that is there; `cpu.process` is in nanoseconds.
        """
        found: dict[str, dict[str, int]] = {}

        def ask() -> None:
            lib = self._libvirt
            what = lib.VIR_DOMAIN_STATS_BLOCK | lib.VIR_DOMAIN_STATS_INTERFACE
            for domain in [domain for domain in self._connection.listAllDomains(0) if domain.name() in names]:
                with contextlib.suppress(lib.libvirtError):  # it ended meanwhile
                    figures = {"cpu.process": domain.info()[4]}
                    with contextlib.suppress(lib.libvirtError):  # a driver that keeps no such figures
                        for _domain, more in self._connection.domainListGetStats([domain], what):  # none: it ended
                            figures.update(more)
                    found[domain.name()] = figures  # whole: whoever waits may look at any moment

        def work() -> None:
            with contextlib.suppress(self._libvirt.libvirtError):
                ask()

        if within_s is None:
            work()
            return found
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(within_s)
        return dict(found)

    def _facts(self, domain: t.Any) -> DomainFacts:
        state = domain.state()[0]
        name = _STATES[state] if 0 <= state < len(_STATES) else "unknown"
        return read_facts(domain.XMLDesc(0), name, bool(domain.isPersistent()))

    @leaves_nothing
    def capabilities(self) -> Capabilities:
        """What the hypervisor offers."""
        return read_capabilities(self.host_capabilities())

    def host_capabilities(self) -> ET.Element:
        """Return the root of what libvirt reports of this host and its guests (`virsh capabilities`), asked once."""
        if self._capabilities is None:
            with self._asking("its capabilities"):
                self._capabilities = ET.fromstring(self._connection.getCapabilities())  # noqa: S314 - libvirt's own
        return self._capabilities

    # -- what is done

    def create(self, xml: str, *, autodestroy: bool = False) -> DomainFacts:
        """Start a transient domain; it is gone when it ends.

        Args:
            xml: of it.
            autodestroy: libvirt ends it with this connection, however that ends.

        Raises:
            SiteFault: libvirt refuses the XML.
            NodeFault: libvirt does not answer.
            VTorqueError: it did not start; says why.
        """
        with self._asking("the start of a domain"):
            flags = self._libvirt.VIR_DOMAIN_START_VALIDATE
            flags |= self._libvirt.VIR_DOMAIN_START_AUTODESTROY if autodestroy else 0
            return self._facts(self._connection.createXML(xml, flags))

    def limit_memory(self, name: str, limit_mib: int) -> bool:
        """Let a running domain's qemu have so much memory and no more; False: libvirt cannot, on this host.

        Not by its XML: there libvirt takes the limit for one of locked memory, too (qemuDomainGetMemLockLimitBytes),
        which no guest of ours needs, and which a libvirt in a container may not raise.

        Args:
            name: of the domain.
            limit_mib: for the guest's memory and all that qemu needs besides, in MiB.

        Raises:
            NodeFault: libvirt does not answer.
        """
        live = self._libvirt.VIR_DOMAIN_AFFECT_LIVE
        with self._asking(f"the memory of domain {name}"):
            try:
                self._connection.lookupByName(name).setMemoryParameters({"hard_limit": limit_mib << 10}, live)
            except self._libvirt.libvirtError as error:
                # no memory controller; a driver that has none; or the guest has ended, which others find out
                if error.get_error_code() in (
                    self._libvirt.VIR_ERR_OPERATION_INVALID,
                    self._libvirt.VIR_ERR_NO_SUPPORT,
                    self._libvirt.VIR_ERR_NO_DOMAIN,
                ):
                    return False
                raise
        return True

    def pause(self, name: str, *, paused: bool) -> bool:
        """Let the processors of a domain stand still, or go on; False: they do so already.  Its memory stays."""
        with self._asking(f"the {'pause' if paused else 'end of the pause'} of domain {name}"):
            domain = self._connection.lookupByName(name)
            if (domain.state()[0] == self._libvirt.VIR_DOMAIN_PAUSED) == paused:
                return False
            domain.suspend() if paused else domain.resume()
        return True

    def pin(self, name: str, cores: t.Collection[int], *, vcpus: bool = True) -> None:
        """Keep all threads of a running domain on these cores of the node, or all but those of its vCPUs."""
        live = self._libvirt.VIR_DOMAIN_AFFECT_LIVE
        where = tuple(core in cores for core in range(max(cores) + 1))
        with self._asking(f"the cores of domain {name}"):
            domain = self._connection.lookupByName(name)
            for vcpu in range(domain.vcpusFlags(live)) if vcpus else ():
                domain.pinVcpuFlags(vcpu, where, live)
            domain.pinEmulator(where, live)

    def destroy(self, name: str) -> bool:
        """End a domain at once, and forget a persistent one; True when there was one.

        Raises:
            NodeFault: libvirt does not answer.
            VTorqueError: it would not end.
        """
        with self._asking(f"the end of domain {name}"):
            try:
                domain = self._connection.lookupByName(name)
                flags = self._left_with(domain) if domain.isPersistent() else None
                if domain.isActive():
                    domain.destroy()
                if flags is not None:
                    domain.undefineFlags(flags)
            except self._libvirt.libvirtError as error:
                if error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN:
                    return False
                raise
        return True

    def _left_with(self, domain: t.Any) -> int:
        """What a persistent domain would leave behind; a driver refuses the flags of what it does not have."""
        flags = 0
        if "<nvram" in domain.XMLDesc(0):
            flags |= self._libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
        with contextlib.suppress(self._libvirt.libvirtError):
            if domain.hasManagedSaveImage():
                flags |= self._libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        return flags

    def ensure_running(self, xml: str, *, check: bool = False, replace: bool = False) -> Outcome:
        """See to it that the domain of this XML runs.

        Args:
            xml: domain XML with a name; what it leaves open may be anything.
            check: only say what would be done.
            replace: end a domain of the same name that differs and make it anew; else that is an error.

        Raises:
            VTorqueError: there is one of that name, with other settings or not running, and it may not be replaced.
        """
        name = parse(xml).findtext("name") or ""
        if not name:
            raise VTorqueError("domain XML", "has no name")
        before = self.facts(name)
        unlike: tuple[str, ...] = ()
        if before is not None:
            unlike = differences(xml, before.xml)
            if before.state != "running":
                unlike = (f"state: 'running' is wanted, {before.state!r} is there", *unlike)
            if not unlike:
                return Outcome(False, before, before)
            if not replace:
                raise VTorqueError(
                    f"domain {name} is there, and differs",
                    "; ".join(unlike)[:1000],
                    "remove it first, or allow that it is replaced",
                )
        if check:
            return Outcome(True, before, None, unlike)
        if before is not None:
            self.destroy(name)
        return Outcome(True, before, self.create(xml), unlike)

    def ensure_absent(self, name: str, *, check: bool = False) -> Outcome:
        """See to it that there is no domain of this name."""
        before = self.facts(name)
        if before is not None and not check:
            self.destroy(name)
        return Outcome(before is not None, before, None)

    # -- what is heard

    @leaves_nothing
    def listen(self) -> None:
        """From now on `fileno` is readable when something happened to a domain; call it before creating any."""
        if self._callback is not None:
            return
        with self._asking("its events"):
            self._callback = self._connection.domainEventRegisterAny(
                None, self._libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None
            )
            self._connection.registerCloseCallback(self._on_close, self._number)

    def fileno(self) -> int:
        """Readable when there are events to fetch."""
        return self._bell

    def events(self) -> tuple[DomainEvent, ...]:
        """What happened since the last call, oldest first; never waits."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        found = []
        while self._heard:
            found.append(self._heard.popleft())
        return tuple(found)

    def _on_lifecycle(self, _connection: t.Any, domain: t.Any, event: int, detail: int, _opaque: object) -> None:
        self._pass_event(describe_change(domain.name(), event, detail))

    def _on_close(self, _connection: t.Any, reason: int, number: object) -> None:
        if number != self._number:
            return  # there is another connection in its place
        self._pass_event(
            DomainEvent("", "lost", {0: "an error", 1: "libvirt ended", 2: "libvirt was silent"}.get(reason, ""))
        )

    def _pass_event(self, event: DomainEvent) -> None:
        self._heard.append(event)
        with contextlib.suppress(OSError):  # the connection was closed meanwhile
            os.eventfd_write(self._bell, 1)

    @contextlib.contextmanager
    def _asking(self, what: str) -> t.Iterator[None]:
        """Turn libvirt's errors into ours: whose fault it is follows from its code."""
        try:
            yield
        except self._libvirt.libvirtError as error:
            raise self._fault(error, what) from error

    def _fault(self, error: t.Any, what: str) -> VTorqueError:
        return fault_of(self._libvirt, error, f"libvirt at {self.uri}: {what}", alive=self._connection.isAlive)

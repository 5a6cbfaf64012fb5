# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this node has, and what guests of jobs have of it: cores, memory, pages and devices, for people who look."""

from __future__ import annotations

import pathlib
import time

from ..wire.node_topology import (
    FREE,
    LEASED,
    QUARANTINE,
    UNUSABLE,
    VERSION,
    CellFacts,
    CoreFacts,
    HeldDevice,
    HeldGuest,
    NodeTopology,
    PageFacts,
    joined,
)
from .devices import host_devices
from .domain.connection import Domains
from .domain.domain_xml import DomainFacts, parse
from .placement import claims
from .placement.topology import Cell, read_topology
from .state import saved_memory, start_lock
from .state.directories import guest_directories
from .state.settings import NodeSettings
from .system import cpus

NODES = pathlib.Path("/sys/devices/system/node")
"""Where the kernel tells of each cell."""


def read_occupancy(settings: NodeSettings, nodes: pathlib.Path = NODES) -> NodeTopology:
    """Return what this node has, and who has what of it now.

    Args:
        settings: NodeSettings of this node.
        nodes: where the kernel tells of its cells.

    Raises:
        NodeFault: libvirt does not answer, or what starts have cannot be read.
    """
    with Domains(settings.libvirt_uri, read_only=True) as domains:
        topology = read_topology(domains.host_capabilities())
        here = domains.list()
    return NodeTopology(
        VERSION,
        settings.node_name,
        round(time.time(), 1),
        tuple(_cell_facts(cell, nodes) for cell in topology.cells),
        _devices(settings),
        _guests(settings, here),
    )


def _cell_facts(cell: Cell, nodes: pathlib.Path) -> CellFacts:
    cores = tuple(CoreFacts(joined(core.threads), core.socket, core.cache) for core in cell.cores)
    ordinary = min(cell.pages, default=0)
    pages = tuple(_pages(nodes / f"node{cell.number}", kib) for kib in sorted(cell.pages) if kib != ordinary)
    distances = " ".join(f"{other}:{distance}" for other, distance in sorted(cell.distances.items()))
    return CellFacts(cell.number, cell.memory_mib, cores, pages, distances)


def _pages(place: pathlib.Path, kib: int) -> PageFacts:
    """Huge pages of a cell as they are now: libvirt may remember how many there were."""

    def read(name: str) -> int:
        try:
            return int((place / "hugepages" / f"hugepages-{kib}kB" / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    return PageFacts(kib, read("nr_hugepages"), read("free_hugepages"))


def _devices(settings: NodeSettings) -> tuple[HeldDevice, ...]:
    found = []
    for one in host_devices.examine(settings):
        state = QUARANTINE if one.quarantined else LEASED if one.lease else UNUSABLE if one.faults else FREE
        key = one.lease.key if one.lease else ""
        found.append(HeldDevice(one.address, one.pci_class.name, one.numa_node, state, key))
    return tuple(found)


def _guests(settings: NodeSettings, here: tuple[DomainFacts, ...]) -> tuple[HeldGuest, ...]:
    """The guests of jobs that run, or that somebody makes, and what those have.

    One whose memory is on the disk has nothing (`claims.read_claims`), and other directories await the sweep.
    """
    by_name = {facts.name: facts for facts in here}
    found = []
    for directory in guest_directories(settings.guests_dir):
        key, name = directory.parent.name, directory.name
        facts = by_name.get(name)
        making = facts is None and start_lock.is_locked(start_lock.start_lock(settings, key))
        if facts is None and (not making or saved_memory.needs_nothing(directory)):
            continue
        memory, shared = _read_domain(facts)
        pins = claims.read_pins(directory)
        own = ";".join(map(joined, pins.vcpus)) if pins else ""
        others = joined(pins.others if pins else shared)
        found.append(HeldGuest(key, name, memory, own, others, pins.io_least if pins else 0))
    return tuple(found)


def _read_domain(facts: DomainFacts | None) -> tuple[int, cpus.Cores]:
    """MiB of a guest's memory, and the cores that all of its threads share; of one that does not run yet nothing."""
    if facts is None:
        return 0, ()
    root = parse(facts.xml)
    vcpu = root.find("vcpu")
    cores = vcpu.get("cpuset", "") if vcpu is not None else ""
    memory = root.findtext("memory") or ""
    return int(memory) // 1024 if memory.isdecimal() else 0, cpus.read(cores)  # libvirt writes KiB

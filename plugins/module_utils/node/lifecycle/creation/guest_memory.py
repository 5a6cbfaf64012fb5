# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of guests: which cell of the node has it, of which pages it is, and that nobody else was promised it."""

from __future__ import annotations

import typing as t

from ....errors import UserFault, VTorqueError
from ....frozen import frozen
from ....state import event_log
from ....wire.messages import GuestSpec
from ...domain.connection import Domains
from ...placement import claims, hugepages, ledger
from ...placement.cells import Shape, mirror
from ...placement.ledger import Memory, Pool, Promise
from ...placement.pins import Pins
from ...placement.topology import Topology
from ...state.settings import NodeSettings
from ...system import memory
from .guest_forms import Guest

PAGE_MIB = {"none": 0, "2M": 2, "1G": 1024}
AUTO = "auto"


@frozen
class StartHere:
    """One start on this node, and what is there beside its guests.

    Attributes:
        topology: of the node.
        key: `state.layout.job_key` of the start.
        settings: NodeSettings of this node.
        running: the names of all domains of this node.
    """

    topology: Topology
    key: str
    settings: NodeSettings
    running: t.Collection[str]


def shape_guests(guests: t.Sequence[Guest], start: StartHere) -> None:
    """Give guests that have cores of their own the memory of those cores' cells (`Guest.shape`).

    The caller holds the lock of claims, and writes down what they have (`promise_of`).

    Args:
        guests: all of a start on this node, with their cores.
        start: on this node.

    Raises:
        UserFault: a cell never has so much, or not in such pages.
        SiteFault: guests of other jobs have it.
    """
    sizes = _sizes(guests[0].spec)
    for size in sizes:
        try:
            pinned = [(guest.spec, guest.pins) for guest in guests if guest.pins is not None]
            shapes = [_shape(spec, pins, start.topology, size) for spec, pins in pinned]
            promises = [promise_of(shape, spec.ram_mib) for (spec, _pins), shape in zip(pinned, shapes, strict=True)]
            # pages of a GiB lie together by chance alone, unless they were set apart at boot
            may_raise = start.settings.pages_raise and not (guests[0].spec.hugepages == AUTO and size > PAGE_MIB["2M"])
            _take([*promises, *_region(guests)], start, guests, may_raise=may_raise)
        except VTorqueError as refusal:
            if size == sizes[-1] or refusal.fault not in ("user", "site"):
                raise
            log_placement(f"no huge pages of {size} MiB for this job: {refusal}")
            continue
        for guest, shape in zip(guests, shapes, strict=True):
            guest.shape = shape
        return


def promise_of(shape: Shape, ram_mib: int) -> Promise:
    """Return what a guest of this shape is promised.

    Args:
        shape: of the guest.
        ram_mib: its memory.
    """
    if not shape.cells:
        return Promise(ram_mib)
    if not shape.page_kib:
        return Promise(0, shape.memory_by_cell)
    pages = {(cell, shape.page_kib): mib * 1024 // shape.page_kib for cell, mib in shape.memory_by_cell.items()}
    return Promise(0, {}, pages)


def check_possible(specs: t.Sequence[GuestSpec], pins: t.Sequence[Pins], topology: Topology, raises: bool) -> None:
    """Check that the cells of these cores could have the guests' memory at all, whoever has it at this moment.

    Args:
        specs: of all guests of a start.
        pins: their cores.
        topology: of the node.
        raises: whether pools may be raised.

    Raises:
        UserFault: they could not.
    """
    size = min(_sizes(specs[0]))
    shapes = [_shape(spec, one, topology, size) for spec, one in zip(specs, pins, strict=True)]
    pools = hugepages.read_pools()
    memory_mib = {cell.number: cell.memory_mib for cell in topology.cells}
    wanted: dict[int, int] = {}
    for shape in shapes:
        for cell, mib in shape.memory_by_cell.items():
            wanted[cell] = wanted.get(cell, 0) + mib
    for cell, mib in sorted(wanted.items()):
        most = memory_mib[cell]
        what = f"{mib} MiB in NUMA cell {cell}"
        if size:
            pool = (cell, size * 1024)
            what = f"{mib // size} pages of {ledger.page_name(pool[1])} in NUMA cell {cell}"
            if pool not in pools:
                raise UserFault(what, "this node's kernel has no pages of that size there", "hugepages=auto")
            if not raises:
                raise_free = pools[pool].total * size
                if mib > raise_free:
                    why = f"{pools[pool].total} are set apart there, and the site sets no more apart (hugepages_raise)"
                    raise UserFault(what, why, "hugepages=auto")
        if mib > most:
            raise UserFault(what, f"it has {most} MiB", "less ram, or more cells by more vCPUs")


def check_beside_pools(guests: t.Sequence[Guest], key: str, settings: NodeSettings, domains: Domains) -> None:
    """Check that guests of ordinary memory find it beside this node's pools of huge pages.

    Where there are no pools the batch system's own count is enough.  Who has cells of their own was counted with them.

    Args:
        guests: all of a start on this node; their directories say how much they take.
        key: `state.layout.job_key` of the start.
        settings: NodeSettings of this node.
        domains: says which guests run.

    Raises:
        UserFault: the node never has so much beside its pools.
        SiteFault: guests of other jobs have it.
    """
    pools_mib = hugepages.pools_mib(settings)
    if not pools_mib or any(guest.shape and guest.shape.cells for guest in guests):
        return
    reserved = memory.reserved_memory([guest.spec for guest in guests], settings.host_ram_mib)[0]
    names = {facts.name for facts in domains.list(ours=False)}
    wanted = [*(Promise(guest.spec.ram_mib) for guest in guests), *_region(guests)]
    # what is about to be raised counts; which cell has it does not matter here
    node = Memory(memory.node_mib(), reserved, {}, {(0, 1024): Pool(pools_mib, 0)}, {})
    ledger.check(wanted, claims.read_promises(settings, key, names), node, {})


def _region(guests: t.Sequence[Guest]) -> list[Promise]:
    """What these share: ordinary memory, which is there once, of whatever pages and cells they are themselves."""
    region = memory.region_mib([guest.spec for guest in guests])
    return [Promise(region)] if region else []


def _sizes(spec: GuestSpec) -> list[int]:
    """MiB of the pages that a guest may have, the best first; 0: ordinary ones."""
    if spec.hugepages != AUTO:
        return [PAGE_MIB[spec.hugepages]]
    return [size for size in sorted(PAGE_MIB.values(), reverse=True) if not size or spec.ram_mib % size == 0]


def _shape(spec: GuestSpec, pins: Pins, topology: Topology, size: int) -> Shape:
    shape = mirror(pins, topology, spec.ram_mib, spec.numa, size)
    if size and not shape.cells:
        why = "a vCPU of its map has cores of several NUMA cells" if spec.numa != "off" else "it has no NUMA cells"
        raise UserFault("huge pages of a guest of the job", f"{why}, in which they are counted", "hugepages=none")
    homes = {
        cell.number for cell in topology.cells for core in cell.cores if set(core.threads).intersection(pins.cores)
    }
    if size and (far := sorted(set(shape.memory_by_cell) - homes)):
        why = f"a NUMA cell of its cores has no memory, and qemu takes pages of cell {far[0]} by cores there"
        raise UserFault("huge pages of a guest of the job", why, "hugepages=none")
    return shape


def _take(promises: t.Sequence[Promise], start: StartHere, guests: t.Sequence[Guest], *, may_raise: bool) -> None:
    """Count what these guests take, and raise the pools by what is missing."""
    key, settings = start.key, start.settings
    hugepages.finish_interrupted(settings)
    others = claims.read_promises(settings, key, start.running)
    node = _read_memory(start.topology, settings, guests)
    missing = ledger.find_missing_pages(promises, others, node)
    for pool, more in missing.items():
        if not may_raise or pool not in node.pools:
            wanted = sum(promise.pages.get(pool, 0) for promise in promises)
            raise ledger.short_of(pool, wanted, wanted - more, others)
    if not missing:
        ledger.check(promises, others, node, {})
        return
    hugepages.announce(missing, key, settings)
    try:
        # guests that began meanwhile have seen the announcement, or are seen here
        ledger.check(promises, claims.read_promises(settings, key, start.running), node, missing)
    except VTorqueError:
        hugepages.forget(key, settings)
        raise
    got, why = hugepages.raise_pools(key, settings)
    for pool, more in missing.items():
        if got.get(pool, 0) < more:
            hugepages.lower_pools(key, settings)
            wanted = sum(promise.pages.get(pool, 0) for promise in promises)
            why = why or f"{more} more were to be set apart, and {got.get(pool, 0)} were found"
            raise ledger.short_of(pool, wanted, wanted - more, others, why)


def _read_memory(topology: Topology, settings: NodeSettings, guests: t.Sequence[Guest]) -> Memory:
    pools = hugepages.read_pools()
    return Memory(
        memory.node_mib(),
        memory.reserved_memory([guest.spec for guest in guests], settings.host_ram_mib)[0],
        {cell.number: cell.memory_mib for cell in topology.cells},
        pools,
        hugepages.read_spoken_for(kib for _cell, kib in pools),
    )


def log_placement(text: str, level: str = event_log.INFO) -> None:
    """Add a line about the placement of guests to the job's log.

    Args:
        text: without the time.
        level: of the line.
    """
    event_log.note(2, text, level, "placement")

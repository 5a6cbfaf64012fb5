# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores of their own for guests: claimed before their domains begin, proved of their threads when they are ready."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import typing as t

from ....effects import leaves_nothing
from ....errors import NodeFault, SiteFault, UserFault, VTorqueError
from ....state import event_log
from ....state.layout import job_key
from ....system.clock import Deadline
from ....wire.messages import AUTO_CORES, PREFER_CORES, GuestSpec, NodePart
from ...domain.connection import Domains
from ...io_cores import interrupts
from ...placement import advice, cache_shares, claims, threads
from ...placement.pins import CoreShare, Pins, assign, assign_shared
from ...placement.topology import read_topology
from ...state import slots
from ...state.settings import NodeSettings
from ...state.start_lock import lock_alone
from ...system import side_channels
from ...system.cpus import Cores, format_cores, of_node
from .. import guest_processes
from . import guest_memory
from .guest_forms import Guest
from .guest_memory import StartHere

VHOST_NET = pathlib.Path("/dev/vhost-net")
SHARE = "vCPUs share the cores of this job"
MAY_CHANGE = "its cpuset is still to come, and other jobs are on this node"


def claim_cores(
    guests: t.Sequence[Guest], key: str, settings: NodeSettings, domains: Domains, deadline: Deadline, cores: Cores
) -> Cores:
    """Give guests cores of their own (`Guest.pins`), and write down in their directories which.

    They get none where the job has too few, and nobody asked for them (`PREFER_CORES`).  Of guests whose vCPUs share
    cores, those alone get some that have cores for virtual I/O.

    Args:
        guests: all of a start on this node; they get their cores.
        key: `state.layout.job_key` of the start.
        settings: NodeSettings of this node.
        domains: says which cores there are, and which guests run.
        deadline: of the making.
        cores: the job's; (): all of the node's.

    Returns:
        The cores of guests without ones of their own: the job's, and of a whole node none of the host's share.

    Raises:
        UserFault: the job has too few cores, or the user's map does not fit them.
        SiteFault: guests of another job have some of them.
    """
    _drop_io_cores(guests, settings)
    if settings.cores_may_change:
        if is_preferred(guests):
            return _share(MAY_CHANGE, settings, cores)
        raise _may_change(guests[0].spec)
    if not guests[0].spec.vcpu_cores and not guests[0].spec.io_max:
        return _share("", settings, cores)
    try:
        topology = read_topology(domains.host_capabilities())
    except NodeFault as fault:
        if is_preferred(guests):
            return _share(str(fault), settings, cores)
        raise
    advised = _advised([guest.spec for guest in guests], settings, deadline)
    with lock_alone(settings.run_dir / "locks" / slots.LOCK, settings, deadline):
        start = StartHere(topology, key, settings, {facts.name for facts in domains.list(ours=False)})
        found = _assign_what_fits(guests, start, cores, advised)
        if not found:
            return _share("", settings, cores)
        for guest, pins in zip(guests, found, strict=True):
            guest.pins = pins
        if is_strict(guests[0].spec):
            guest_memory.shape_guests(guests, start)
        for guest, pins in zip(guests, found, strict=True):
            promise = guest_memory.promise_of(guest.shape, guest.spec.ram_mib) if guest.shape else None
            claims.claim(guest.directory, pins, promise)
    return cores


@leaves_nothing
def share_caches(guests: t.Sequence[Guest], settings: NodeSettings, domains: Domains) -> None:
    """Let each guest have a part of the node's caches, where the site is strict and this host can divide them.

    Args:
        guests: all of a start on this node, which is theirs alone; they get their parts.
        settings: this node's own.
        domains: says what libvirt can divide.
    """
    if settings.side_channels == side_channels.STRICT:
        shares = cache_shares.find_shares(domains.host_capabilities(), len(guests))
        for guest in guests:
            guest.caches = shares


def check(part: NodePart, settings: NodeSettings, domains: Domains, cores: Cores) -> None:
    """Check that guests that must have cores of their own can have them, before anything is waited for or made.

    Nothing is given away: what is free now may be another's when their turn comes (`claim_cores`).

    Args:
        part: what is asked; its guests.
        settings: NodeSettings of this node.
        domains: says which cores there are, and which guests run.
        cores: the job's; (): all of the node's.

    Raises:
        UserFault: the job has too few cores, the user's map does not fit them, or their cells have too little memory.
        SiteFault: guests of another job have some of them.
    """
    first = part.guests[0]
    if first.io_max and first.io_required and (why := _no_io_cores(first, settings)):
        raise SiteFault(f"iocm=true on {settings.node_name}", why, "the job may run on another node, or without iocm")
    specs = part.guests if first.io_required else tuple(map(_without_io, part.guests))
    if not _must_have_cores(specs[0]):
        return
    if settings.cores_may_change:
        raise _may_change(first)
    topology = read_topology(domains.host_capabilities())
    running = {facts.name for facts in domains.list(ours=False)}
    found = _assign(specs, StartHere(topology, job_key(part.job_id, part.start), settings, running), cores)
    if is_strict(first):
        guest_memory.check_possible(part.guests, found, topology, settings.pages_raise)


def _may_change(spec: GuestSpec) -> UserFault:
    if is_strict(spec):
        return UserFault("vcpu_pinning", MAY_CHANGE, "ask for whole nodes, or give vcpu_pinning=false")
    return UserFault("iocm", MAY_CHANGE, "ask for whole nodes, or give iocm=false")


def _no_io_cores(spec: GuestSpec, settings: NodeSettings) -> str:
    """Why there are no cores for virtual I/O on this node, or ""."""
    if not settings.io_cores:
        return "jobs have no cores for virtual I/O on this node (iocm_enabled, iocm_nodes)"
    if spec.hypervisor == "kvm" and not VHOST_NET.exists():
        return f"there is no {VHOST_NET} for the guests' network: load the module vhost_net"
    return ""


def _drop_io_cores(guests: t.Sequence[Guest], settings: NodeSettings) -> None:
    """Let guests go without cores for virtual I/O that nobody asked for, where they cannot be had."""
    spec = guests[0].spec
    why = _no_io_cores(spec, settings) or (MAY_CHANGE if settings.cores_may_change else "")
    if spec.io_max and not spec.io_required and why:
        _without_io_cores(guests, why)


def _without_io_cores(guests: t.Sequence[Guest], why: str) -> None:
    guest_memory.log_placement(f"guests have no cores for virtual I/O: {why}")
    for guest in guests:
        guest.spec = _without_io(guest.spec)


def _without_io(spec: GuestSpec) -> GuestSpec:
    return dataclasses.replace(spec, io_min=0, io_max=0, io_required=False)


def _must_have_cores(spec: GuestSpec) -> bool:
    """Return whether the user has asked for cores that something of a guest's has for itself."""
    return is_strict(spec) or (spec.io_max > 0 and spec.io_required)


def is_strict(spec: GuestSpec) -> bool:
    """Return whether the vCPUs of guests have cores of their own, or there are no guests."""
    return spec.vcpu_cores not in ("", PREFER_CORES)


def _advised(specs: t.Sequence[GuestSpec], settings: NodeSettings, deadline: Deadline) -> Cores:
    """The cells that numad advises; () where it is not asked, or does not answer: that costs a line and no job."""
    if settings.numad is None or specs[0].vcpu_cores != AUTO_CORES or specs[0].numa == "off":
        return ()
    vcpus, ram_mib = sum(spec.vcpus for spec in specs), sum(spec.ram_mib for spec in specs)
    try:
        return advice.query_numad(settings.numad, vcpus, ram_mib, deadline)
    except SiteFault as fault:
        guest_memory.log_placement(f"NUMA cells are chosen without numad: {fault}", event_log.WARNING)
        return ()


def _assign_what_fits(
    guests: t.Sequence[Guest], start: StartHere, cores: Cores, advised: t.Collection[int]
) -> tuple[Pins, ...]:
    """As `_assign`, without what nobody asked for where there are too few cores; (): the guests share the job's."""
    spec = guests[0].spec
    try:
        return _assign([guest.spec for guest in guests], start, cores, advised, _cells_of_devices(guests))
    except UserFault as fault:
        if spec.io_max and not spec.io_required:
            _without_io_cores(guests, fault.why)
            if not spec.vcpu_cores:
                return ()
            return _assign_what_fits(guests, start, cores, advised)
        if not is_preferred(guests):
            raise
        guest_memory.log_placement(f"{SHARE}: its guests {fault.why}")
        return ()


def _assign(
    specs: t.Sequence[GuestSpec],
    start: StartHere,
    cores: Cores,
    advised: t.Collection[int] = (),
    near_devices: tuple[int | None, ...] = (),
) -> tuple[Pins, ...]:
    """The cores of these guests, in the advised cells if they fit there; a message names who has some of them."""
    topology, settings = start.topology, start.settings
    job_cores = tuple(sorted(cores or topology.threads))
    claimed = {
        core: owner
        for core, owner in claims.read_claims(settings, start.key, start.running).items()
        if core in job_cores
    }
    near = interrupts.cell_of_uplink(settings.bridge) if specs[0].io_max else None
    if advised:
        inside = {cell.number for cell in topology.cells}.intersection(advised)
        outside = topology.threads.difference(
            thread for cell in topology.cells if cell.number in inside for core in cell.cores for thread in core.threads
        )
        with contextlib.suppress(UserFault):
            elsewhere = {*claimed, *outside}
            return assign(specs, CoreShare(topology, job_cores, elsewhere, settings.host_cores, near, near_devices))
        guest_memory.log_placement(
            f"NUMA cells {format_cores(sorted(advised))}, which numad advises, have too few of this job's cores left"
        )
    try:
        return _fit(specs, CoreShare(topology, job_cores, claimed, settings.host_cores, near, near_devices))
    except UserFault as fault:
        optional = specs[0].io_max and not specs[0].io_required
        if not claimed or optional or not _must_have_cores(specs[0]):
            raise
        owners = ", ".join(sorted(set(claimed.values())))
        taken = format_cores(sorted(claimed))
        why = f"guests of {owners} have {taken} of its cores {format_cores(job_cores)}: {fault.why}"
        raise SiteFault(
            f"the cores of job {start.key}", why, "what belongs to no job is removed by vtorque-sweep"
        ) from fault


def _cells_of_devices(guests: t.Sequence[Guest]) -> tuple[int | None, ...]:
    """The cell that the first device of each guest is near, of those whose cell is known."""
    return tuple(
        next((device.numa_node for device in guest.devices if device.numa_node >= 0), None) for guest in guests
    )


def _fit(specs: t.Sequence[GuestSpec], share: CoreShare) -> tuple[Pins, ...]:
    """The cores of these guests; where the user wants some for virtual I/O, vCPUs may have to share the rest."""
    if not specs[0].vcpu_cores:
        return assign_shared(specs, share)
    try:
        return assign(specs, share)
    except UserFault as fault:
        if is_strict(specs[0]) or not specs[0].io_required:
            raise
        found = assign_shared(specs, share)
        guest_memory.log_placement(f"{SHARE}: its guests {fault.why}")
        return found


def _share(why: str, settings: NodeSettings, cores: Cores) -> Cores:
    """Return the cores of guests without ones of their own, and say why they have none; "": that was said, or is so."""
    if why:
        guest_memory.log_placement(f"{SHARE}: {why}")
    return of_node(settings.host_cores) if cores == of_node(0) else cores


def is_preferred(guests: t.Sequence[Guest]) -> bool:
    """Return whether cores of their own are the site's wish, and no request of the user's."""
    return not _must_have_cores(guests[0].spec)


def prove(guests: t.Sequence[Guest], key: str, settings: NodeSettings) -> None:
    """Prove that each thread of these guests is on its cores, and write that down in the job's log.

    Args:
        guests: with their cores; they run.
        key: `state.layout.job_key` of the start.
        settings: NodeSettings of this node.

    Raises:
        NodeFault: a thread is elsewhere and cannot be moved.
        VTorqueError: a guest has no process.
    """
    processes = guest_processes.read_processes(key, settings)
    for guest in guests:
        name = guest.guest_file.name
        found = guest_processes.pick_processes(guest.directory, processes)
        if found is None or guest.pins is None:
            raise VTorqueError(f"the threads of guest {name}", "it has no process")
        pins = guest.pins.with_io(guest.pins.io_least)
        try:
            moved = threads.place_threads(name, found[0], found[1], pins)
        except NodeFault as fault:
            if not is_preferred(guests):
                raise
            guest_memory.log_placement(str(fault), event_log.WARNING)
            continue
        on = "; ".join(f"vCPU {vcpu} on {format_cores(cores)}" for vcpu, cores in enumerate(pins.vcpus))
        also = f"; moved there: {', '.join(moved)}" if moved else ""
        io = f" (virtual I/O, under load on {format_cores(guest.pins.io)})" if guest.pins.io else ""
        guest_memory.log_placement(
            f"cores of {name}, read from its threads: {on}; other threads on {format_cores(pins.others)}{io}{also}"
        )

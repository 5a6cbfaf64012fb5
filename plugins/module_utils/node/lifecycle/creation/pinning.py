# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores of their own for guests: claimed before their domains begin, proved of their threads when they are ready."""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ....errors import NodeFault, SiteFault, UserFault, VTorqueError
from ....state import event_log
from ....state.layout import job_key
from ....system.clock import Deadline
from ....wire.messages import AUTO_CORES, PREFER_CORES, GuestSpec, NodePart
from ...domain.connection import Domains
from ...placement import advice, claims, threads
from ...placement.pins import Pins, assign
from ...placement.topology import Topology, read_topology
from ...removal import inventory
from ...state import slots
from ...state.settings import NodeSettings
from ...state.start_lock import held
from ...storage import user_disk, virtiofsd
from ...system.cpus import Cores, of_node, written
from . import guest_memory
from .guest_forms import Guest

MAY_CHANGE = "its cpuset is still to come, and other jobs are on this node"


def claim_cores(
    guests: t.Sequence[Guest], key: str, settings: NodeSettings, domains: Domains, deadline: Deadline, cores: Cores
) -> Cores:
    """Give guests cores of their own (`Guest.pins`), and write down in their directories which.

    They get none where the job has too few, and nobody asked for them (`PREFER_CORES`).

    Args:
        guests: all of a start on this node; they get their cores.
        key: `state.layout.job_key` of the start.
        settings: this node's own.
        domains: says which cores there are, and which guests run.
        deadline: of the making.
        cores: the job's; (): all of the node's.

    Returns:
        The cores of guests without ones of their own: the job's, and of a whole node none of the host's share.

    Raises:
        UserFault: the job has too few cores, or the user's map does not fit them.
        SiteFault: guests of another job have some of them.
    """
    if settings.cores_may_change:
        if is_preferred(guests):
            return _share(MAY_CHANGE, settings, cores)
        raise UserFault("vcpu_pinning", MAY_CHANGE, "ask for whole nodes, or give vcpu_pinning=false")
    try:
        topology = read_topology(domains.host_capabilities())
    except NodeFault as fault:
        if is_preferred(guests):
            return _share(str(fault), settings, cores)
        raise
    specs = [guest.spec for guest in guests]
    advised = _advised(specs, settings, deadline)
    with held(settings.run_dir / "locks" / slots.LOCK, settings, deadline):
        names = {facts.name for facts in domains.list(ours=False)}
        try:
            found = _assign(specs, topology, key, settings, names, cores, advised)
        except UserFault as fault:
            if is_preferred(guests):
                return _share(f"its guests {fault.why}", settings, cores)
            raise
        for guest, pins in zip(guests, found, strict=True):
            guest.pins = pins
        if not is_preferred(guests):
            guest_memory.shape_guests(guests, topology, key, settings, names)
        for guest, pins in zip(guests, found, strict=True):
            promise = guest_memory.promise_of(guest.shape, guest.spec.ram_mib) if guest.shape else None
            claims.claim(guest.directory, pins, promise)
    return cores


def check(part: NodePart, settings: NodeSettings, domains: Domains, cores: Cores) -> None:
    """Check that guests that must have cores of their own can have them, before anything is waited for or made.

    Nothing is given away: what is free now may be another's when their turn comes (`claim_cores`).

    Args:
        part: what is asked; its guests.
        settings: this node's own.
        domains: says which cores there are, and which guests run.
        cores: the job's; (): all of the node's.

    Raises:
        UserFault: the job has too few cores, the user's map does not fit them, or their cells have too little memory.
        SiteFault: guests of another job have some of them.
    """
    if part.guests[0].vcpu_cores in ("", PREFER_CORES):
        return
    if settings.cores_may_change:
        raise UserFault("vcpu_pinning", MAY_CHANGE, "ask for whole nodes, or give vcpu_pinning=false")
    topology = read_topology(domains.host_capabilities())
    key = job_key(part.job_id, part.start)
    found = _assign(part.guests, topology, key, settings, {facts.name for facts in domains.list(ours=False)}, cores)
    guest_memory.check_possible(part.guests, found, topology, settings.pages_raise)


def _advised(specs: t.Sequence[GuestSpec], settings: NodeSettings, deadline: Deadline) -> Cores:
    """The cells that numad advises; () where it is not asked, or does not answer: that costs a line and no job."""
    if settings.numad is None or specs[0].vcpu_cores != AUTO_CORES or specs[0].numa == "off":
        return ()
    vcpus, ram_mib = sum(spec.vcpus for spec in specs), sum(spec.ram_mib for spec in specs)
    try:
        return advice.ask(settings.numad, vcpus, ram_mib, deadline)
    except SiteFault as fault:
        _log(f"NUMA cells are chosen without numad: {fault}", event_log.WARNING)
        return ()


def _assign(
    specs: t.Sequence[GuestSpec],
    topology: Topology,
    key: str,
    settings: NodeSettings,
    running: t.Collection[str],
    cores: Cores,
    advised: t.Collection[int] = (),
) -> tuple[Pins, ...]:
    """The cores of these guests, in the advised cells if they fit there; a message names who has some of them."""
    job_cores = tuple(sorted(cores or topology.threads))
    claimed = {core: owner for core, owner in claims.read_claims(settings, key, running).items() if core in job_cores}
    if advised:
        inside = {cell.number for cell in topology.cells}.intersection(advised)
        outside = topology.threads.difference(
            thread for cell in topology.cells if cell.number in inside for core in cell.cores for thread in core.threads
        )
        with contextlib.suppress(UserFault):
            return assign(specs, topology, job_cores, {*claimed, *outside}, settings.host_cores)
        _log(f"NUMA cells {written(sorted(advised))}, which numad advises, have too few of this job's cores left")
    try:
        return assign(specs, topology, job_cores, claimed, settings.host_cores)
    except UserFault as fault:
        if not claimed or specs[0].vcpu_cores == PREFER_CORES:
            raise
        owners = ", ".join(sorted(set(claimed.values())))
        why = f"guests of {owners} have {written(sorted(claimed))} of its cores {written(job_cores)}: {fault.why}"
        raise SiteFault(f"the cores of job {key}", why, "what belongs to no job is removed by vtorque-sweep") from fault


def _share(why: str, settings: NodeSettings, cores: Cores) -> Cores:
    """Return the cores of guests without ones of their own, and say why they have none."""
    _log(f"vCPUs share the cores of this job: {why}")
    return of_node(settings.host_cores) if cores == of_node(0) else cores


def is_preferred(guests: t.Sequence[Guest]) -> bool:
    """Return whether cores of their own are the site's wish, and no request of the user's."""
    return guests[0].spec.vcpu_cores == PREFER_CORES


def prove(guests: t.Sequence[Guest], key: str, settings: NodeSettings) -> None:
    """Prove that each thread of these guests is on its cores, and write that down in the job's log.

    Args:
        guests: with their cores; they run.
        key: `state.layout.job_key` of the start.
        settings: this node's own.

    Raises:
        NodeFault: a thread is elsewhere and cannot be moved.
        VTorqueError: a guest has no process.
    """
    processes = _processes(key, settings)
    for guest in guests:
        name = guest.guest_file.name
        own = {number: server for number, (text, server) in processes.items() if f"{guest.directory}/" in text}
        qemu = next((number for number, server in own.items() if not server), None)
        if qemu is None or guest.pins is None:
            raise VTorqueError(f"the threads of guest {name}", "it has no process")
        try:
            moved = threads.place_threads(name, qemu, (number for number, server in own.items() if server), guest.pins)
        except NodeFault as fault:
            if not is_preferred(guests):
                raise
            _log(str(fault), event_log.WARNING)
            continue
        on = "; ".join(f"vCPU {vcpu} on {written(cores)}" for vcpu, cores in enumerate(guest.pins.vcpus))
        also = f"; moved there: {', '.join(moved)}" if moved else ""
        _log(f"cores of {name}, read from its threads: {on}; other threads on {written(guest.pins.others)}{also}")


def _processes(key: str, settings: NodeSettings) -> dict[int, tuple[str, bool]]:
    """The command lines of a start's processes, and of each whether it serves a guest's qemu."""
    found = {}
    for number, owner in inventory.processes(settings):
        if owner == key:
            with contextlib.suppress(OSError):  # it ended meanwhile
                text = pathlib.Path(f"/proc/{number}/cmdline").read_bytes().decode("utf-8", "replace")
                found[number] = (text, text.startswith((virtiofsd.NAME, user_disk.NAME)))
    return found


def _log(text: str, level: str = event_log.INFO) -> None:
    event_log.note(2, text, level, "placement")

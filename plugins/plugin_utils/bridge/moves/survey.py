# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests of jobs are on this node, and what keeps each of them here."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils.eligibility.guest_saving import (
    CHECKPOINTS,
    NETWORKS,
    OSV,
    PINNED,
    STAYS,
    UEFI,
    objections_to_move,
)
from ....module_utils.errors import SiteFault, VTorqueError
from ....module_utils.guest_kinds import kind_of
from ....module_utils.job.batch.api import BatchJob, BatchSystem, UnknownJob
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.job.config.batch_systems import facts_of
from ....module_utils.job.config.parameters import Policy
from ....module_utils.node.domain.connection import Domains
from ....module_utils.node.domain.domain_xml import boots_by_uefi, unsavable_parts
from ....module_utils.node.state import moves, pause_order, start_lock
from ....module_utils.node.state.directories import entries
from ....module_utils.node.state.guest_file import read_guest_file
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.state.layout import start_of
from ....module_utils.wire.messages import PREFER_CORES, NodePart


@dataclasses.dataclass(frozen=True, slots=True)
class Resident:
    """A guest of a start that is here.

    Attributes:
        key: of the start.
        guest: its directory.
        part: by which it was made, without the other guests of its start; None: it cannot be moved.
        job: the batch server's answer; None: it gave none.
        why: what keeps it here; "": nothing.
    """

    key: str
    job_id: str
    start: int
    guest: pathlib.Path
    part: NodePart | None = None
    job: BatchJob | None = None
    why: str = ""


def list_residents(
    policy: Policy, settings: NodeSettings, batch: BatchSystem, domains: Domains
) -> tuple[Resident, ...]:
    """Return the guests of jobs that are on this node.

    What keeps one guest of a start here, keeps all of them.

    Args:
        policy: the site's.
        settings: NodeSettings of this node.
        batch: knows their jobs.
        domains: a connection to libvirt.

    Raises:
        NodeFault: libvirt does not answer, or the disk.
    """
    found: list[Resident] = []
    for place in entries(settings.guests_dir):
        named = start_of(place.name)
        guests = [path for path in entries(place) if path.is_dir()] if named else []
        if named is None or not guests:
            continue
        residents = [Resident(place.name, *named, guest) for guest in guests]
        try:
            found += _examine(residents, policy, settings, batch, domains)
        except UnknownJob:
            found += _reject_all(residents, "the batch server does not know its job")
        except VTorqueError as error:
            found += _reject_all(residents, str(error))
    return tuple(found)


def _reject_all(residents: t.Sequence[Resident], why: str, job: BatchJob | None = None) -> list[Resident]:
    return [dataclasses.replace(resident, why=why, job=job) for resident in residents]


def _examine(
    residents: t.Sequence[Resident], policy: Policy, settings: NodeSettings, batch: BatchSystem, domains: Domains
) -> list[Resident]:
    """Return the guests of one start, with what keeps them here."""
    first = residents[0]
    job = batch.job(first.job_id)
    if job.state != "R" or job.start_count != first.start:
        why = f"its job is in state {job.state or 'unknown'} of start {job.start_count}"
        return _reject_all(residents, why, job)
    source = moves.source_of(first.guest.parent)
    if source and not any(same_host(settings.node_name, node) for node in job.nodes):
        return _reject_all(residents, f"it came from {source}, and a guest is moved once", job)
    if start_lock.tombstone(settings, first.key).exists() or not start_lock.is_locked(
        start_lock.start_lock(settings, first.key)
    ):
        return _reject_all(residents, "it ends, or nobody watches it", job)
    if under_way := [one.guest.name for one in residents if moves.target_of(one.guest)]:
        target = moves.target_of(residents[0].guest.parent / under_way[0])
        return _reject_all(residents, f"whether {under_way[0]} has moved to {target} is not known yet", job)
    if pause_order.is_ordered(settings, first.key):
        return _reject_all(residents, "its guests stand still by an order, for a suspension or a checkpoint", job)
    part = moves.read_part(first.guest)
    guests = [resident.guest for resident in residents]
    if reasons := objections_to_move(_parts_in_the_way(guests, part, policy, domains)):
        return _reject_all(residents, "; ".join(reasons), job)
    return [dataclasses.replace(one, job=job, part=_part_of(one.guest, part)) for one in residents]


def _part_of(guest: pathlib.Path, part: NodePart) -> NodePart:
    """Return by what one guest of a start was made.

    Raises:
        VTorqueError: that is not known.
    """
    file = read_guest_file(guest)
    specs = tuple(spec for spec in part.guests if file is not None and spec.rank == file.rank)
    if len(specs) != 1:
        raise VTorqueError(f"guest {guest.name}", "its rank is not among those of its start")
    return dataclasses.replace(part, guests=specs)


def _parts_in_the_way(guests: t.Sequence[pathlib.Path], part: NodePart, policy: Policy, domains: Domains) -> set[str]:
    found: set[str] = set()
    for guest in guests:
        facts = domains.facts(guest.name)
        if facts is None or facts.state != "running":
            raise SiteFault(f"guest {guest.name}", f"its state is {facts.state if facts else 'unknown to libvirt'}")
        found |= unsavable_parts(facts.xml)
        found |= {UEFI} if boots_by_uefi(facts.xml) else set()
    there = {
        CHECKPOINTS: part.checkpoint_min >= 0,
        OSV: any(not kind_of(spec.distro).linux for spec in part.guests),
        PINNED: any(spec.vcpu_cores not in ("", PREFER_CORES) or spec.io_max for spec in part.guests),
        NETWORKS: any(spec.networks for spec in part.guests),
        STAYS: not facts_of(policy.batch_system).moves,
    }
    return found | {name for name, has in there.items() if has}

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which starts have guests on this node, and what keeps each of them here."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils.eligibility.guest_saving import (
    BATCH,
    CHECKPOINTS,
    NETWORKS,
    OSV,
    PINNED,
    SEVERAL,
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
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.state.layout import start_of
from ....module_utils.wire.messages import PREFER_CORES, NodePart


@dataclasses.dataclass(frozen=True, slots=True)
class Resident:
    """A start that has guests here.

    Attributes:
        key: of the start.
        guest: the directory of its only guest; None: it has several.
        part: by which it was made; None: it cannot be moved.
        job: the batch server's answer; None: it gave none.
        why: what keeps it here; "": nothing.
    """

    key: str
    job_id: str
    start: int
    guest: pathlib.Path | None = None
    part: NodePart | None = None
    job: BatchJob | None = None
    why: str = ""


def list_residents(
    policy: Policy, settings: NodeSettings, batch: BatchSystem, domains: Domains
) -> tuple[Resident, ...]:
    """Return the starts that have guests on this node.

    Args:
        policy: the site's.
        settings: this node's own.
        batch: knows their jobs.
        domains: a connection to libvirt.

    Raises:
        NodeFault: libvirt does not answer, or the disk.
    """
    found = []
    for place in entries(settings.guests_dir):
        named = start_of(place.name)
        guests = [path for path in entries(place) if path.is_dir()] if named else []
        if named is None or not guests:
            continue
        resident = Resident(place.name, *named, guests[0] if len(guests) == 1 else None)
        try:
            found.append(_examine(resident, guests, policy, settings, batch, domains))
        except UnknownJob:
            found.append(dataclasses.replace(resident, why="the batch server does not know its job"))
        except VTorqueError as error:
            found.append(dataclasses.replace(resident, why=str(error)))
    return tuple(found)


def _examine(
    resident: Resident,
    guests: t.Sequence[pathlib.Path],
    policy: Policy,
    settings: NodeSettings,
    batch: BatchSystem,
    domains: Domains,
) -> Resident:
    job = batch.job(resident.job_id)
    resident = dataclasses.replace(resident, job=job)
    if job.state != "R" or job.start_count != resident.start:
        why = f"its job is in state {job.state or 'unknown'} of start {job.start_count}"
        return dataclasses.replace(resident, why=why)
    if (source := moves.source_of(guests[0].parent)) and not any(same_host(settings.node_name, n) for n in job.nodes):
        return dataclasses.replace(resident, why=f"it came from {source}, and a guest is moved once")
    if start_lock.tombstone(settings, resident.key).exists() or not start_lock.is_held(
        start_lock.start_lock(settings, resident.key)
    ):
        return dataclasses.replace(resident, why="it ends, or nobody watches it")
    if pause_order.is_ordered(settings, resident.key):
        return dataclasses.replace(resident, why="its guests stand still by an order, for a suspension or a checkpoint")
    reasons = objections_to_move(_parts_in_the_way(resident, guests, policy, domains))
    if reasons or len(guests) > 1:
        return dataclasses.replace(resident, why="; ".join(reasons))
    return dataclasses.replace(resident, part=moves.read_part(guests[0]))


def _parts_in_the_way(
    resident: Resident, guests: t.Sequence[pathlib.Path], policy: Policy, domains: Domains
) -> set[str]:
    found: set[str] = set()
    for guest in guests:
        facts = domains.facts(guest.name)
        if facts is None or facts.state != "running":
            raise SiteFault(f"guest {guest.name}", f"its state is {facts.state if facts else 'unknown to libvirt'}")
        found |= unsavable_parts(facts.xml)
        found |= {UEFI} if boots_by_uefi(facts.xml) else set()
    part = moves.read_part(guests[0])
    there = {
        SEVERAL: len(part.guests) > 1,
        CHECKPOINTS: part.checkpoint_min >= 0,
        OSV: any(not kind_of(spec.distro).linux for spec in part.guests),
        PINNED: any(spec.vcpu_cores not in ("", PREFER_CORES) or spec.io_max for spec in part.guests),
        NETWORKS: any(spec.networks for spec in part.guests),
        BATCH: not facts_of(policy.batch_system).checkpoints,
    }
    return found | {name for name, has in there.items() if has}

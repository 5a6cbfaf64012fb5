# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This node's guests learn who else is in the job, and how to reach them."""

from __future__ import annotations

import pathlib
import typing as t

from ...errors import VTorqueError
from ...guest_kinds import KINDS
from ...rendering.templates import render
from ...site_lists.guest_networks import RDMA, read_addresses
from ...state.layout import job_key
from ...system.clock import Deadline
from ...system.files import read_json
from ...wire.form import from_dict
from ...wire.messages import JobMap
from ...wire.node_answers import GuestFacts
from ..devices import host_devices
from ..network import cards, nft_rules
from ..network.host_names import further_names_by, names_by
from ..state import saved_memory
from ..state.guest_file import GuestFile, read_guest_file
from ..state.settings import NodeSettings
from .agent import Channel, OrderResult, order_all
from .osv import osv_console

TEMPLATE = "guest/join.sh.j2"
TOLD = "told"
"""In a guest's directory, from the moment in which it is told of its job."""


def join(job_map: JobMap, settings: NodeSettings, deadline: Deadline) -> None:
    """Tell every guest of a start on this node of the whole job.

    Afterwards it has names and addresses of all hosts, their host keys, the node file, and the key with which its user
    reaches them.  From now on they are the job's (`handover.py`).

    Args:
        job_map: what it learns.
        settings: NodeSettings of this node.
        deadline: when all must have it.

    Raises:
        VTorqueError: a guest does not answer, or could not take it.
    """
    script = script_of(job_map, settings)
    guests = guests_of(job_map.job_id, job_map.start, settings)
    if not guests:
        raise VTorqueError(f"join of job {job_map.job_id}", "no guest of this start is here")
    for guest in guests:
        (settings.start_dir(job_map.job_id, job_map.start) / guest.name / TOLD).touch(mode=0o600)
    if settings.confine_guests:
        addresses = {bare: [host.address for host in job_map.hosts if host.bare is bare] for bare in (False, True)}
        held = [_on_bridge(guest, job_map, settings) for guest in guests]
        nft_rules.admit(held, addresses[False], addresses[True], settings)
        _admit_further(guests, job_map, settings)
    for guest in guests:
        if not KINDS[guest.kind].linux:
            osv_console.hand_over(guest, job_map.job_id, job_map.start, settings)
    orders = [(channel_to(guest, settings), script) for guest in guests if KINDS[guest.kind].linux]
    require_done(order_all(orders, deadline), "could not take the map of its job")


def _admit_further(guests: t.Sequence[GuestFile], job_map: JobMap, settings: NodeSettings) -> None:
    """On each further network, let the guests here reach those of their job by their addresses there."""
    job: dict[str, list[str]] = {}
    for host in job_map.hosts:
        for name, address in read_addresses(host.networks).items():
            job.setdefault(name, []).append(address)
    held: dict[str, list[nft_rules.Guest]] = {}
    for guest in guests:
        for name, card in cards.confined(_facts(guest, job_map, settings).networks, guest.slot, settings):
            held.setdefault(name, []).append(card)
    for name, its_cards in held.items():
        nft_rules.admit(its_cards, job.get(name, []), [], settings)
    if RDMA in job:
        host_devices.admit(settings, job_key(job_map.job_id, job_map.start), job[RDMA])


def _facts(guest: GuestFile, job_map: JobMap, settings: NodeSettings) -> GuestFacts:
    """What this node has proven of a guest, whatever the mother superior says of it."""
    directory = settings.start_dir(job_map.job_id, job_map.start) / guest.name
    return from_dict(GuestFacts, read_json(directory / "facts.json"))


def _on_bridge(guest: GuestFile, job_map: JobMap, settings: NodeSettings) -> nft_rules.Guest:
    address = _facts(guest, job_map, settings).address
    return nft_rules.Guest(settings.tap_name(guest.slot), guest.mac, address)


def has_joined(job_id: str, start: int, settings: NodeSettings) -> bool:
    """Return whether any guest of a start on this node was told of its job."""
    return any(settings.start_dir(job_id, start).glob(f"*/{TOLD}"))


def guests_of(job_id: str, start: int, settings: NodeSettings) -> tuple[GuestFile, ...]:
    """What is kept of each guest of a start on this node, by rank."""
    directory: pathlib.Path = settings.start_dir(job_id, start)
    found = [read_guest_file(path) for path in sorted(directory.iterdir())] if directory.is_dir() else []
    return tuple(sorted((guest for guest in found if guest is not None), key=lambda guest: guest.rank))


def with_channel(job_id: str, start: int, settings: NodeSettings) -> tuple[GuestFile, ...]:
    """The guests of a start on this node whose root hears us: not one that was saved to the disk."""
    directory: pathlib.Path = settings.start_dir(job_id, start)
    return tuple(
        guest
        for guest in guests_of(job_id, start, settings)
        if KINDS[guest.kind].linux and not saved_memory.is_away(directory / guest.name)
    )


def channel_to(guest: GuestFile, settings: NodeSettings) -> Channel:
    """The way to a guest's root."""
    return Channel(guest.name, settings.agent_socket(guest.slot), guest.token)


def require_done(done: dict[str, OrderResult], what: str) -> None:
    """Every guest did as it was told.

    Raises:
        VTorqueError: one did not; with what it said.
    """
    for name, one in done.items():
        if one.status != 0:
            raise VTorqueError(f"guest {name}", f"{what}: {one.output[-500:] or f'status {one.status}'}")


def script_of(job_map: JobMap, settings: NodeSettings) -> str:
    """What each guest's root runs.

    Raises:
        SiteFault: the site's template is wrong.
    """
    return render(
        TEMPLATE,
        site_dir=settings.template_dir,
        compiled=settings.compiled_dir,
        hosts=job_map.hosts,
        job_id=job_map.job_id,
        names=names_by(job_map.hosts, settings.domain),
        further=further_names_by(settings.domain),
        torque_home=str(settings.torque_home),
        job_key=job_map.job_key,
    )

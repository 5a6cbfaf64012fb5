# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this node has room again for the guests of a start that were saved: a batch system may not have looked."""

from __future__ import annotations

import contextlib
import xml.etree.ElementTree as ET

from ...errors import SiteFault
from ...state.layout import job_key, start_of
from ...system import files
from ...system.clock import Deadline
from ...time_budget import ADDRESSES_ANSWER_S
from ...wire.form import FormError, from_dict
from ...wire.node_answers import GuestFacts
from ..domain.connection import Domains
from ..domain.domain_xml import DomainFacts, memory_bytes
from ..network import cards, nft_rules, taken_address
from ..placement import claims, hugepages, ledger
from ..state import saved_memory, slots, start_lock
from ..state.guest_file import GuestFile, read_guest_file
from ..state.settings import NodeSettings
from ..system import cpus, memory, side_channels


def saved_guests(settings: NodeSettings, key: str) -> tuple[saved_memory.SavedGuest, ...]:
    """Return the guests of a start whose memory is on this node's disk, and which were not ordered to return yet.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.
    """
    return tuple(one for one in saved_memory.read_saved(settings.guests_dir / key) if one.complete)


def lack_here(settings: NodeSettings, key: str) -> str:
    """Return the same as `lack`, and ask libvirt for it only where guests of the start are saved, or must be apart.

    Raises:
        NodeFault: see `lack`.
    """
    saved = saved_guests(settings, key)
    if not saved and settings.side_channels == side_channels.OFF:
        return ""
    with Domains(settings.libvirt_uri) as domains:
        if near := find_neighbour(settings, key, domains):
            return near
        return (saved and (lack(settings, key, domains) or lack_of_addresses(settings, key))) or ""


def find_neighbour(settings: NodeSettings, key: str, domains: Domains, cores: cpus.Cores = ()) -> str:
    """Return why guests of a start must not run now, by the site's `side_channels`; "": they may.

    Guests of a suspended job, which stand still, are no neighbours: they are asked about when they are to go on.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.
        domains: a connection to libvirt.
        cores: of its guests; (): those that its domains have, or any of the node where they are saved.

    Raises:
        NodeFault: libvirt does not answer.
        SiteFault: the kernel does not tell of its cores.
    """
    level = settings.side_channels
    if level == side_channels.OFF:
        return ""
    by_key: dict[str, list[DomainFacts]] = {}
    for facts in domains.list():
        start = job_key(facts.mark.job_id, facts.mark.start) if facts.mark else ""
        if (settings.guests_dir / start / facts.name).is_dir():
            by_key.setdefault(start, []).append(facts)
    mine = set(cores) or {core for facts in by_key.get(key, ()) for core in _cores_of(facts)}
    for start, others in by_key.items():
        running = [facts for facts in others if facts.state == "running"]
        if start == key or not running:
            continue
        theirs = {core for facts in running for core in _cores_of(facts)}
        if level == side_channels.CORES and mine and theirs:
            shared = {core for one in theirs for core in side_channels.find_siblings(one)} & mine
            if not shared:
                continue
        what = "the node" if level != side_channels.CORES else "cores"
        return f"guests of {start} run on {settings.node_name}, and share {what} with no other job's (side_channels)"
    return ""


def check_neighbours(settings: NodeSettings, key: str, domains: Domains, cores: cpus.Cores) -> None:
    """Check that guests of a start may run beside what runs here now; see `find_neighbour`.

    Raises:
        SiteFault: they may not.
    """
    if near := find_neighbour(settings, key, domains, cores):
        raise SiteFault(f"the guests of {key}", near, "vtorque-sweep removes those of jobs that are over")


def _cores_of(facts: DomainFacts) -> cpus.Cores:
    """The cores of a domain; (): all of the node's."""
    vcpu = ET.fromstring(facts.xml).find("vcpu")  # noqa: S314 - written by libvirt
    return cpus.read(vcpu.get("cpuset", "")) if vcpu is not None else ()


def lack(settings: NodeSettings, key: str, domains: Domains) -> str:
    """Return why the saved guests of a start cannot come back now; "": they can.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.
        domains: a connection to libvirt.

    Raises:
        NodeFault: libvirt does not answer, or what is on this node cannot be read.
    """
    saved = saved_guests(settings, key)
    if not saved or start_of(key) is None:
        return ""
    here = settings.node_name
    if not start_lock.is_locked(start_lock.start_lock(settings, key)):
        return f"nobody watches over its guests on {here} any more; delete the job"
    names = {one.name for one in saved}
    others = [facts for facts in domains.list(ours=False) if facts.name not in names]
    running = slots.running(settings, slots.read_slots(settings))
    if len(running) + len(saved) > settings.max_guests:
        return f"{here} bears {settings.max_guests} guests, and has {', '.join(sorted(running))}"
    taken = claims.read_claims(settings, key, {facts.name for facts in others})
    pins = [claims.read_pins(settings.guests_dir / key / name) for name in names]
    mine = {core for one in pins if one is not None for core in one.cores}
    if busy := sorted(mine & set(taken)):
        whose = ", ".join(sorted({taken[core] for core in busy}))
        return f"cores {cpus.format_cores(tuple(busy))} of {here} have been given to {whose}"
    wanted = sum(one.expected_bytes for one in saved) >> 20
    free = memory.node_mib() - settings.host_ram_mib - hugepages.pools_mib(settings)
    promised = claims.read_promises(settings, key, {facts.name for facts in others})
    free -= ledger.sum_ordinary(promised) + (sum(memory_bytes(facts.xml) for facts in others if not facts.mark) >> 20)
    free = min(free, memory.available_mib())
    if wanted > free:
        return f"{here} has {max(0, free)} MiB of memory for guests now, and {wanted} MiB are needed"
    return _lack_of_rules(settings, key, names)


def _lack_of_rules(settings: NodeSettings, key: str, names: set[str]) -> str:
    """What a guest may send must be held before it runs: its rules have stayed, unless somebody flushed them."""
    if not settings.confine_guests:
        return ""
    held = set(nft_rules.list_confined_devices(settings))
    for name in sorted(names):
        guest_file = read_guest_file(settings.guests_dir / key / name)
        if guest_file is None or not held.issuperset(_confined_cards(guest_file, key, settings)):
            return f"the network rules of {name} on {settings.node_name} are gone"
    return ""


def _confined_cards(guest: GuestFile, key: str, settings: NodeSettings) -> tuple[str, ...]:
    """The network devices of a guest for which there must be rules."""
    networks = ""
    with contextlib.suppress(OSError, FormError):
        networks = from_dict(
            GuestFacts, files.read_json(settings.guests_dir / key / guest.name / "facts.json")
        ).networks
    return settings.tap_name(guest.slot), *cards.list_confined_devices(networks, guest.slot, settings)


def lack_of_addresses(settings: NodeSettings, key: str) -> str:
    """Return which other host has got the address of a saved guest: both would be out of reach; "": none has.

    It waits for answers of the network, so that nobody calls it who holds the lock of what starts take.  Whoever calls
    it a moment later does not wait again: the whole job is asked about before the first of its guests goes on.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.

    Raises:
        VTorqueError: that is not known.
    """
    own: dict[str, str] = {}
    asked = []
    for one in saved_guests(settings, key):
        guest = settings.guests_dir / key / one.name
        if saved_memory.has_free_addresses(guest):
            continue
        with contextlib.suppress(OSError, FormError):
            facts = from_dict(GuestFacts, files.read_json(guest / "facts.json"))
            own[facts.address] = facts.mac
            asked.append(guest)
    found = own and taken_address.find_holders(own, settings.bridge, Deadline.after(ADDRESSES_ANSWER_S))
    for guest in () if found else asked:
        with contextlib.suppress(OSError):
            saved_memory.note_free_addresses(guest)
    return "".join(f"{mac} has got the address {address} of a guest" for address, mac in sorted(found.items())[:1])

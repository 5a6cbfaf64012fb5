# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this node has room again for the guests of a start that were saved: a batch system may not have looked."""

from __future__ import annotations

import contextlib

from ...state.layout import start_of
from ...system import files
from ...system.clock import Deadline
from ...time_budget import ADDRESSES_ANSWER_S
from ...wire.form import FormError, from_dict
from ...wire.node_answers import GuestFacts
from ..domain.connection import Domains
from ..domain.domain_xml import memory_bytes
from ..network import cards, nft_rules, taken_address
from ..placement import claims, hugepages, ledger
from ..state import saved_memory, slots, start_lock
from ..state.guest_file import GuestFile, read_guest_file
from ..state.settings import NodeSettings
from ..system import cpus, memory


def saved_guests(settings: NodeSettings, key: str) -> tuple[saved_memory.SavedGuest, ...]:
    """Return the guests of a start whose memory is on this node's disk, and which were not ordered to return yet.

    Args:
        settings: this node's own.
        key: `layout.job_key` of the start.
    """
    return tuple(one for one in saved_memory.read_saved(settings.guests_dir / key) if one.complete)


def lack_here(settings: NodeSettings, key: str) -> str:
    """Return the same as `lack`, and ask libvirt for it only where guests of the start are saved.

    Raises:
        NodeFault: see `lack`.
    """
    if not saved_guests(settings, key):
        return ""
    with Domains(settings.libvirt_uri) as domains:
        return lack(settings, key, domains) or lack_of_addresses(settings, key)


def lack(settings: NodeSettings, key: str, domains: Domains) -> str:
    """Return why the saved guests of a start cannot come back now; "": they can.

    Args:
        settings: this node's own.
        key: `layout.job_key` of the start.
        domains: a connection to libvirt.

    Raises:
        NodeFault: libvirt does not answer, or what is on this node cannot be read.
    """
    saved = saved_guests(settings, key)
    if not saved or start_of(key) is None:
        return ""
    here = settings.node_name
    if not start_lock.is_held(start_lock.start_lock(settings, key)):
        return f"nobody watches over its guests on {here} any more; delete the job"
    names = {one.name for one in saved}
    others = [facts for facts in domains.list(ours=False) if facts.name not in names]
    running = slots.running(settings, slots.taken(settings))
    if len(running) + len(saved) > settings.max_guests:
        return f"{here} bears {settings.max_guests} guests, and has {', '.join(sorted(running))}"
    taken = claims.read_claims(settings, key, {facts.name for facts in others})
    pins = [claims.read_pins(settings.guests_dir / key / name) for name in names]
    mine = {core for one in pins if one is not None for core in one.cores}
    if busy := sorted(mine & set(taken)):
        whose = ", ".join(sorted({taken[core] for core in busy}))
        return f"cores {cpus.written(tuple(busy))} of {here} have been given to {whose}"
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
    held = set(nft_rules.held(settings))
    for name in sorted(names):
        guest_file = read_guest_file(settings.guests_dir / key / name)
        if guest_file is None or not held.issuperset(_held_cards(guest_file, key, settings)):
            return f"the network rules of {name} on {settings.node_name} are gone"
    return ""


def _held_cards(guest: GuestFile, key: str, settings: NodeSettings) -> tuple[str, ...]:
    """The network devices of a guest for which there must be rules."""
    networks = ""
    with contextlib.suppress(OSError, FormError):
        networks = from_dict(
            GuestFacts, files.read_json(settings.guests_dir / key / guest.name / "facts.json")
        ).networks
    return settings.tap_name(guest.slot), *cards.held_devices(networks, guest.slot, settings)


def lack_of_addresses(settings: NodeSettings, key: str) -> str:
    """Return which other host has got the address of a saved guest: both would be out of reach; "": none has.

    It waits for answers of the network, so that nobody calls it who holds the lock of what starts take.

    Args:
        settings: this node's own.
        key: `layout.job_key` of the start.

    Raises:
        VTorqueError: that is not known.
    """
    own: dict[str, str] = {}
    for one in saved_guests(settings, key):
        with contextlib.suppress(OSError, FormError):
            facts = from_dict(GuestFacts, files.read_json(settings.guests_dir / key / one.name / "facts.json"))
            own[facts.address] = facts.mac
    found = own and taken_address.find_holders(own, settings.bridge, Deadline.after(ADDRESSES_ANSWER_S))
    return "".join(f"{mac} has got the address {address} of a guest" for address, mac in sorted(found.items())[:1])

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest that comes from another node while it runs: its place here, and the wait until it is there.

Its node brings it (`bridge/moves/send.py`), through connections that this node lets in for this guest alone.  Its disk
is an empty overlay over the same revision of the image, which libvirt fills with what the guest has written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import time
import typing as t

from ....errors import VTorqueError
from ....state.layout import job_key
from ....system import files
from ....system.clock import Deadline
from ....system.files import make_directory
from ....system.process import process_id
from ....wire.form import to_dict
from ....wire.messages import GuestSpec
from ....wire.moves import Arrival
from ....wire.node_answers import GuestFacts
from ...cache import disk_space, wait_for_copy
from ...domain.connection import Domains
from ...guest import join
from ...network import addresses, nft_rules, reachable
from ...pool import images
from ...state import checkpoint_store, moves, slots
from ...state.guest_file import GuestFile, digest_of, read_guest_file, write_guest_file
from ...state.settings import NodeSettings
from ...storage import overlay as overlays
from ...storage import shares
from ...system import memory, side_channels

LOOK_S = 0.1
"""Between two looks whether the guest runs here."""
Step = t.Callable[[str], None]


def receive(
    arrival: Arrival, settings: NodeSettings, domains: Domains, deadline: Deadline, step: Step
) -> tuple[GuestFacts, ...]:
    """Make room for a guest, and wait until it goes on here.

    Args:
        arrival: of the guest.
        settings: NodeSettings of this node.
        domains: a connection to libvirt.
        deadline: when it must be there; its node gives up before.
        step: hears what is done next, and may raise to end it.

    Returns:
        The guest, as it was on its node but for its cores.

    Raises:
        VTorqueError: it cannot come here, or did not come.
    """
    part, (spec,) = arrival.part, arrival.part.guests
    if arrival.processor and arrival.processor != digest_of_processor():
        why = f"{settings.node_name} has another processor than {arrival.source}"
        raise VTorqueError(f"guest {arrival.facts.name} cannot come here", why)
    mounts = shares.plan_mounts(settings, part.owner)
    wait_for_copy.wait_for_copies(part.guests, settings, deadline, step)
    here = addresses.node_address(settings.bridge, deadline)
    step("slots and directories")
    file, directory = _take_place(arrival, settings, domains, deadline)
    moves.note_arrival(directory, arrival.source)
    device = settings.tap_name(file.slot)
    if settings.confine_guests:
        step("the rules of the network")
        one = nft_rules.Guest(device, file.mac, arrival.facts.address)
        nft_rules.apply_rules([one], reachable.reach(settings, here, mounts.file_servers, deadline), settings)
        nft_rules.admit([one], arrival.job.split(",") if arrival.job else [], [], settings)
    step("the disk")
    _put_disk(spec, directory, settings, deadline)
    files.write(directory / "facts.json", json.dumps(to_dict(_facts_of(arrival))))
    (directory / "console.log").touch(mode=0o600)
    (directory / join.TOLD).touch(mode=0o600)
    settings.agents_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    place = directory / moves.MOVE
    place.mkdir(mode=0o700)
    os.chown(place, domains.capabilities().qemu_ids[0], -1)  # whose sockets will be there
    return _await(arrival, file, directory, settings, domains, deadline, step)


def await_again(
    arrival: Arrival, settings: NodeSettings, domains: Domains, deadline: Deadline, step: Step
) -> tuple[GuestFacts, ...]:
    """Wait for a guest whose place is made, where whoever did so has died: it may run here by now, and nowhere else.

    Arguments and errors are those of `receive`.

    Returns:
        The guest; (): it has no place here yet.
    """
    directory = _directory_of(arrival, settings)
    file = read_guest_file(directory)
    if file is None or not (directory / moves.MOVE).is_dir():
        return ()
    return _await(arrival, file, directory, settings, domains, deadline, step, begun=True)


def _directory_of(arrival: Arrival, settings: NodeSettings) -> pathlib.Path:
    return settings.start_dir(arrival.part.job_id, arrival.part.start) / arrival.facts.name


def _await(
    arrival: Arrival,
    file: GuestFile,
    directory: pathlib.Path,
    settings: NodeSettings,
    domains: Domains,
    deadline: Deadline,
    step: Step,
    *,
    begun: bool = False,
) -> tuple[GuestFacts, ...]:
    step(f"the wait for {file.name} of {arrival.source}")
    key = job_key(arrival.part.job_id, arrival.part.start)
    _wait(file, key, domains, deadline, lambda: step(f"the wait for {file.name}"), seen=begun)
    domains.limit_memory(file.name, memory.limit_mib(arrival.part.guests[0], settings.host_ram_mib))
    side_channels.separate_threads(file.name, settings.side_channels)
    moves.end_move(directory)
    return (_facts_of(arrival),)


def _facts_of(arrival: Arrival) -> GuestFacts:
    return dataclasses.replace(arrival.facts, vcpu_cores="", other_cores="", io_least=0)


def digest_of_processor() -> str:
    """Return the SHA-256 of which processor this node has, and what it can do."""
    return hashlib.sha256(checkpoint_store.read_processor().encode()).hexdigest()


def _take_place(
    arrival: Arrival, settings: NodeSettings, domains: Domains, deadline: Deadline
) -> tuple[GuestFile, pathlib.Path]:
    part, (spec,), facts = arrival.part, arrival.part.guests, arrival.facts
    there = domains.list(ours=False)
    if any(one.name == facts.name or one.uuid == arrival.uuid for one in there):
        raise VTorqueError(f"guest {facts.name}", f"a guest of that name is on {settings.node_name} already")
    names = {one.name for one in there}

    def busy(slot: int) -> bool:
        return settings.guest_name(slot) in names or (addresses.SYS_NET / settings.tap_name(slot)).exists()

    key = job_key(part.job_id, part.start)
    (slot,) = slots.take(settings, key, 1, deadline, busy=busy, names=[facts.name])
    file = GuestFile(
        spec.rank,
        slot,
        facts.name,
        facts.mac,
        arrival.uuid,
        arrival.token,
        part.owner.uid,
        digest_of(spec, part),
        process_id.boot_id(),
        ram_mib=spec.ram_mib,
    )
    directory = _directory_of(arrival, settings)
    make_directory(directory)
    write_guest_file(directory, file)
    return file, directory


def _put_disk(spec: GuestSpec, directory: pathlib.Path, settings: NodeSettings, deadline: Deadline) -> None:
    with wait_for_copy.base_of(images.find(spec.image, settings.pool), spec.fs_type, settings) as base:
        with disk_space.counted(settings, deadline) as taken:
            overlays.make_overlay(base, directory / "disk.qcow2", deadline, taken=taken, qemu_img=settings.qemu_img)
        images.copy_boot(base, directory)


def _wait(
    file: GuestFile, key: str, domains: Domains, deadline: Deadline, alive: t.Callable[[], None], *, seen: bool
) -> None:
    """Wait until the guest runs; libvirt lets it go on here only when it has ended there."""
    what = f"guest {file.name} of start {key}"
    while not deadline.passed:
        facts = domains.facts(file.name)
        if facts is not None and facts.uuid != file.uuid:
            raise VTorqueError(what, "another domain of its name came")
        if facts is not None and facts.state == "running":
            return
        if facts is None and seen:
            raise VTorqueError(what, "its move was undone")
        if facts is not None and not seen:
            seen = True
            alive()
        time.sleep(LOOK_S)
    raise VTorqueError(what, "did not come in time")

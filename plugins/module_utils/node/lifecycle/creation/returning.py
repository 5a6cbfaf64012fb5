# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a checkpoint that return, with the names, MAC addresses and addresses that they had."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import typing as t
import xml.etree.ElementTree as ET

from ....errors import SiteFault, VTorqueError
from ....state.layout import job_key
from ....system import files
from ....system.clock import Deadline, Timings
from ....system.files import make_directory
from ....system.process import process_id
from ....wire.form import from_dict, to_dict
from ....wire.messages import GuestSpec, NodePart
from ....wire.node_answers import GuestFacts
from ...cache import wait_for_copy
from ...domain.capabilities import why_no_machine
from ...domain.connection import Domains
from ...domain.domain_xml import NAMESPACE
from ...guest import clock
from ...network import addresses, nft_rules, reachable, taken_address
from ...state import checkpoint_store, saved_memory, slots
from ...state.guest_file import GuestFile, digest_of, write_guest_file
from ...state.settings import NodeSettings
from ...storage import shares
from ...system import memory, side_channels
from ...system.cpus import Cores, format_cores
from .. import room

Step = t.Callable[[str], None]
CLOCK_S = 30.0


@dataclasses.dataclass
class _ReturningGuest:
    spec: GuestSpec
    was: GuestFile
    now: GuestFile
    facts: GuestFacts
    directory: pathlib.Path
    timings: Timings


def bring_back(
    part: NodePart, settings: NodeSettings, domains: Domains, deadline: Deadline, step: Step, cores: Cores = ()
) -> tuple[GuestFacts, ...]:
    """Bring the guests of a checkpoint to this node, and let them go on.

    Args: see `build.create_guests`.

    Returns:
        The guests, by rank.

    Raises:
        VTorqueError: they are not what was saved, or cannot return here.
    """
    if settings.checkpoint_dir is None:
        raise SiteFault(f"{settings.node_name} has no checkpoint_dir", "from which guests could return")
    if why := checkpoint_store.why_unsafe(settings.checkpoint_dir):
        raise SiteFault(f"checkpoint_dir on {settings.node_name}", why)
    key = job_key(part.job_id, part.start)
    room.check_neighbours(settings, key, domains, cores)
    mounts = shares.plan_mounts(settings, part.owner)
    wait_for_copy.wait_for_copies(part.guests, settings, deadline, step)
    here = addresses.node_address(settings.bridge, deadline)
    whom = reachable.reach(settings, here, mounts.file_servers, deadline) if settings.confine_guests else None
    step("slots and directories")
    guests = _plan(part, settings, domains, deadline)
    on_bridge = [nft_rules.Guest(settings.tap_name(one.now.slot), one.now.mac, one.facts.address) for one in guests]
    if whom:
        step("the rules of the network")
        nft_rules.apply_rules(on_bridge, whom, settings)
    for one in guests:
        step(f"the files of {one.now.name}")
        with one.timings.phase("disk"):
            checkpoint_store.bring_guest(
                pathlib.Path(one.spec.saved_in), one.spec.saved_digest, one.directory, deadline
            )
            write_guest_file(one.directory, one.now)
            (one.directory / checkpoint_store.RETURNED).touch(mode=0o600)
            (one.directory / "console.log").touch(mode=0o600)
    own = {one.facts.address: one.facts.mac for one in guests}
    if taken := taken_address.find_holders(own, settings.bridge, deadline):
        address, mac = next(iter(taken.items()))
        raise VTorqueError(f"the address {address} of a guest", f"{mac} has got it")
    _restore(guests, part, settings, domains, step, cores)
    step("the clocks of the guests")
    problems = clock.set_clocks(
        part.job_id,
        part.start,
        settings,
        [one.now.name for one in guests],
        Deadline.after(deadline.left_s(CLOCK_S)),
        reconnect=True,
    )
    if problems:
        raise VTorqueError(f"the guests of start {key} have returned, and do not answer", "; ".join(problems))
    step("the facts of the guests")
    return tuple(sorted((_write_facts(one, settings.side_channels) for one in guests), key=lambda facts: facts.rank))


def _restore(
    guests: t.Sequence[_ReturningGuest],
    part: NodePart,
    settings: NodeSettings,
    domains: Domains,
    step: Step,
    cores: Cores,
) -> None:
    """All of them stand still first, and then go on together."""
    settings.agents_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    for one in guests:
        step(f"the return of {one.now.name}")
        with one.timings.phase("start"):
            host = domains.host_capabilities()
            change = functools.partial(_change, one=one, part=part, settings=settings, cores=cores, host=host)
            domains.restore(saved_memory.memory_file(one.directory), change)
            domains.limit_memory(one.now.name, memory.limit_mib(one.spec, settings.host_ram_mib))
            side_channels.separate_threads(one.now.name, settings.side_channels)
    for one in guests:
        domains.pause(one.now.name, paused=False)
        saved_memory.forget(one.directory)


def _write_facts(one: _ReturningGuest, level: str) -> GuestFacts:
    """Say of a guest what it was, in the time that this start took."""
    took = {phase: round(seconds, 4) for phase, seconds in one.timings.seconds.items()}
    promise = "" if level == side_channels.OFF else level
    facts = dataclasses.replace(
        one.facts, timings_s=took, vcpu_cores="", other_cores="", io_least=0, side_channels=promise
    )
    (one.directory / "facts.json").unlink(missing_ok=True)
    files.write(one.directory / "facts.json", json.dumps(to_dict(facts)))
    return facts


def _plan(part: NodePart, settings: NodeSettings, domains: Domains, deadline: Deadline) -> list[_ReturningGuest]:
    """Slots and directories of all guests, before the first is brought."""
    store = t.cast(pathlib.Path, settings.checkpoint_dir)
    saved: list[tuple[GuestSpec, GuestFile, GuestFacts]] = []
    for spec in part.guests:
        place = pathlib.Path(spec.saved_in)
        if place.parent.parent != checkpoint_store.job_dir(store, part.job_id):
            raise VTorqueError(f"the checkpoint {place}", f"is none of job {part.job_id} in {store}")
        try:
            needed = ("guest.json", "facts.json", checkpoint_store.PROCESSOR)
            checkpoint_store.check_files(place, spec.saved_digest, needed)
            was = GuestFile(**files.read_json(place / "guest.json"))
            saved.append((spec, was, from_dict(GuestFacts, files.read_json(place / "facts.json"))))
            if spec.hypervisor == "kvm":
                _check_processor(place)
        except (OSError, TypeError) as error:
            raise VTorqueError(f"the checkpoint of guest {place.name}", str(error)) from error
    here = {facts.name for facts in domains.list(ours=False)}
    if clash := sorted(here & {was.name for _spec, was, _facts in saved}):
        raise VTorqueError(f"guest {clash[0]}", f"a guest of that name is on {settings.node_name} already")

    def busy(slot: int) -> bool:
        return settings.guest_name(slot) in here or addresses.any_device(settings.tap_names(slot))

    key = job_key(part.job_id, part.start)
    names = [was.name for _spec, was, _facts in saved]
    given = slots.take(settings, key, len(saved), deadline, busy=busy, names=names)
    found = []
    for slot, (spec, was, facts) in zip(given, saved, strict=True):
        now = dataclasses.replace(
            was, slot=slot, spec_digest=digest_of(spec, part), boot_id=process_id.boot_id(), owner_uid=part.owner.uid
        )
        directory = settings.start_dir(part.job_id, part.start) / was.name
        make_directory(directory)
        write_guest_file(directory, now)
        found.append(_ReturningGuest(spec, was, now, facts, directory, Timings()))
    return found


def _check_processor(place: pathlib.Path) -> None:
    if (place / checkpoint_store.PROCESSOR).read_text("utf-8") != checkpoint_store.read_processor():
        why = "this node has another processor than the one where it was saved"
        raise VTorqueError(f"guest {place.name} cannot return here", why)


def _change(
    xml: ET.Element,
    *,
    one: _ReturningGuest,
    part: NodePart,
    settings: NodeSettings,
    cores: Cores,
    host: ET.Element,
) -> None:
    """Make of a saved domain's XML what this node has of it: places of files, device of the bridge, and cores."""
    if why := why_no_machine(xml, host, settings.node_name):
        raise VTorqueError(f"guest {one.now.name} cannot return here", why)
    mark = xml.find(f"metadata/{{{NAMESPACE}}}guest")
    if mark is None:
        raise VTorqueError(f"the saved domain {one.now.name}", "bears no mark of ours")
    before = f"/{job_key(mark.get('job', ''), int(mark.get('start', '0')))}/"
    after = f"/{job_key(part.job_id, part.start)}/"
    for element in xml.iter():
        for name, value in element.attrib.items():
            if before in value:
                element.set(name, value.replace(before, after))
        if element.text and before in element.text:
            element.text = element.text.replace(before, after)
    mark.set("start", str(part.start))
    mark.set("node", settings.node_name)
    for target in xml.iterfind("devices/interface/target"):
        target.set("dev", settings.tap_name(one.now.slot))
    old_socket = str(settings.agent_socket(one.was.slot))
    for source in xml.iterfind("devices/channel/source"):
        if source.get("path") == old_socket:
            source.set("path", str(settings.agent_socket(one.now.slot)))
    _place(xml, cores)


def _place(xml: ET.Element, cores: Cores) -> None:
    """Let all threads share the job's cores here, whatever they had before."""
    for tune in xml.findall("cputune"):
        xml.remove(tune)
    vcpu = xml.find("vcpu")
    if vcpu is not None:
        vcpu.attrib.pop("cpuset", None)
        if cores:
            vcpu.set("cpuset", format_cores(cores))
            emulator = ET.SubElement(xml, "cputune")
            ET.SubElement(emulator, "emulatorpin", cpuset=format_cores(cores))

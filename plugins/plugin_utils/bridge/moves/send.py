# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest of this node goes to a spare one while it runs; what fails before it is there leaves it here.

    claim the spare -> order (`state/moves.py`) -> `arrive` there -> files -> libvirt's migration -> note -> clear here

libvirt lets the guest go on there only when it has ended here, and leaves it here when anything fails.  Where it is
not known what became of it, the spare node is asked; until it answers, nothing is done here (`finish_move`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import time
import typing as t
import xml.etree.ElementTree as ET

from ....module_utils.errors import VTorqueError
from ....module_utils.job.batch.api import BatchSystem
from ....module_utils.node.domain import usage
from ....module_utils.node.domain.capabilities import why_no_machine
from ....module_utils.node.domain.connection import Domains
from ....module_utils.node.domain.domain_xml import NAMESPACE
from ....module_utils.node.guest import user_additions
from ....module_utils.node.lifecycle.creation.arriving import digest_of_processor
from ....module_utils.node.network import nft_rules
from ....module_utils.node.removal.remove import save_console
from ....module_utils.node.state import moves, pause_order, start_lock
from ....module_utils.node.state.guest_file import GuestFile, read_guest_file
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.state import event_log, layout
from ....module_utils.state.layout import job_key
from ....module_utils.system import files, relay
from ....module_utils.system.clock import Deadline
from ....module_utils.wire.form import from_dict, to_dict
from ....module_utils.wire.messages import NodePart
from ....module_utils.wire.moves import DISK, FILES, LIBVIRT, MEMORY, STATE, Arrival, MovedGuest, Stream
from ....module_utils.wire.node_answers import GuestFacts
from . import spares
from .connection import Channel, NotAnswered, end_call, open_call, read_answer, send_files, send_request
from .survey import Resident

PAUSE_AFTER_S, PAUSE_AFTER_MIB_S, PAUSED_S = 60.0, 0.03, 60.0
"""A guest that changes its memory faster than it is copied stands still after so many seconds, and so many for each
MiB of its memory; and no longer than so many: then it stays."""
PLACE_S = 300.0
"""For the spare node to have a copy of the image and a place for the guest."""
REMOVAL_S = 60.0
WHY_S = 5.0
MOVED_FILES = ("seed.iso", "known_hosts", user_additions.HAS)
"""What a guest has in its directory besides its disk, and the spare node cannot make."""


class GuestRejected(VTorqueError):
    """A spare node did not take a guest in; nothing was copied, and another one may."""


def move(resident: Resident, target: str, settings: NodeSettings, batch: BatchSystem, domains: Domains) -> MovedGuest:
    """Have a guest go on, on a spare node.

    Args:
        resident: it, which nothing keeps here.
        target: the spare node, which is free.
        settings: NodeSettings of this node.
        batch: writes the note of the spare node.
        domains: a connection to libvirt.

    Returns:
        What became of it.

    Raises:
        GuestRejected: it is here as before, and may go to another spare node.
        VTorqueError: it is here as before; or it is not known where it is.
    """
    guest = resident.guest
    try:
        spares.claim(batch, target, resident.job_id)
    except VTorqueError as error:
        raise GuestRejected(error.what, error.why, error.hint) from error
    began = time.monotonic()
    try:
        place = moves.order_move(guest, target)
    except OSError as error:
        spares.give_back(batch, target, resident.job_id)
        raise VTorqueError(f"the move of guest {guest.name}", str(error)) from error
    try:
        paused_s = _bring(resident, target, settings, domains, place)
    except (OSError, VTorqueError) as error:
        moved = finish_move(guest, resident.job_id, resident.start, settings, batch, domains)
        if moved is not None:
            return moved
        why = f"guest {guest.name} did not go to {target}, and goes on here: {error}"
        _log(settings, resident.job_id, resident.start, why, event_log.WARNING)
        if isinstance(error, OSError):
            raise VTorqueError(f"the move of guest {guest.name}", str(error)) from error
        raise
    return _commit(
        guest, resident.job_id, resident.start, target, settings, domains, time.monotonic() - began, paused_s
    )


def finish_move(
    guest: pathlib.Path, job_id: str, start: int, settings: NodeSettings, batch: BatchSystem, domains: Domains
) -> MovedGuest | None:
    """Bring a move to its end that was broken off: the guest is there, or here; never at both.

    Args:
        guest: its directory here, with an order.
        job_id: of its job.
        start: its number.
        settings: NodeSettings of this node.
        batch: writes the note of the spare node.
        domains: a connection to libvirt.

    Returns:
        What became of it; None: it is here.

    Raises:
        VTorqueError: the spare node does not answer, so that nothing is done.
    """
    target = moves.target_of(guest)
    question = Stream(2, "stream", job_id, start, target, guest.name, STATE, 0.0)
    there = send_request(target, question)
    facts = domains.facts(guest.name)
    # one that has come there may stand still or be saved by now: what has no domain here is removed nowhere else
    if "running" in there.get("states", ()) or (facts is None and there.get("arrived")):
        return _commit(guest, job_id, start, target, settings, domains, 0.0, -1.0)
    if facts is None and there.get("states"):
        raise VTorqueError(f"the move of guest {guest.name} to {target}", "it has ended here, and stands still there")
    removal = NodePart.removal(job_id, start, target, REMOVAL_S)
    if there.get("awaited") and send_request(target, removal, REMOVAL_S + 30.0).get("left"):
        raise VTorqueError(f"the move of guest {guest.name} to {target}", "something of it is left there")
    if facts is not None and facts.state == "paused" and not pause_order.is_ordered(settings, job_key(job_id, start)):
        domains.pause(guest.name, paused=False)
    moves.end_move(guest)
    with contextlib.suppress(VTorqueError):  # the sweep of that node does it, too
        spares.give_back(batch, target, job_id)
    return None


def _bring(resident: Resident, target: str, settings: NodeSettings, domains: Domains, place: pathlib.Path) -> float:
    guest, part = place.parent, t.cast(NodePart, resident.part)
    file = t.cast(GuestFile, read_guest_file(guest))
    pause_after_s = PAUSE_AFTER_S + PAUSE_AFTER_MIB_S * part.guests[0].ram_mib
    timeout_s = PLACE_S + pause_after_s + PAUSED_S
    arrival = _arrival(guest, file, part, target, settings, timeout_s + 2 * REMOVAL_S)
    stream = functools.partial(Stream, 2, "stream", resident.job_id, resident.start, target, guest.name)
    qemu_uid = domains.capabilities().qemu_ids[0]
    call, taken = open_call(target, arrival), False
    try:
        with contextlib.ExitStack() as opened:
            # their programs load while the spare node makes a place: one after the other they took a third of a move
            users = {LIBVIRT: os.geteuid(), DISK: qemu_uid, MEMORY: qemu_uid}
            channels = {name: opened.enter_context(Channel(target, stream(name, PLACE_S))) for name in users}
            answer = send_files(target, stream(FILES, PLACE_S), _contents(guest, domains), call)
            slot = int(answer["slots"][0])
            taken = True
            for name, channel in channels.items():
                opened.callback(relay.Listener(place / f"{name}.sock", users[name], channel.serve).close)
            there = opened.enter_context(Domains(f"qemu+unix:///system?socket={place / LIBVIRT}.sock"))
            _demand_running(resident, settings, domains)
            paused_s = domains.move(
                guest.name,
                there,
                functools.partial(
                    _change, file=file, slot=slot, target=target, settings=settings, host=there.host_capabilities()
                ),
                place / f"{MEMORY}.sock",
                place / f"{DISK}.sock",
                pause_after_s=pause_after_s,
                give_up_after_s=pause_after_s + PAUSED_S,
            )
            # libvirt leaves one still there that was so when it began, which may have been since the look
            there.pause(guest.name, paused=False)
        read_answer(call, target, Deadline.after(REMOVAL_S))
        return paused_s
    except (OSError, VTorqueError) as error:
        why = _reason(call, target, error, f"the move of guest {guest.name}")
        raise (why if taken else GuestRejected(why.what, why.why, why.hint)) from error
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise VTorqueError(f"vtorque-node on {target}", f"its answer is of another form: {error}") from error
    finally:
        end_call(call)


def _demand_running(resident: Resident, settings: NodeSettings, domains: Domains) -> None:
    """Check that a guest runs: since it was looked at, others have moved, and the spare node has fetched its image.

    Raises:
        VTorqueError: it stands still, or is to.
    """
    facts = domains.facts(resident.guest.name)
    if facts is None or facts.state != "running" or pause_order.is_ordered(settings, resident.key):
        raise VTorqueError(
            f"the move of guest {resident.guest.name}", "it stands still meanwhile, by an order or a loss"
        )


def _reason(call: subprocess.Popen[bytes], target: str, error: OSError | VTorqueError, what: str) -> VTorqueError:
    """Return why a guest did not come to a spare node: what that says of it itself is worth more than an error here."""
    try:
        read_answer(call, target, Deadline.after(WHY_S))
    except NotAnswered:
        pass
    except VTorqueError as refusal:
        return refusal
    return error if isinstance(error, VTorqueError) else VTorqueError(what, str(error))


def _arrival(
    guest: pathlib.Path, file: GuestFile, part: NodePart, target: str, settings: NodeSettings, timeout_s: float
) -> Arrival:
    device = settings.tap_name(file.slot)
    job, hosts = nft_rules.admitted(device, settings) if settings.confine_guests else ((), ())
    if hosts:
        raise VTorqueError(f"guest {guest.name}", "some hosts of its job stay bare")
    return Arrival(
        1,
        "arrive",
        settings.node_name,
        dataclasses.replace(part, node=target, timeout_s=timeout_s),
        from_dict(GuestFacts, files.read_json(guest / "facts.json")),
        file.uuid,
        file.token,
        ",".join(job),
        digest_of_processor() if part.guests[0].hypervisor == "kvm" else "",
    )


def _contents(guest: pathlib.Path, domains: Domains) -> dict[str, bytes]:
    found = {}
    for name in MOVED_FILES:
        with contextlib.suppress(FileNotFoundError):
            found[name] = (guest / name).read_bytes()
    if (used := usage.measure_before(domains, guest)) is not None:
        found[usage.BEFORE] = json.dumps(to_dict(used)).encode()
    return found


def _change(
    xml: ET.Element, *, file: GuestFile, slot: int, target: str, settings: NodeSettings, host: ET.Element
) -> None:
    """Make of a domain's XML what the spare node has of it: its device of the bridge, its channel, and all cores."""
    if why := why_no_machine(xml, host, target):
        raise GuestRejected(f"the move of guest {file.name} to {target}", why)
    mark = xml.find(f"metadata/{{{NAMESPACE}}}guest")
    if mark is None:
        raise VTorqueError(f"the domain {file.name}", "bears no mark of ours")
    mark.set("node", target)
    for device in xml.iterfind("devices/interface/target"):
        device.set("dev", settings.tap_name(slot))
    for source in xml.iterfind("devices/channel/source"):
        if source.get("path") == str(settings.agent_socket(file.slot)):
            source.set("path", str(settings.agent_socket(slot)))
    for tune in xml.findall("cputune"):
        xml.remove(tune)
    if (vcpu := xml.find("vcpu")) is not None:
        vcpu.attrib.pop("cpuset", None)


def _commit(
    guest: pathlib.Path,
    job_id: str,
    start: int,
    target: str,
    settings: NodeSettings,
    domains: Domains,
    seconds: float,
    paused_s: float,
) -> MovedGuest:
    """The guest runs there: say so, and take away what is here of it but its slot, whose name and MAC it has."""
    file = read_guest_file(guest)
    record = settings.record_dir(job_id, start)
    if file is None or start_lock.tombstone(settings, job_key(job_id, start)).exists():
        send_request(target, NodePart.removal(job_id, start, target, REMOVAL_S), REMOVAL_S + 30.0)
        raise VTorqueError(f"the move of guest {guest.name}", "its job has ended meanwhile")
    moved = MovedGuest(
        guest.name,
        file.mac,
        settings.node_name,
        target,
        round(time.time(), 3),
        round(seconds, 3),
        round(paused_s, 3),
    )
    moves.note_moved(record, moved, file.owner_uid)
    facts = domains.facts(guest.name)
    if facts is not None and facts.uuid == file.uuid:  # libvirt did not hear that it has ended here
        domains.destroy(guest.name)
    took = f" in {seconds:.1f} s" if seconds else ""
    pause = f", and stood still for {paused_s:.2f} s of it" if paused_s >= 0 else ""
    _log(settings, job_id, start, f"guest {guest.name} has moved from {settings.node_name} to {target}{took}{pause}")
    save_console(guest, record, settings, file.owner_uid)
    shutil.rmtree(guest, ignore_errors=True)
    settings.agent_socket(file.slot).unlink(missing_ok=True)
    with contextlib.suppress(VTorqueError):  # the end of the start does it again
        nft_rules.let_go([settings.tap_name(file.slot)], settings)
    return moved


def _log(settings: NodeSettings, job_id: str, start: int, text: str, level: str = event_log.INFO) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(settings.record_dir(job_id, start) / layout.LOG, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        try:
            event_log.note(fd, text, level, "move")
        finally:
            os.close(fd)

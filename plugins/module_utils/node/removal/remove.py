# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything of a start taken away from this node."""

from __future__ import annotations

import contextlib
import pathlib
import shutil

from ...errors import NodeFault, VTorqueError
from ...state import layout
from ...state.layout import job_key
from ...system import files
from ...system.clock import Deadline
from ...time_budget import ADDRESSES_ANSWER_S, BARE_KEYS_S
from ..bare.loading import load_bare_host
from ..devices import host_devices
from ..domain import usage
from ..domain.connection import Domains
from ..guest.console import plain
from ..io_cores import changes, interrupts
from ..network import addresses, nft_rules, private
from ..placement import hugepages
from ..state import slots
from ..state.directories import entries
from ..state.guest_file import read_guest_file
from ..state.settings import NodeSettings
from ..telemetry import node_figures, textfile
from .leftovers import end_processes


def remove_start(job_id: str, start: int, settings: NodeSettings, domains: Domains) -> tuple[str, ...]:
    """Take away everything of a start: domains first, slots last, so that no name or MAC is free too early.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        domains: a connection to libvirt.

    Returns:
        What was removed, as words.

    Raises:
        NodeFault: libvirt does not answer, a process did not end, or the disk is broken.
    """
    key = job_key(job_id, start)
    directory = settings.start_dir(job_id, start)
    removed = [f"metrics of {key}"] if textfile.remove(key, settings) else []
    macs: set[str] = set()
    there = [
        facts for facts in domains.list() if facts.mark and (facts.mark.job_id, facts.mark.start) == (job_id, start)
    ]
    before = usage.read_before(entries(directory))
    if there or before:
        owner = next(
            (guest_file.owner_uid for path in entries(directory) if (guest_file := read_guest_file(path))), None
        )
        names = {facts.name for facts in there}
        record = settings.record_dir(job_id, start)
        io = changes.read_summary(record)
        usage.save_use(domains, names, record, owner, before, (io.most_used, io.count) if io else None)
    for facts in there:
        macs |= set(facts.macs)
        if domains.destroy(facts.name):
            removed.append(f"domain {facts.name}")
    for pid, ended in end_processes(settings, key).items():
        removed.append(f"process {pid}" if ended else f"process {pid} of the user's, as soon as the kernel lets it end")
    removed += host_devices.give_back(settings, key)
    removed += hugepages.give_back(key, settings)
    removed += interrupts.put_back(key, settings)
    for path in entries(directory):
        guest_file = read_guest_file(path)
        if guest_file is not None:
            macs.add(guest_file.mac)
        save_console(path, settings.record_dir(job_id, start), settings, guest_file.owner_uid if guest_file else None)
    removed += private.remove(key, settings)
    _delete(directory, removed)
    if macs:
        # without a bridge there is nothing to forget
        with contextlib.suppress(NodeFault):
            addresses.flush(macs, settings.bridge, Deadline.after(ADDRESSES_ANSWER_S))
    mine = [slot for slot, holder in slots.read_slots(settings).items() if holder.partition("/")[0] == key]
    for slot in mine:
        settings.agent_socket(slot).unlink(missing_ok=True)
    taps = [device for slot in mine for device in settings.tap_names(slot)]
    removed += [f"network rules {name}" for name in nft_rules.let_go(taps, settings)]
    removed += [f"slot {slot}" for slot in slots.free(settings, key)]
    node_figures.write_node(settings)
    if (settings.bare_dir / key).is_dir():  # a node has guests or stays bare; whatever is here goes
        removed += load_bare_host().remove(key, settings, Deadline.after(BARE_KEYS_S))
    return tuple(removed)


def _delete(directory: pathlib.Path, removed: list[str]) -> None:
    if not directory.is_dir():
        return
    try:
        shutil.rmtree(directory)
    except OSError as error:
        raise NodeFault(f"{directory} was not removed", str(error), cause="disk") from error
    removed.append(f"directory {directory.name}")


def save_console(guest: pathlib.Path, target: pathlib.Path, settings: NodeSettings, owner_uid: int | None) -> None:
    """The end of a console outlives its guest, harmless on a terminal; that it cannot be kept stops no removal.

    Args:
        guest: its directory.
        target: the directory of the job's record.
        settings: says how much is kept.
        owner_uid: who may read it besides root; None: nobody.
    """
    try:
        with (guest / "console.log").open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - settings.console_keep_bytes))
            text = stream.read(settings.console_keep_bytes).decode("utf-8", "replace")
        if text:
            files.make_record_directory(target, owner_uid)
            lines = "\n".join(map(plain, text.splitlines()))
            files.write(target / f"{guest.name}{layout.CONSOLE_END}", f"{lines}\n", reader_uid=owner_uid)
    except (OSError, VTorqueError):
        return

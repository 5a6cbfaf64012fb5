# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests used: asked just before they are taken away, by whoever does it, and kept for whoever asks later.

The accounts of the batch system know of a ssh client alone; this is the job's real use.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import types
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...state import layout
from ...system import files
from ...wire.form import FormError, from_dict, to_dict
from ...wire.node_answers import NOT_KNOWN, GuestUse
from ..system import process_figures
from .connection import Domains

WITHIN_S = 1.0
"""For libvirt's answer: a guest that hangs is taken away without its figures."""
BEFORE = "used_before.json"
"""In a guest's directory: what it had used when it was saved to the disk."""


def save_use(
    domains: Domains,
    names: t.Collection[str],
    record: pathlib.Path,
    owner_uid: int | None,
    before: t.Mapping[str, GuestUse] = types.MappingProxyType({}),
    io_cores: tuple[int, int] | None = None,
) -> None:
    """Write down what guests have used so far; that it cannot be written, or is not known, stops no removal.

    Args:
        domains: a connection to libvirt.
        names: of guests that are about to go.
        record: the directory of the job's record on this node; figures of guests that went earlier stay there.
        owner_uid: who may read it besides root; None: nobody.
        before: what guests used before they were saved to the disk, with which libvirt's figures begin anew.
        io_cores: the most cores that virtual I/O of all of them has used at a time, and how often their number changed;
            None: they had none.
    """
    with contextlib.suppress(OSError, VTorqueError):
        figures = domains.figures(names, WITHIN_S)
        # a removal that failed half-way is done again: then what was written has all of it already
        found = dict(before) | {one.name: one for one in read_use(record)}
        for name, measured in figures.items():
            found[name] = add_use(before.get(name), use_of(name, measured, _read_process(name)))
            if io_cores is not None:
                found[name] = dataclasses.replace(found[name], io_cores_most=io_cores[0], io_changes=io_cores[1])
        if figures or before:
            files.make_record_directory(record, owner_uid)
            text = json.dumps({"used": [to_dict(found[name]) for name in sorted(found)]})
            files.write(record / layout.USED, text, reader_uid=owner_uid)


def read_use(record: pathlib.Path) -> tuple[GuestUse, ...]:
    """What was written down of guests that have gone; () when nothing was.

    Args:
        record: the directory of the job's record on this node.
    """
    try:
        data = files.read_json(record / layout.USED)
        return tuple(from_dict(GuestUse, one) for one in data.get("used", []))
    except (OSError, FormError, VTorqueError, TypeError):
        return ()


def measure_before(domains: Domains, guest: pathlib.Path) -> GuestUse | None:
    """Return what a guest has used in all, just before it is saved to the disk; None: that is not known.

    Args:
        domains: a connection to libvirt.
        guest: its directory.
    """
    with contextlib.suppress(VTorqueError):
        measured = domains.figures([guest.name], WITHIN_S).get(guest.name)
        if measured is not None:
            return add_use(
                read_before([guest]).get(guest.name), use_of(guest.name, measured, _read_process(guest.name))
            )
    return None


def note_before(guest: pathlib.Path, used: GuestUse) -> None:
    """Remember what a guest had used when it was saved.

    Raises:
        VTorqueError: it was not written.
    """
    files.write(guest / BEFORE, json.dumps(to_dict(used)))


@leaves_nothing
def read_before(guests: t.Iterable[pathlib.Path]) -> dict[str, GuestUse]:
    """Return what guests had used when they were saved last, by name; of those that never were nothing.

    Args:
        guests: their directories.
    """
    found = {}
    for guest in guests:
        with contextlib.suppress(OSError, FormError, VTorqueError, TypeError):
            found[guest.name] = from_dict(GuestUse, files.read_json(guest / BEFORE))
    return found


def add_use(before: GuestUse | None, since: GuestUse) -> GuestUse:
    """Return what a guest used in two parts of its life together; what is not known of one is not known of both."""
    if before is None:
        return since

    def together(name: str) -> t.Any:
        both = getattr(before, name), getattr(since, name)
        return NOT_KNOWN if NOT_KNOWN in both else sum(both)

    sums = ("read_bytes", "written_bytes", "received_bytes", "sent_bytes")
    return GuestUse(
        name=since.name,
        cpu_s=round(together("cpu_s"), 3),
        wait_s=round(together("wait_s"), 3),
        ram_peak_bytes=max(before.ram_peak_bytes, since.ram_peak_bytes),
        **{name: together(name) for name in sums},
    )


def use_of(name: str, measured: t.Mapping[str, int], process: process_figures.ProcessFigures | None = None) -> GuestUse:
    """A guest's use from libvirt's figures, those of all its disks and interfaces together, and from the kernel's.

    Args:
        name: of the guest.
        measured: as `Domains.figures` has them.
        process: of its process; None: not known.
    """

    def together(pattern: str) -> int:
        found = [figure for key, figure in measured.items() if re.fullmatch(pattern, key)]
        return sum(found) if found else NOT_KNOWN

    cpu_ns = measured.get("cpu.process")
    return GuestUse(
        name=name,
        cpu_s=NOT_KNOWN if cpu_ns is None else round(cpu_ns / 1e9, 3),
        ram_peak_bytes=(process.peak_bytes or NOT_KNOWN) if process else NOT_KNOWN,
        read_bytes=together(r"block\.[0-9]+\.rd\.bytes"),
        written_bytes=together(r"block\.[0-9]+\.wr\.bytes"),
        received_bytes=together(r"net\.[0-9]+\.rx\.bytes"),
        sent_bytes=together(r"net\.[0-9]+\.tx\.bytes"),
        wait_s=NOT_KNOWN if process is None or process.wait_s is None else round(process.wait_s, 3),
    )


def _read_process(name: str) -> process_figures.ProcessFigures | None:
    pid = process_figures.read_pid(name)
    return None if pid is None else process_figures.read_figures(pid)

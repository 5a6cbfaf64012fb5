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
import typing as t

from ...errors import VTorqueError
from ...state import layout
from ...system import files
from ...wire.form import FormError, from_dict, to_dict
from ...wire.node_answers import NOT_KNOWN, GuestUse
from ..state.directories import entries
from ..system import process_figures
from .connection import Domains

EARLIER = "used-before.json"
"""In a guest's directory: what its processes had used that ended when it was saved."""
WITHIN_S = 1.0
"""For libvirt's answer: a guest that hangs is taken away without its figures."""


def save_use(
    domains: Domains, names: t.Collection[str], record: pathlib.Path, owner_uid: int | None, guests: pathlib.Path
) -> None:
    """Write down what guests have used so far; that it cannot be written, or is not known, stops no removal.

    Args:
        domains: a connection to libvirt.
        names: of domains that are about to go.
        record: the directory of the job's record on this node; figures of guests that went earlier stay there.
        owner_uid: who may read it besides root; None: nobody.
        guests: the directory of the start's guests, with what each had used when it was saved.
    """
    with contextlib.suppress(OSError, VTorqueError):
        earlier = {path.name: use for path in entries(guests) if (use := _read_earlier(path))}
        figures = domains.figures(names, WITHIN_S) if names else {}
        found = {**earlier, **{one.name: one for one in read_use(record)}}
        for name, measured in figures.items():
            found[name] = _add(earlier.get(name), use_of(name, measured, _read_process(name)))
        if figures or earlier:
            files.make_record_directory(record, owner_uid)
            text = json.dumps({"used": [to_dict(found[name]) for name in sorted(found)]})
            files.write(record / layout.USED, text, reader_uid=owner_uid)


def measure(domains: Domains, name: str) -> GuestUse | None:
    """Return what a guest's process has used; None: that is not known.

    Args:
        domains: a connection to libvirt.
        name: of the guest.
    """
    with contextlib.suppress(VTorqueError):
        for measured in domains.figures([name], WITHIN_S).values():
            return use_of(name, measured, _read_process(name))
    return None


def note_earlier(guest: pathlib.Path, use: GuestUse) -> None:
    """Write down what a guest has used whose process has ended, and which will have another; it stops nothing.

    Args:
        guest: its directory.
        use: of the process that has ended.
    """
    with contextlib.suppress(OSError, VTorqueError):
        files.write(guest / EARLIER, json.dumps(to_dict(_add(_read_earlier(guest), use))))


def _read_earlier(guest: pathlib.Path) -> GuestUse | None:
    try:
        return from_dict(GuestUse, files.read_json(guest / EARLIER))
    except (OSError, VTorqueError):
        return None


def _add(earlier: GuestUse | None, use: GuestUse) -> GuestUse:
    """What the processes of a guest have used together; of its memory the most."""
    if earlier is None:
        return use
    before, now = earlier.known(), use.known()
    both = {name: round(before.get(name, 0) + now.get(name, 0), 3) for name in {**before, **now}}
    peak = max(earlier.ram_peak_bytes, use.ram_peak_bytes)
    return dataclasses.replace(use, **{**both, "ram_peak_bytes": peak})  # type: ignore[arg-type]


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

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores and which memory of this node the guests of each start have: what one start has, no other gets.

Each guest's directory says it, so that it ends with what else there is of the guest, whoever removes it.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ...errors import VTorqueError
from ...system import files
from ..state import saved_memory, start_lock
from ..state.directories import entries
from ..state.guest_file import read_guest_file
from ..state.settings import NodeSettings
from ..system import cpus
from .ledger import Promise
from .pins import Pins

FILE = "cores.json"


def claim(directory: pathlib.Path, pins: Pins, promise: Promise | None = None) -> None:
    """Write down which cores a guest has, and which memory; the caller holds the lock of all claims.

    Args:
        directory: of the guest.
        pins: its cores.
        promise: its memory; None: in whatever cell the kernel takes.

    Raises:
        VTorqueError: it was not written.
    """
    content: dict[str, t.Any] = {
        "vcpus": list(map(cpus.format_cores, pins.vcpus)),
        "others": cpus.format_cores(pins.others),
    }
    if pins.io_least:
        content["io_least"] = pins.io_least
    if promise is not None and (promise.cells or promise.pages):
        content["memory"] = [[cell, mib] for cell, mib in promise.cells.items()]
        content["pages"] = [[*pool, count] for pool, count in promise.pages.items()]
        content["taken"] = promise.taken
    files.write(directory / FILE, json.dumps(content))


def note_pages_in_use(directory: pathlib.Path) -> None:
    """Write down that a guest's qemu has its pages: from now on they are no longer among the free ones.

    Args:
        directory: of the guest.

    Raises:
        VTorqueError: it was not written.
    """
    content = files.read_json(directory / FILE)
    files.write(directory / FILE, json.dumps({**content, "taken": True}))


def read_promises(settings: NodeSettings, but: str, running: t.Collection[str]) -> list[Promise]:
    """Read which memory the guests of other starts have; as `read_claims`.

    Args:
        settings: NodeSettings of this node.
        but: the start that does not count (`state.layout.job_key`).
        running: the names of all domains of this node.

    Raises:
        NodeFault: the directories cannot be read.
    """
    return [_promise(path) for _start, path in _living(settings, but, running)]


def _promise(directory: pathlib.Path) -> Promise:
    guest_file = read_guest_file(directory)
    region = guest_file.region_mib if guest_file else 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, KeyError, TypeError, ValueError, VTorqueError):
        content = files.read_json(directory / FILE)
        cells = {int(cell): int(mib) for cell, mib in content["memory"]}
        pages = {(int(cell), int(kib)): int(count) for cell, kib, count in content["pages"]}
        return Promise(region, cells, pages, bool(content["taken"]))
    return Promise(region + (guest_file.ram_mib if guest_file else 0))


def read_claims(settings: NodeSettings, but: str, running: t.Collection[str]) -> dict[int, str]:
    """Read which cores the guests of other starts have.

    A start has cores as long as somebody works on it or watches it, or a domain of it is there: what else is there of
    it is what the sweep has not removed yet.  A guest whose memory is on the disk has none until it returns.

    Args:
        settings: NodeSettings of this node.
        but: the start that does not count (`state.layout.job_key`).
        running: the names of all domains of this node.

    Returns:
        By core, whose it is: the key of a start.

    Raises:
        NodeFault: the directories cannot be read.
    """
    found: dict[int, str] = {}
    for start, directory in _living(settings, but, running):
        pins = read_pins(directory)
        found.update(dict.fromkeys(pins.cores if pins else (), start))
    return found


def _living(settings: NodeSettings, but: str, running: t.Collection[str]) -> t.Iterator[tuple[str, pathlib.Path]]:
    """The directories of guests that live, with the keys of their starts; a guest whose memory is saved has nothing."""
    for start in entries(settings.guests_dir):
        for guest in entries(start) if start.name != but else ():
            lives = guest.name in running or start_lock.is_locked(start_lock.start_lock(settings, start.name))
            if lives and (guest.name in running or not saved_memory.needs_nothing(guest)):
                yield start.name, guest


def read_pins(directory: pathlib.Path) -> Pins | None:
    """Return which cores a guest has; None where it has none of its own, was removed meanwhile, or does not say.

    Args:
        directory: of the guest.
    """
    try:
        content = files.read_json(directory / FILE)
        least = int(content.get("io_least", 0))
        return Pins(tuple(map(cpus.read, content["vcpus"])), cpus.read(content["others"]), least)
    except (FileNotFoundError, NotADirectoryError, KeyError, TypeError, ValueError, AttributeError, VTorqueError):
        return None

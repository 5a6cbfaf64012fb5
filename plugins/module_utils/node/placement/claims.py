# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores of this node the guests of each start have: what one start has, no other gets.

Each guest's directory says it, so that it ends with what else there is of the guest, whoever removes it.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from ...errors import VTorqueError
from ...system import files
from ..state import saved_memory, start_lock
from ..state.directories import entries
from ..state.settings import NodeSettings
from ..system import cpus
from .pins import Pins

FILE = "cores.json"


def claim(directory: pathlib.Path, pins: Pins) -> None:
    """Write down which cores a guest has; the caller holds the lock of all claims.

    Args:
        directory: of the guest.
        pins: its cores.

    Raises:
        VTorqueError: it was not written.
    """
    content = {"vcpus": list(map(cpus.written, pins.vcpus)), "others": cpus.written(pins.others)}
    files.write(directory / FILE, json.dumps(content))


def read_claims(settings: NodeSettings, but: str, running: t.Collection[str]) -> dict[int, str]:
    """Read which cores the guests of other starts have.

    A start has cores as long as somebody works on it or watches it, or a domain of it is there: what else is there of
    it is what the sweep has not removed yet.  A guest whose memory is on the disk has none until it returns.

    Args:
        settings: this node's own.
        but: the start that does not count (`state.layout.job_key`).
        running: the names of all domains of this node.

    Returns:
        By core, whose it is: the key of a start.

    Raises:
        NodeFault: the directories cannot be read.
    """
    found: dict[int, str] = {}
    for start in entries(settings.guests_dir):
        if start.name == but:
            continue
        for file in sorted(start.glob(f"*/{FILE}")):
            lives = file.parent.name in running or start_lock.is_held(start_lock.start_lock(settings, start.name))
            if lives and (file.parent.name in running or not saved_memory.needs_nothing(file.parent)):
                found.update(dict.fromkeys(_read(file), start.name))
    return found


def cores_of(guest: pathlib.Path) -> cpus.Cores:
    """Return the cores that a guest has, or had; () where it has none of its own.

    Args:
        guest: its directory.
    """
    return _read(guest / FILE)


def _read(file: pathlib.Path) -> cpus.Cores:
    """The cores of a guest; () where it was removed meanwhile, or does not say."""
    try:
        content = files.read_json(file)
        lists = [*content["vcpus"], content["others"]]
        return tuple(core for text in lists for core in cpus.read(text))
    except (FileNotFoundError, NotADirectoryError, KeyError, TypeError, ValueError, AttributeError, VTorqueError):
        return ()

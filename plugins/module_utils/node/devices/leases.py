# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leases: which device of this node belongs to which start, and which devices are in quarantine.

A lease is a link of root's that names the start, its guest and the driver that the device had: it is there whole or not
at all, outlives every process, and says to whoever finds it what is to be given back to whom.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import time

from ...errors import VTorqueError
from ...frozen import frozen
from ...system import files
from ...text import printable
from ..state.directories import entries
from ..state.settings import NodeSettings

LEASES, QUARANTINE = "leases", "quarantine"
NAME = r"[0-9a-z][0-9a-z:._-]{0,63}"
_NOTHING = "-"


@frozen
class Lease:
    """A device that a start has.

    Attributes:
        device: its name; of a PCI device the address.
        key: `state.layout.job_key` of the start.
        guest: index of the guest on this node.
        kind: of the device (`api.KINDS`).
        driver: that had the device before, or "".
    """

    device: str
    key: str
    guest: int
    kind: str
    driver: str = ""


@frozen
class QuarantinedDevice:
    """A device that is handed to no guest until an administrator releases it.

    Attributes:
        why: in one line.
        since_s: in seconds since the epoch; 0: it is not known.
    """

    device: str
    why: str
    since_s: float = 0.0


def is_used(settings: NodeSettings) -> bool:
    """Return whether this node has ever handed out a device: others pay nothing."""
    return settings.devices_dir.is_dir()


def read_leases(settings: NodeSettings) -> tuple[Lease, ...]:
    """Return all leases, by device.

    Raises:
        NodeFault: they cannot be read.
    """
    found = []
    for path in entries(settings.devices_dir / LEASES):
        # another start may give its device back meanwhile
        with contextlib.suppress(OSError, ValueError):
            key, guest, kind, driver = str(path.readlink()).split("/")
            found.append(Lease(path.name, key, int(guest), kind, "" if driver == _NOTHING else driver))
    return tuple(found)


def write_lease(lease: Lease, settings: NodeSettings) -> None:
    """Note a device as a start's; the caller holds the lock of devices.

    Raises:
        VTorqueError: its directory was not made.
        OSError: the lease was not written, or somebody has the device.
    """
    place = settings.devices_dir / LEASES
    files.make_directory(place)
    (place / lease.device).symlink_to(f"{lease.key}/{lease.guest}/{lease.kind}/{lease.driver or _NOTHING}")


def end_lease(device: str, settings: NodeSettings) -> None:
    """Forget whose a device was."""
    (settings.devices_dir / LEASES / device).unlink(missing_ok=True)


def free(settings: NodeSettings, key: str) -> tuple[str, ...]:
    """Forget all leases of a start of an earlier boot: the node's own start has reset its devices.

    Returns:
        The devices.
    """
    found = tuple(lease.device for lease in read_leases(settings) if lease.key == key)
    for device in found:
        end_lease(device, settings)
    return found


def read_quarantine(settings: NodeSettings) -> tuple[QuarantinedDevice, ...]:
    """Return the devices in quarantine.

    Raises:
        NodeFault: they cannot be read.
    """
    found = []
    for path in entries(settings.devices_dir / QUARANTINE):
        if not re.fullmatch(NAME, path.name):
            continue
        why, since_s = "it is not known why", 0.0
        with contextlib.suppress(OSError, VTorqueError, KeyError, TypeError, ValueError):
            noted = files.read_json(path)
            why, since_s = printable(str(noted["why"])[:500]), float(noted["since"])
        found.append(QuarantinedDevice(path.name, why, since_s))
    return tuple(found)


def quarantine(device: str, why: str, settings: NodeSettings) -> None:
    """Hand a device to no guest any more.

    Args:
        device: its name.
        why: in one line.
        settings: say where.

    Raises:
        VTorqueError: it was not noted.
    """
    place = settings.devices_dir / QUARANTINE
    files.make_directory(place)
    files.write(place / device, json.dumps({"why": why, "since": round(time.time())}))


def release(device: str, settings: NodeSettings) -> bool:
    """Let guests have a device again; False: it was not in quarantine."""
    path = settings.devices_dir / QUARANTINE / device
    if not re.fullmatch(NAME, device) or not path.exists():
        return False
    path.unlink(missing_ok=True)
    return True


def lock_of(settings: NodeSettings) -> pathlib.Path:
    """Return the lock under which devices are chosen."""
    return settings.run_dir / "locks" / "devices"

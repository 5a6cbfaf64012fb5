# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mediated devices (mdev): parts that the driver of a device makes of it, such as vGPUs.

The site makes them (mdevctl) and lists their UUIDs.  They are chosen, checked and leased with all other devices of a
request (`passthrough.py`).  There is no driver to be bound: the one that made them hands them to vfio, and clears them
when the guest lets go.
"""

from __future__ import annotations

import contextlib
import typing as t

from ....errors import VTorqueError
from ....system.clock import Deadline
from ....wire.messages import GuestSpec
from ...state.settings import NodeSettings
from .. import leases
from ..api import HostDevice, Taking
from . import inventory, passthrough


def is_wanted(_spec: GuestSpec) -> bool:
    """Return False: a guest asks for a class, and `passthrough.take` chooses of whatever kind the class is."""
    return False


def take(_taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """See `is_wanted`."""
    return {}


def attach(_devices: t.Sequence[HostDevice], _qemu_ids: tuple[int, int], _deadline: Deadline) -> None:
    """See `api.DeviceKind.attach`: they are ready as they are."""


def give_back(mine: t.Sequence[leases.Lease], settings: NodeSettings) -> tuple[str, ...]:
    """See `api.DeviceKind.give_back`: one whose parent answers no more is in quarantine."""
    done = []
    for lease in mine:
        device = inventory.inspect(lease.device, passthrough.HOST.sys)
        why = f"{device.parent}, of which it is a part, does not answer" if device.vendor == inventory.DEAD else ""
        with contextlib.suppress(VTorqueError):  # then the lease stays, and the sweep tries it again
            if why:
                leases.quarantine(lease.device, why, settings)
            leases.end_lease(lease.device, settings)
            done.append(f"device {lease.device}" + (f", which is in quarantine now: {why}" if why else ""))
    return tuple(done)

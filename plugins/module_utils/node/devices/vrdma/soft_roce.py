# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA by the guest's own kernel over its network card (rxe): verbs everywhere, and the speed of that card.

The host gives nothing: no lease, no element of the domain.  The guest makes the device (`templates/guest/rdma.sh`), and
its packets are UDP over the card whose address and partners the node's rules hold (`network/nft_rules.py`).
"""

from __future__ import annotations

import typing as t

from ....system.clock import Deadline
from ....wire.messages import GuestSpec
from ....wire.pci import PciClass
from ...state.settings import NodeSettings
from ..api import HostDevice, Taking
from ..leases import Lease
from .site_kind import refuse_other_kind

KIND = "rxe"
REMEDY = ""


def is_wanted(spec: GuestSpec) -> bool:
    """Return whether a guest is to have verbs over its network card."""
    return spec.rdma == KIND


def take(taking: Taking) -> dict[int, tuple[HostDevice, ...]]:
    """See `api.DeviceKind.take`."""
    refuse_other_kind(taking.settings, KIND)
    device = HostDevice(KIND, KIND, f"vrdma:{KIND}")
    return {spec.index: (device,) for spec in taking.guests if is_wanted(spec)}


def find_problem(_settings: NodeSettings) -> str:
    """See `api.RdmaKind.find_problem`: whether a guest's kernel can, its node does not know."""
    return ""


def list_classes(_settings: NodeSettings) -> tuple[PciClass, ...]:
    """See `api.RdmaKind.list_classes`: it has none."""
    return ()


def find_lost(_settings: NodeSettings) -> tuple[Lease, ...]:
    """See `api.RdmaKind.find_lost`: there never is anything."""
    return ()


def admit(_mine: t.Sequence[Lease], _peers: t.Sequence[str], _settings: NodeSettings) -> None:
    """See `api.RdmaKind.admit`: the packet filter holds the card."""


def attach(_devices: t.Sequence[HostDevice], _qemu_ids: tuple[int, int], _deadline: Deadline) -> None:
    """See `api.DeviceKind.attach`: there is nothing of the host's."""


def give_back(_mine: t.Sequence[Lease], _settings: NodeSettings) -> tuple[str, ...]:
    """See `api.DeviceKind.give_back`: there never is a lease."""
    return ()

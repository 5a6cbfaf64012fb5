# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can this node make these guests at all?  Asked before anything is made."""

from __future__ import annotations

import pathlib

from ..errors import UserFault
from ..guestspec import GuestSpec, NodePart
from . import neighbours
from .domain import Capabilities
from .health import check_virtualisation, lack
from .settings import NodeSettings


def preflight(part: NodePart, settings: NodeSettings, offered: Capabilities) -> None:
    """Can this node make these guests at all?

    Args:
        part: what is asked; its guests.
        settings: this node's own word.
        offered: what libvirt said.

    Raises:
        NodeFault: it cannot; proved here.
        UserFault: the request asks for what this site does not allow.
    """
    neighbours.bridge_index(settings.bridge)
    for spec in part.guests:
        if spec.fs_type != "sharedfs":
            raise UserFault(f"fs_type={spec.fs_type}", "not available on this site yet", "fs_type=sharedfs")
        if spec.hypervisor == "qemu" and not settings.allow_emulation:
            raise UserFault("hypervisor=qemu", "this site allows no software emulation", "hypervisor=kvm")
        _check_hypervisor(spec, settings, offered)
    wanted = sum(spec.ram_mib for spec in part.guests)
    have = _memory_mib() - settings.host_ram_mib
    if wanted > have:
        raise UserFault(
            f"ram: {wanted} MiB for the guests on {settings.node_name}", f"the node has {max(0, have)} MiB for guests",
            f"{settings.host_ram_mib} MiB are kept for the host",
        )  # fmt: skip


def _check_hypervisor(spec: GuestSpec, settings: NodeSettings, offered: Capabilities) -> None:
    missing = lack(spec.hypervisor, spec.arch, offered)
    if missing is None:
        return
    # the node's fault where it cannot run what the site's jobs usually get; else nobody said that it could
    check_virtualisation(settings, offered)
    emulated = settings.allow_emulation and spec.hypervisor != "qemu"
    raise UserFault(*missing, "hypervisor=qemu" if emulated else "")


def _memory_mib() -> int:
    first = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()[0]
    return int(first.split()[1]) >> 10

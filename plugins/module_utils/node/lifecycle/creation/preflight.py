# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that this node can make these guests at all.  Asked before anything is made."""

from __future__ import annotations

from ....effects import leaves_nothing
from ....errors import UserFault
from ....wire.messages import GuestSpec, NodePart
from ...cache import ramdisk
from ...domain.capabilities import Capabilities
from ...health.causes import check_virtualisation, lack
from ...network import addresses, cards
from ...placement import hugepages
from ...pool import images, user_image
from ...state.settings import NodeSettings
from ...system import memory


@leaves_nothing
def preflight(part: NodePart, settings: NodeSettings, offered: Capabilities) -> None:
    """Check that this node can make these guests at all.

    Args:
        part: what is asked; its guests.
        settings: NodeSettings of this node.
        offered: what libvirt said.

    Raises:
        NodeFault: it cannot; proved here.
        UserFault: the request asks for what this site does not allow.
    """
    addresses.bridge_index(settings.bridge)
    cards.check_networks(cards.find_networks(part.guests[0].networks if part.guests else "", settings))
    for spec in part.guests:
        if spec.hypervisor == "qemu" and not settings.allow_emulation:
            raise UserFault("hypervisor=qemu", "this site allows no software emulation", "hypervisor=kvm")
        _check_hypervisor(spec, settings, offered)
        _check_own_image(spec, settings)
    region = memory.region_mib(part.guests)
    wanted = sum(spec.ram_mib for spec in part.guests) + region
    reserved_mib, reserved_for = memory.reserved_memory(part.guests, settings.host_ram_mib)
    have = memory.node_mib() - reserved_mib
    if all(spec.hugepages == "none" for spec in part.guests):  # the others' memory is in the pools, or may be
        have -= hugepages.pools_mib(settings)
    in_memory = _images_in_memory(part, settings, max(0, have - wanted))
    if wanted + in_memory > have:
        besides = f", of which they share {region}" if region else ""
        besides += f", and {in_memory} MiB for images on the ramdisk" if in_memory else ""
        raise UserFault(
            f"ram: {wanted} MiB for the guests on {settings.node_name}{besides}",
            f"the node has {max(0, have)} MiB for guests",
            f"{reserved_mib} MiB are kept for {reserved_for}",
        )


def _images_in_memory(part: NodePart, settings: NodeSettings, room_mib: int) -> int:
    """MiB that copies of images take, or will; those that nobody needs make way first."""
    names = {spec.image for spec in part.guests if spec.fs_type == "ramdisk"}
    if not names and not (settings.ramdisk_dir / "vtorque").is_dir():
        return 0
    if names:
        ramdisk.check(settings)
    found = [images.find(name, settings.pool) for name in names]
    coming = sum(ramdisk.missing_bytes(image, settings) for image in found)
    held = ramdisk.make_way(settings, frozenset(image.name for image in found), (room_mib << 20) - coming)
    return (held + coming + (1 << 20) - 1) >> 20


def _check_own_image(spec: GuestSpec, settings: NodeSettings) -> None:
    """Check images of users by this node's settings, as vsub and the mother superior have done before."""
    if spec.own_image and not settings.own_images_mib:
        raise UserFault(user_image.what_of(spec.image), user_image.SWITCHED_OFF, "take an image of the pool")
    if spec.own_image and spec.fs_type != "sharedfs":
        raise UserFault(f"fs_type={spec.fs_type}", "an own image is read where it lies", "fs_type=sharedfs")


def _check_hypervisor(spec: GuestSpec, settings: NodeSettings, offered: Capabilities) -> None:
    missing = lack(spec.hypervisor, spec.arch, offered)
    if missing is None:
        return
    # the node's fault where it cannot run what the site's jobs usually get; else nobody said that it could
    check_virtualisation(settings, offered)
    emulated = settings.allow_emulation and spec.hypervisor != "qemu"
    raise UserFault(*missing, "hypervisor=qemu" if emulated else "")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest while it is made, and in which form cloud-init, libvirt and the job are given what is known of it."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....guest_kinds import kind_of
from ....site_lists.guest_networks import RDMA
from ....system.clock import Timings
from ....wire.messages import GuestSpec, NodePart
from ....wire.node_answers import GuestFacts
from ...devices.api import HostDevice
from ...devices.pci import buses
from ...domain.domain_xml import DomainSpec
from ...network import cards, nft_rules
from ...placement import cache_shares
from ...placement.cells import Shape
from ...placement.ledger import page_name
from ...placement.pins import Pins
from ...pool import images
from ...seed import seed
from ...state.guest_file import GuestFile
from ...state.settings import NodeSettings
from ...storage import shares
from ...system.cpus import Cores, format_cores
from ...system.side_channels import OFF

if t.TYPE_CHECKING:
    from ...warm.template import Template


@dataclasses.dataclass
class Guest:
    """A guest while it is made.

    Attributes:
        virtiofs: tag and socket of each directory that a virtiofsd of ours shares.
        data: socket of the user's own disk.
        served: socket of the user's own image, and its size.
        pins: its cores; None: all that are the job's.
        devices: of the host that it has.
        shape: what it shows of its cores; None: nothing, and its memory is anywhere.
        template: from which it starts; None: it boots.
        warm: whether it started from one, and why not (`GuestFacts.warm`).
        cards: on further networks.
        caches: parts of the node's caches that it has for itself.
    """

    spec: GuestSpec
    guest_file: GuestFile
    directory: pathlib.Path
    timings: Timings
    image: images.Image
    boot: images.Boot
    virtiofs: tuple[tuple[str, pathlib.Path], ...] = ()
    data: pathlib.Path | None = None
    served: tuple[pathlib.Path, int] | None = None
    pins: Pins | None = None
    devices: tuple[HostDevice, ...] = ()
    shape: Shape | None = None
    template: Template | None = None
    warm: str = ""
    cards: tuple[cards.Card, ...] = ()
    caches: tuple[cache_shares.CacheShare, ...] = ()


def image_of(spec: GuestSpec, settings: NodeSettings) -> images.Image:
    """Return the image of a guest.

    Of the user's own nothing is known before they serve it, but that it boots by itself.
    """
    if spec.own_image:
        return images.Image(spec.image, pathlib.Path(spec.image), "raw", images.Boot())
    return images.find(spec.image, settings.pool)


def on_bridges(guests: t.Iterable[Guest], settings: NodeSettings) -> list[nft_rules.Guest]:
    """Return all cards of guests that the rules of guests hold, before an address of the first ones is proven."""
    guests = list(guests)
    further = [card.guest for guest in guests for card in guest.cards if card.network.confined]
    return [*(on_bridge(guest, settings) for guest in guests), *further]


def on_bridge(guest: Guest, settings: NodeSettings, address: str = "") -> nft_rules.Guest:
    """Return the first card of a guest as the packet filter has it.

    Args:
        guest: it.
        settings: NodeSettings of this node.
        address: that is proven; "": none is.
    """
    return nft_rules.Guest(settings.tap_name(guest.guest_file.slot), guest.guest_file.mac, address)


def seed_of(guest: Guest, part: NodePart, settings: NodeSettings, here: str, mounts: shares.GuestMounts) -> seed.Seed:
    """Return what cloud-init of the guest is told."""
    guest_file, spec = guest.guest_file, guest.spec
    of_devices = [device.card for device in guest.devices if device.card]
    return seed.Seed(
        name=guest_file.name,
        instance_id=guest_file.uuid,
        mac=guest_file.mac,
        distro=spec.distro,
        job_id=part.job_id,
        token=guest_file.token,
        node_address=here,
        torque_home=str(settings.torque_home),
        owner=part.owner,
        host_key=spec.host_key,
        authorized_key=spec.authorized_key,
        domain=settings.domain or "",
        name_servers=tuple(filter(None, [settings.name_server])),
        search_domains=tuple(filter(None, [settings.search_domain])),
        ntp_servers=settings.ntp_servers,
        mounts=mounts.mounts,
        mount_s=settings.mount_s,
        additions=part.additions,
        data_disk=guest.data is not None,
        shares_region=spec.shared_mib > 0,
        rdma=spec.rdma,
        rdma_mac=next((card.mac for card in of_devices), ""),
        cards=(*guest.cards, *of_devices),
        vcpus=spec.vcpus,
        scripts=settings.guest_scripts,
        programs=settings.guest_programs,
    )


def domain_of(
    guest: Guest, part: NodePart, settings: NodeSettings, mounts: shares.GuestMounts, cores: Cores
) -> DomainSpec:
    """Return what libvirt is told of the guest."""
    huge = bool(guest.shape and guest.shape.page_kib)
    # qemu takes huge pages by threads on the cores of each cell: there it may run until it has them (`_start`)
    others = () if guest.pins is None else guest.pins.cores if huge else guest.pins.others
    io = guest.pins.io if guest.pins else ()
    queues = min(len(io), guest.spec.vcpus) if guest.spec.hypervisor == "kvm" else 0
    # expander buses with cells are those of q35
    cells = guest.shape.cells if guest.shape and guest.spec.arch == "x86_64" else ()
    devices, expanders = buses.arrange(guest.devices, cells)
    directory, guest_file, spec, image, boot = guest.directory, guest.guest_file, guest.spec, guest.image, guest.boot
    return DomainSpec(
        name=guest_file.name,
        uuid=guest_file.uuid,
        job_id=part.job_id,
        start=part.start,
        owner=part.owner.user,
        rank=spec.rank,
        node=settings.node_name,
        hypervisor=spec.hypervisor,
        arch=spec.arch,
        ram_mib=spec.ram_mib,
        vcpus=spec.vcpus,
        disk=directory / "disk.qcow2",
        image=image.path,
        image_format=image.format,
        seed=directory / "seed.iso",
        console=directory / "console.log",
        agent=settings.agent_socket(guest_file.slot),
        bridge=settings.bridge,
        tap=settings.tap_name(guest_file.slot),
        mac=guest_file.mac,
        boot_mode=boot.mode,
        kernel=boot.kernel,
        initrd=boot.initrd,
        cmdline=boot.cmdline,
        nvram=directory / "nvram.fd",
        network_filter=settings.network_filter,
        virtiofs=guest.virtiofs,
        cores=format_cores(guest.pins.cores if guest.pins else cores),
        vcpu_cores=tuple(map(format_cores, guest.pins.vcpus)) if guest.pins else (),
        other_cores=format_cores(others),
        plan9=tuple((share.tag, share.directory) for share in mounts.shares if share.kind == "9p"),
        data=guest.data,
        served=guest.served and guest.served[0],
        template=kind_of(spec.distro).domain,
        devices=devices,
        expanders=expanders,
        cards=guest.cards,
        shape=guest.shape,
        io_threads=(1 + (guest.data is not None)) if io else 0,
        queues=queues if queues > 1 else 0,
        apart=settings.side_channels != OFF,
        caches=guest.caches,
    )


def facts_of(guest: Guest, address: str, level: str = OFF) -> GuestFacts:
    """Return what the job is told of a guest that is ready, at this address, by the site's `side_channels`."""
    pins, shape = guest.pins, guest.shape
    interfaces = [device.card.interface for device in guest.devices if device.card]
    of_devices = [f"{RDMA}={interface.partition('/')[0]}" for interface in interfaces]
    return GuestFacts(
        rank=guest.spec.rank,
        name=guest.guest_file.name,
        mac=guest.guest_file.mac,
        address=address,
        timings_s={phase: round(seconds, 4) for phase, seconds in guest.timings.seconds.items()},
        vcpu_cores=";".join(map(format_cores, pins.vcpus)) if pins else "",
        other_cores=format_cores(pins.others) if pins else "",
        io_least=pins.io_least if pins else 0,
        devices=" ".join(device.label or device.name for device in guest.devices),
        cells=";".join(
            f"{cell.host_cell}:{format_cores(cell.vcpus)}:{cell.memory_mib}" for cell in (shape.cells if shape else ())
        ),
        pages=page_name(shape.page_kib) if shape and shape.page_kib else "",
        warm=guest.warm,
        networks=" ".join(filter(None, (cards.format_addresses(guest.cards), *of_devices))),
        side_channels="" if level == OFF else level,
    )

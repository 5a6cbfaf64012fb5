# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The domain of a template, and what becomes of its XML for a guest that is made from it.

A guest's domain is the saved one with the guest's own names, paths, cores and network.  What is the guest's alone, its
shared directories and its user's disk, is plugged in while it stands still.  With that it must have everything that the
guest would have after a cold start: what differs is no warm start.

A template's memory is ordinary memory, whatever its guests have: qemu restores it into a memfd that is shared with
virtiofsd as well (tried with qemu 7.2: the blocks of memory have the same name and size).  So there is one template for
both.  libvirt compares the two where it changes the XML of a saved state, and not where it reads one (ADR 30).
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
import xml.etree.ElementTree as ET

from ...errors import VTorqueError
from ...guest_kinds import kind_of
from ..domain.domain_xml import DomainSpec, differences, parse
from ..pool.images import Image
from ..state.settings import NodeSettings
from ..system.side_channels import OFF

NAME = "vtorque-warm"
"""What the domains of templates are called, with a word for each behind it; none of them is a guest of a job."""
MAC = "52:54:00:00:00:02"
TAP = "vtqwarm"
_NOWHERE = pathlib.Path("/nonexistent")
_OF_DOMAIN = ("name", "uuid", "metadata", "memoryBacking", "vcpu", "iothreads", "cputune", "seclabel")
_IN_PORTS = ("disk", "interface", "channel", "rng", "filesystem", "shmem", "hostdev")
"""Devices each of which takes a port of its own: all that a template may have."""
_OF_DISK = ("source", "backingStore")
_OF_CARD = ("mac", "source", "target", "filterref")


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """How large the guests of a template are.

    Attributes:
        hypervisor: `kvm` or `qemu`.
        arch: architecture.
    """

    vcpus: int
    ram_mib: int
    hypervisor: str
    arch: str


def spec_of(image: Image, size: Size, settings: NodeSettings) -> DomainSpec:
    """Return the shape of guests that ask for nothing but an image and a size: as `shape_of` any of them.

    Args:
        image: as their disks stand on it.
        size: of each.
        settings: NodeSettings of this node.
    """
    boot = image.boot
    bare = DomainSpec(
        name=NAME,
        uuid="",
        job_id="",
        start=0,
        owner="",
        rank=0,
        node=settings.node_name,
        hypervisor=size.hypervisor,
        arch=size.arch,
        ram_mib=size.ram_mib,
        vcpus=size.vcpus,
        disk=_NOWHERE,
        image=image.path,
        image_format=image.format,
        seed=_NOWHERE,
        console=_NOWHERE,
        agent=_NOWHERE,
        bridge=settings.bridge,
        tap=TAP,
        mac=MAC,
        boot_mode=boot.mode,
        kernel=boot.kernel,
        initrd=boot.initrd,
        cmdline=boot.cmdline,
        network_filter=settings.network_filter,
        template=kind_of(image.distro).domain,
        apart=settings.side_channels != OFF,
    )
    return shape_of(bare)


def shape_of(spec: DomainSpec) -> DomainSpec:
    """Return what all guests of a shape have in common: every name and path is the same in it.

    Args:
        spec: of a guest.
    """
    return dataclasses.replace(
        spec,
        name=NAME,
        uuid="00000000-0000-4000-8000-000000000000",
        job_id="0.warm",
        start=0,
        owner="root",
        rank=0,
        disk=_NOWHERE / "disk.qcow2",
        seed=_NOWHERE / "seed.iso",
        console=_NOWHERE / "console.log",
        agent=_NOWHERE / "agent",
        tap=TAP,
        mac=MAC,
        kernel=spec.kernel and _NOWHERE / "vmlinuz",
        initrd=spec.initrd and _NOWHERE / "initrd",
        nvram=None,
        cores="",
        vcpu_cores=(),
        other_cores="",
        io_threads=0,
        virtiofs=(),
        data=None,
        caches=(),
    )


def count_ports(settings: NodeSettings) -> int:
    """Return how many devices must have a place in a template: each directory that guests share, and a user's disk.

    Args:
        settings: NodeSettings of this node.
    """
    kinds = [settings.home_via, *(mount.kind for mount in settings.mounts)]
    return kinds.count("virtiofs") + 1


def of_template(xml: str, ports: int) -> str:
    """Return the XML of a domain that is nobody's guest, and whose network card leads nowhere.

    Its tap is on no bridge.  It is the same device to the guest, with the same features, as one that is.

    Args:
        xml: as guests of jobs have it.
        ports: into which devices of its guests are plugged, one into each.
    """
    root = parse(xml)
    devices = root.find("devices")
    if devices is not None:
        # libvirt puts the template's own devices into these ports first, and adds none where there are enough
        own = sum(len(devices.findall(path)) for path in _IN_PORTS)
        controllers = ["pcie-root", *("pcie-root-port",) * (own + ports)]
        devices.extend(ET.Element("controller", type="pci", model=model) for model in controllers)
    for element in root.findall("metadata"):
        root.remove(element)
    uuid = root.find("uuid")
    if root.find("genid") is None and uuid is not None:
        # libvirt gives each restored domain another one; a kernel with the driver has its generator begin anew then
        root.insert(list(root).index(uuid) + 1, ET.Element("genid"))
    for card in root.findall("devices/interface"):
        card.set("type", "ethernet")
        for tag in ("source", "filterref"):
            for element in card.findall(tag):
                card.remove(element)
    return ET.tostring(root, encoding="unicode")


def xml_of_clone(saved: str, wanted: str) -> tuple[str, tuple[str, ...]]:
    """Return the XML of a guest that is made from a template, and that of each device that is plugged into it.

    Args:
        saved: XML of the template, as libvirt saved it.
        wanted: as the guest would have it after a cold start.

    Raises:
        VTorqueError: the template is of another shape; says in what.
    """
    root, cold = parse(saved), parse(wanted)
    plugged = _take_plugged(cold)
    for tag in _OF_DOMAIN:
        _adopt(root, cold, tag)
    for saved_os, cold_os in zip(root.findall("os"), cold.findall("os"), strict=False):
        _adopt(saved_os, cold_os, "kernel")
        _adopt(saved_os, cold_os, "initrd")
        _set_machine(saved_os, cold_os)
    _adopt_devices(root, cold)
    for limit in root.findall("memtune"):
        root.remove(limit)  # libvirt would take it for one of locked memory (connection.py)
    text = ET.tostring(root, encoding="unicode")
    unlike = differences(ET.tostring(cold, encoding="unicode"), text)
    if unlike:
        raise VTorqueError("the template", f"is of another shape: {'; '.join(unlike)[:400]}")
    return text, plugged


def _take_plugged(cold: ET.Element) -> tuple[str, ...]:
    """Take what is plugged in out of the XML of a guest: directories by virtiofs, and its user's disk."""
    devices = cold.find("devices")
    if devices is None:
        return ()
    found = [one for one in devices.findall("filesystem") if one.find("driver[@type='virtiofs']") is not None]
    # an image of the user's is below their overlay, and is no disk of its own
    found += [one for one in devices.findall("disk") if one.find("source[@protocol='nbd']") is not None]
    for one in found:
        devices.remove(one)
    return tuple(ET.tostring(one, encoding="unicode") for one in found)


def _adopt_devices(root: ET.Element, cold: ET.Element) -> None:
    for disk in root.findall("devices/disk"):
        if (other := _disk(cold, _target(disk))) is not None:
            for tag in _OF_DISK:
                _adopt(disk, other, tag)
            _adopt_thread(disk, other)
    for card, other in zip(root.findall("devices/interface"), cold.findall("devices/interface"), strict=False):
        card.set("type", other.get("type", ""))
        for tag in _OF_CARD:
            _adopt(card, other, tag)
    for tag, by in (("serial", "serial"), ("console", "serial"), ("channel", "channel")):
        for port, other in zip(root.findall(f"devices/{tag}"), cold.findall(f"devices/{by}"), strict=False):
            _adopt(port, other, "source")


def _adopt(mine: ET.Element, theirs: ET.Element, tag: str) -> None:
    """Have just the other's elements of a kind, where the own ones were."""
    old = mine.findall(tag)
    at = list(mine).index(old[0]) if old else len(mine)
    for element in old:
        mine.remove(element)
    for number, element in enumerate(theirs.findall(tag)):
        mine.insert(at + number, element)


def _adopt_thread(disk: ET.Element, other: ET.Element) -> None:
    """Which thread of qemu's serves a disk is nothing that its guest sees."""
    mine, theirs = disk.find("driver"), other.find("driver")
    if mine is not None and theirs is not None and (thread := theirs.get("iothread")):
        mine.set("iothread", thread)


def _set_machine(saved: ET.Element, wanted: ET.Element) -> None:
    """A name such as q35 means one machine to this qemu, whose name was saved; the key has qemu's version."""
    old, new = saved.find("type"), wanted.find("type")
    if old is not None and new is not None and f"-{new.get('machine')}-" in old.get("machine", ""):
        new.set("machine", old.get("machine", ""))


def _disk(root: ET.Element, target: str) -> ET.Element | None:
    found: t.Iterator[ET.Element] = (disk for disk in root.findall("devices/disk") if _target(disk) == target)
    return next(found, None)


def _target(disk: ET.Element) -> str:
    target = disk.find("target")
    return "" if target is None else target.get("dev", "")

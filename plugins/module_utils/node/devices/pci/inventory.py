# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a PCI device of this node is, or a mediated device, as sysfs says it.  Nothing is changed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re

from ....wire.pci import ADDRESS, UUID

SYS = pathlib.Path("/sys")
VFIO = "vfio-pci"
DEAD = 0xFFFF
"""What a device's vendor reads as that does not answer."""
_MEMORY_64 = 0x00100000
"""IORESOURCE_MEM_64 of include/linux/ioport.h: a region that may lie above 4 GiB."""
_CONFIG_IDS = 4
_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_NUMBER = re.compile(r"0x[0-9a-f]{1,16}|-?[0-9]{1,18}")


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A device of an IOMMU group.

    Attributes:
        code: base class and subclass, `0x0604` for a bridge between buses.
        driver: "" where none has it.
    """

    address: str
    code: int
    driver: str


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A PCI device, or a mediated one: it answers, is powered and is near a cell as the device is that it is a part of.

    Attributes:
        address: of it; of a mediated device the UUID.
        there: whether there is such a device.
        vendor: as it answers now; `DEAD` where it does not.
        device: the same.
        code: base class and subclass, such as 0x0302.
        driver: that has it, or "".
        group: its IOMMU group, or "".
        members: of the group, but for itself.
        numa_node: the cell that it is near; -1: not known.
        root: the root complex through which it is reached, such as `pci0000:3a`; "": not known.
        resets: ways in which it can be reset, the kernel's first choice first (`reset_method`).
        beside: other devices of its bus.
        boot_vga: whether it is the screen of the node's console.
        physical: the device of which it is a virtual function, or "".
        physical_driver: that has it.
        virtual_functions: of its own that are switched on.
        large_mib: of its memory regions that may lie above 4 GiB, in MiB.
        nodes: files below /dev that are made for it, without `/dev/`.
        blocks: block devices on it, and their partitions.
        netdevs: network devices on it.
        power: its power state (`D0`), or "".
        parent: the device of which it is a part, for a mediated device; "": it is a PCI device.
    """

    address: str
    there: bool = True
    vendor: int = 0
    device: int = 0
    code: int = 0
    driver: str = ""
    group: str = ""
    members: tuple[Member, ...] = ()
    numa_node: int = -1
    root: str = ""
    resets: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    boot_vga: bool = False
    physical: str = ""
    physical_driver: str = ""
    virtual_functions: int = 0
    large_mib: int = 0
    nodes: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    netdevs: tuple[str, ...] = ()
    power: str = ""
    parent: str = ""


def place_of(address: str, sys: pathlib.Path = SYS) -> pathlib.Path:
    """Return the directory of a device.

    Args:
        address: of it, or its UUID.
        sys: where sysfs is.
    """
    bus = "mdev" if re.fullmatch(UUID, address) else "pci"
    return sys / "bus" / bus / "devices" / address


def driver_of(place: pathlib.Path) -> str:
    """Return the driver that has a device; "": none.

    Args:
        place: directory of the device.
    """
    with contextlib.suppress(OSError):
        return (place / "driver").readlink().name
    return ""


def is_alive(place: pathlib.Path) -> bool:
    """Return whether a device answers: its registers are read, and not what the kernel remembers of it.

    Args:
        place: directory of the device.
    """
    return _ids(place)[0] != DEAD


def inspect(address: str, sys: pathlib.Path = SYS) -> Device:
    """Return what a device is.

    Args:
        address: of it.
        sys: where sysfs is.
    """
    place = place_of(address, sys)
    if not place.is_dir():
        return Device(address, there=False)
    if re.fullmatch(UUID, address):
        return _inspect_mediated(address, place)
    vendor, device = _ids(place)
    physical = _link(place / "physfn")
    nodes, blocks, netdevs = _children(place)
    return Device(
        address,
        vendor=vendor,
        device=device,
        code=_code(place),
        driver=driver_of(place),
        group=_link(place / "iommu_group"),
        members=_members(place, address),
        numa_node=_number(place / "numa_node", -1),
        root=_root(place),
        resets=tuple(read_text(place / "reset_method").split()),
        beside=_beside(place, address),
        boot_vga=_number(place / "boot_vga") == 1,
        physical=physical,
        physical_driver=driver_of(place / "physfn") if physical else "",
        virtual_functions=_number(place / "sriov_numvfs"),
        large_mib=_large_mib(place),
        nodes=nodes,
        blocks=blocks,
        netdevs=netdevs,
        power=read_text(place / "power_state"),
    )


def _inspect_mediated(uuid: str, place: pathlib.Path) -> Device:
    """Return what a mediated device is; a parent that is no PCI device answers always."""
    parent = place.resolve().parent
    vendor, device = _ids(parent) if (parent / "config").exists() else (0, 0)
    return Device(
        uuid,
        vendor=vendor,
        device=device,
        code=_code(parent),
        group=_link(place / "iommu_group"),
        numa_node=_number(parent / "numa_node", -1),
        root=_root(parent),
        power=read_text(parent / "power_state"),
        parent=parent.name,
    )


def has_groups(sys: pathlib.Path = SYS) -> bool:
    """Return whether an IOMMU is switched on, which makes groups.

    Args:
        sys: where sysfs is.
    """
    return bool(list_names(sys / "kernel/iommu_groups"))


def has_vfio(sys: pathlib.Path = SYS) -> bool:
    """Return whether the driver is loaded that hands devices on.

    Args:
        sys: where sysfs is.
    """
    return (sys / "bus/pci/drivers" / VFIO).is_dir()


def is_unsafe(sys: pathlib.Path = SYS) -> bool:
    """Return whether vfio was allowed to hand devices on without interrupt remapping.

    Args:
        sys: where sysfs is.
    """
    return read_text(sys / "module/vfio_iommu_type1/parameters/allow_unsafe_interrupts") == "Y"


def _members(place: pathlib.Path, address: str) -> tuple[Member, ...]:
    found = []
    for name in list_names(place / "iommu_group/devices"):
        if name != address:
            member = place.parent / name
            found.append(Member(name, _code(member), driver_of(member)))
    return tuple(found)


def _beside(place: pathlib.Path, address: str) -> tuple[str, ...]:
    """Other devices of the bus: they have the same directory above them, and its own virtual functions are none."""
    own = {link.resolve().name for link in place.glob("virtfn*")}
    names = list_names(place.resolve().parent)
    return tuple(name for name in names if re.fullmatch(ADDRESS, name) and name != address and name not in own)


def _children(place: pathlib.Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return files below /dev, block devices and network devices of a device; links lead elsewhere."""
    nodes, blocks, netdevs = set(), set(), set()
    for name, _below, files in os.walk(place):
        directory = pathlib.Path(name)
        if "uevent" in files and directory != place:
            facts = dict(line.partition("=")[::2] for line in read_text(directory / "uevent").splitlines())
            if file := facts.get("DEVNAME"):
                nodes.add(file.removeprefix("/dev/"))
            if facts.get("DEVTYPE") in ("disk", "partition"):
                blocks.add(directory.name)
        if directory.parent.name == "net":
            netdevs.add(directory.name)
    return tuple(sorted(nodes)), tuple(sorted(blocks)), tuple(sorted(netdevs))


def _ids(place: pathlib.Path) -> tuple[int, int]:
    try:
        with (place / "config").open("rb") as stream:
            read = stream.read(_CONFIG_IDS)
    except OSError:
        read = b""
    if len(read) < _CONFIG_IDS:
        return DEAD, DEAD
    return int.from_bytes(read[:2], "little"), int.from_bytes(read[2:], "little")


def _code(place: pathlib.Path) -> int:
    return _number(place / "class") >> 8


def _large_mib(place: pathlib.Path) -> int:
    total = 0
    for line in read_text(place / "resource").splitlines():
        first, last, flags = (int(word, 16) for word in line.split())
        if flags & _MEMORY_64:
            total += last - first + 1
    return total >> 20


def read_text(path: pathlib.Path) -> str:
    """Return what a file of the kernel says; "": it cannot be read.

    Args:
        path: of it.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _root(place: pathlib.Path) -> str:
    """Return the root complex above a device: the first of the directories in which sysfs has it."""
    return next((part for part in place.resolve().parts if _ROOT.fullmatch(part)), "")


def _number(path: pathlib.Path, otherwise: int = 0) -> int:
    text = read_text(path)
    return int(text, 0) if _NUMBER.fullmatch(text) else otherwise


def _link(path: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return path.readlink().name
    return ""


def list_names(directory: pathlib.Path) -> tuple[str, ...]:
    """Return what is in a directory of the kernel; (): it cannot be read.

    Args:
        directory: of the kernel.
    """
    with contextlib.suppress(OSError):
        return tuple(sorted(path.name for path in directory.iterdir()))
    return ()

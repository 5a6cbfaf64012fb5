# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses a PCI device on this node: file systems, swap, holders, networks, programs.  Nothing is changed."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import os
import pathlib
import re
import socket
import struct
import typing as t

from .inventory import SYS, Device, list_names, read_text

_SIOCGIFADDR = 0x8915
_LINK_LOCAL = "fe80"
NVIDIA = "driver/nvidia/gpus"
"""Below /proc: what the driver of NVIDIA says of a device, whose file in /dev sysfs does not name."""


def has_address(netdev: str) -> bool:
    """Return whether a network device has an IPv4 address (netdevice(7)).

    Args:
        netdev: its name.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", netdev.encode()[:15]))
        return True
    return False


def is_busy(node: pathlib.Path) -> bool:
    """Return whether the kernel uses a block device: mounted, in a RAID, a volume group, a pool (open(2), O_EXCL).

    Args:
        node: its file.
    """
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """Where it is read who uses devices; tests have places of their own.

    Attributes:
        sys: where sysfs is.
        proc: where procfs is.
        dev: where files of devices are.
        has_address: whether a network device has an IPv4 address.
        is_busy: whether a block device is in use by the kernel.
    """

    sys: pathlib.Path = SYS
    proc: pathlib.Path = pathlib.Path("/proc")
    dev: pathlib.Path = pathlib.Path("/dev")
    has_address: t.Callable[[str], bool] = has_address
    is_busy: t.Callable[[pathlib.Path], bool] = is_busy


class Usage:
    """Who uses devices of a node.  What is the same for all of them is read once, where a device needs it.

    Args:
        host: where to look.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @functools.cached_property
    def _open_files(self) -> dict[str, list[str]]:
        return _read_open_files(self._host.proc)

    @functools.cached_property
    def _mounts(self) -> dict[str, str]:
        return _read_mounts(self._host.proc)

    @functools.cached_property
    def _swaps(self) -> str:
        return read_text(self._host.proc / "swaps")

    def of(self, device: Device) -> tuple[str, ...]:
        """Return what uses a device, in words; () where nothing does.

        Args:
            device: as it is.
        """
        return tuple(dict.fromkeys(self._of(device)))

    def _of(self, device: Device) -> t.Iterator[str]:
        if device.boot_vga:
            yield "it is the screen of the node's console"
        for block in device.blocks:
            yield from self._of_block(block)
        for netdev in device.netdevs:
            yield from _netdev_uses(netdev, self._host)
        for file in _files(device, self._host):
            if programs := self._open_files.get(f"/dev/{file}"):
                yield f"/dev/{file} is open in {', '.join(programs[:5])}"

    def _of_block(self, block: str) -> t.Iterator[str]:
        place = self._host.sys / "class/block" / block
        if target := self._mounts.get(read_text(place / "dev")):
            yield f"{block} is mounted on {target}"
        elif re.search(rf"^/dev/{re.escape(block)}\s", self._swaps, re.MULTILINE):
            yield f"{block} is swap space"
        elif holders := list_names(place / "holders"):
            yield f"{block} is part of {', '.join(holders)} (RAID, LVM or device mapper)"
        elif self._host.is_busy(self._host.dev / block):
            yield f"{block} is in use by the kernel (a pool, a RAID or a file system)"


def _netdev_uses(netdev: str, host: Host) -> t.Iterator[str]:
    place = host.sys / "class/net" / netdev
    uppers = [path.name.removeprefix("upper_") for path in sorted(place.glob("upper_*"))]
    with contextlib.suppress(OSError):
        uppers.append((place / "master").readlink().name)
    if uppers:
        yield f"{netdev} belongs to {', '.join(dict.fromkeys(uppers))}"
    if host.has_address(netdev) or _has_ipv6(netdev, host.proc):
        yield f"{netdev} has an address"
    routes = [*_fields(host.proc / "net/route", 0), *_fields(host.proc / "net/ipv6_route", 9)]
    if any(fields[column] == netdev and not _is_local(fields, column) for fields, column in routes):
        yield f"a route leads over {netdev}"


def _is_local(fields: t.Sequence[str], column: int) -> bool:
    """Return whether a route is one that each card has for itself: link-local, multicast."""
    return column == 9 and fields[0].startswith((_LINK_LOCAL, "ff"))


def _has_ipv6(netdev: str, proc: pathlib.Path) -> bool:
    lines = _fields(proc / "net/if_inet6", 5)
    return any(fields[5] == netdev and not fields[0].startswith(_LINK_LOCAL) for fields, _column in lines)


def _fields(path: pathlib.Path, column: int) -> list[tuple[list[str], int]]:
    lines = (line.split() for line in read_text(path).splitlines())
    return [(fields, column) for fields in lines if len(fields) > column]


def _files(device: Device, host: Host) -> tuple[str, ...]:
    """Return the files below /dev by which programs use a device."""
    minor = re.search(
        r"^Device Minor:\s*([0-9]+)$", read_text(host.proc / NVIDIA / device.address / "information"), re.M
    )
    return (*device.nodes, f"nvidia{minor[1]}") if minor else device.nodes


def _read_mounts(proc: pathlib.Path) -> dict[str, str]:
    """Return where file systems are mounted, by the numbers of their block devices (`259:0`), as process 1 sees it."""
    found = {}
    for one in ("self", "1"):
        for line in read_text(proc / one / "mountinfo").splitlines():
            fields = line.split()
            if len(fields) > 4:
                found[fields[2]] = fields[4]
    return found


def _read_open_files(proc: pathlib.Path) -> dict[str, list[str]]:
    """Return which programs have which files below /dev open.  Only names are read: no file need answer."""
    found: dict[str, list[str]] = {}
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            targets = {os.readlink(descriptor) for descriptor in (process / "fd").iterdir()}  # noqa: PTH115 - as text
            for target in targets:
                if target.startswith("/dev/"):
                    name = read_text(process / "comm") or "a program"
                    found.setdefault(target, []).append(f"{name} ({process.name})")
    return found

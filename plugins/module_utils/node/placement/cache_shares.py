# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of the last cache of processors (L3) for guests, where the kernel and libvirt can give some.

The kernel divides a cache by masks of ways (resctrl, Documentation/arch/x86/resctrl.rst): whoever is in a group puts
lines only where its mask has a bit.  libvirt makes a group for each guest (`cachetune`), out of bits that no other
group has, the default one among them: of a host whose default group has all bits it gives nothing, and refuses the
guest.  So what is asked of it is what is free, in equal parts.
"""

from __future__ import annotations

import contextlib
import pathlib
import typing as t
import xml.etree.ElementTree as ET

from ...frozen import frozen

RESCTRL = pathlib.Path("/sys/fs/resctrl")
FILE_SYSTEMS = pathlib.Path("/proc/filesystems")
_LEVEL, _SCOPE = "L3", "both"
_UNITS_KIB = {"KiB": 1, "MiB": 1 << 10, "GiB": 1 << 20}


@frozen
class CacheShare:
    """A part of one cache.

    Attributes:
        cache: its number, as the kernel and libvirt have it.
        size_kib: how large the part is.
    """

    cache: int
    size_kib: int


@frozen
class FreeWays:
    """What of one cache no group has.

    Attributes:
        free: how many ways beside each other.
        total: how many ways it has.
    """

    free: int
    total: int


def has_kernel(file_systems: pathlib.Path = FILE_SYSTEMS) -> bool:
    """Return whether the kernel can divide caches or bandwidth of this processor, mounted or not."""
    try:
        return "resctrl" in file_systems.read_text(encoding="ascii").split()
    except OSError:
        return False


def read_free(resctrl: pathlib.Path = RESCTRL) -> dict[int, FreeWays]:
    """Return what is free of each L3 cache; {}: the kernel divides none, or code and data each for itself.

    Args:
        resctrl: where it is mounted.
    """
    try:
        whole = int((resctrl / "info" / _LEVEL / "cbm_mask").read_text(encoding="ascii"), 16)
        default = _read_masks(resctrl)
    except (OSError, ValueError):
        return {}
    groups = [_read_masks(path) for path in _groups(resctrl)]
    found = {}
    for cache, mask in default.items():
        for group in groups:
            mask |= group.get(cache, whole)
        found[cache] = FreeWays(_longest_run(whole & ~mask), whole.bit_count())
    return found


def find_shares(capabilities: ET.Element, count: int, resctrl: pathlib.Path = RESCTRL) -> tuple[CacheShare, ...]:
    """Return the part of each cache that each of some guests can have; () where there is none for all of them.

    Args:
        capabilities: the root of what libvirt reports of this host, which is silent where it cannot divide caches.
        count: how many guests.
        resctrl: where the kernel's groups are.
    """
    free, found = read_free(resctrl), []
    groups = 1 + len(_groups(resctrl))
    for bank in capabilities.iterfind("host/cache/bank[@level='3']"):
        with contextlib.suppress(KeyError, ValueError):
            cache = int(bank.attrib["id"])
            for control in bank.iterfind(f"control[@type='{_SCOPE}']"):
                unit_kib = _UNITS_KIB[control.attrib["unit"]]
                way_kib = int(control.attrib["granularity"]) * unit_kib
                least_kib = int(control.get("min", control.attrib["granularity"])) * unit_kib
                size_kib = free[cache].free // count * way_kib
                enough = groups + count <= int(control.attrib["maxAllocs"])
                if enough and size_kib >= max(least_kib, 1):
                    found.append(CacheShare(cache, size_kib))
    return tuple(found)


def _groups(resctrl: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path.parent for path in resctrl.glob("*/schemata"))


def _read_masks(group: pathlib.Path) -> dict[int, int]:
    """The mask of each L3 cache by its number (`    L3:0=fffff;1=fffff`); {}: the group has ended meanwhile."""
    try:
        lines = (group / "schemata").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields: t.Iterator[str] = (
        field for line in lines if line.strip().startswith(f"{_LEVEL}:") for field in line.partition(":")[2].split(";")
    )
    return {int(number): int(mask, 16) for number, _equals, mask in (field.strip().partition("=") for field in fields)}


def _longest_run(mask: int) -> int:
    runs = f"{mask:b}".split("0")
    return max(map(len, runs))

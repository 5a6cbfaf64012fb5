# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of caches for guests, by trees of /sys/fs/resctrl and capabilities in the form of the kernel and libvirt."""

from __future__ import annotations

import pathlib
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import cache_shares
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.cache_shares import (
    CacheShare,
    FreeWays,
)

BANK = """
<bank id='{}' level='3' type='both' size='30' unit='MiB' cpus='{}'>
  <control granularity='1536' min='3072' unit='KiB' type='{}' maxAllocs='{}'/>
</bank>
"""


def resctrl(place: pathlib.Path, groups: dict[str, str]) -> pathlib.Path:
    """A tree of two caches of 20 ways; `""` is the default group."""
    root = place / "resctrl"
    (root / "info/L3").mkdir(parents=True)
    (root / "info/L3/cbm_mask").write_text("fffff\n", "ascii")
    for name in ("mon_groups", "mon_data"):
        (root / name).mkdir()
    for name, line in groups.items():
        (root / name).mkdir(exist_ok=True)
        (root / name / "schemata").write_text(f"    MB:0=100;1=100\n    {line}\n", "ascii")
    return root


def capabilities(scope: str = "both", most: int = 16, *, silent: bool = False) -> ET.Element:
    banks = "" if silent else "".join(BANK.format(id_, cpus, scope, most) for id_, cpus in ((0, "0-5"), (1, "6-11")))
    return ET.fromstring(f"<capabilities><host><cache>{banks}</cache></host></capabilities>")


@pytest.mark.parametrize(
    ("groups", "free"),
    [
        ({"": "L3:0=fffff;1=fffff"}, (0, 0)),
        ({"": "L3:0=00003;1=0000f"}, (18, 16)),
        ({"": "L3:0=3;1=3", "qemu-1-vcn1-1-vcpus_0-1": "L3:0=000fc;1=fffff"}, (12, 0)),
        # only ways beside each other make one part
        ({"": "L3:0=00100;1=ff000"}, (11, 12)),
        # a group that says nothing of a cache may fill all of it
        ({"": "L3:0=3;1=3", "other": "L3:0=c"}, (16, 0)),
    ],
)
def test_what_no_group_has_is_free(tmp_path: pathlib.Path, groups: dict[str, str], free: tuple[int, int]) -> None:
    found = cache_shares.read_free(resctrl(tmp_path, groups))
    assert found == {number: FreeWays(ways, 20) for number, ways in enumerate(free)}


def test_guests_have_equal_parts_of_what_is_free(tmp_path: pathlib.Path) -> None:
    place = resctrl(tmp_path, {"": "L3:0=00003;1=0000f"})
    assert cache_shares.find_shares(capabilities(), 1, place) == (CacheShare(0, 18 * 1536), CacheShare(1, 16 * 1536))
    assert cache_shares.find_shares(capabilities(), 3, place) == (CacheShare(0, 6 * 1536), CacheShare(1, 5 * 1536))
    # libvirt makes none of less than two ways here
    assert cache_shares.find_shares(capabilities(), 9, place) == (CacheShare(0, 2 * 1536),)
    assert cache_shares.find_shares(capabilities(), 10, place) == ()


@pytest.mark.parametrize(
    ("groups", "reported"),
    [
        ({"": "L3:0=fffff;1=fffff"}, capabilities()),
        # code and data each for itself (mount option cdp), as the kernel and as libvirt have it
        ({"": "L3CODE:0=3;1=3"}, capabilities()),
        ({"": "L3:0=3;1=3"}, capabilities("code")),
        # a libvirt that cannot, and a kernel that has no more groups
        ({"": "L3:0=3;1=3"}, capabilities(silent=True)),
        ({"": "L3:0=3;1=3", "one": "L3:0=c;1=c"}, capabilities(most=3)),
    ],
)
def test_host_that_gives_no_parts_is_asked_for_none(
    tmp_path: pathlib.Path, groups: dict[str, str], reported: ET.Element
) -> None:
    assert cache_shares.find_shares(reported, 2, resctrl(tmp_path, groups)) == ()


def test_host_without_the_file_system_has_nothing_to_divide(tmp_path: pathlib.Path) -> None:
    assert cache_shares.read_free(tmp_path) == {}
    assert cache_shares.find_shares(capabilities(), 1, tmp_path) == ()
    assert not cache_shares.has_kernel(tmp_path / "none")
    (tmp_path / "filesystems").write_text("nodev\tsysfs\nnodev\tresctrl\n\text4\n", "ascii")
    assert cache_shares.has_kernel(tmp_path / "filesystems")

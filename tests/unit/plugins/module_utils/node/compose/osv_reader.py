# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of OSv's read-only file system that shares nothing with the product's: by OSv's own description of it.

(scripts/gen-rofs-img.py and fs/rofs of OSv, August 2026; the partition as fs/devfs/device.cc finds it.)  It reads as
OSv's kernel does: the partition by its number, then the whole of the tables, then files by their blocks.
"""

from __future__ import annotations

import typing as t

Content: t.TypeAlias = "bytes | str | None"
"""Of a file, of a link, of a directory."""


def number(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def partition(disk: bytes) -> bytes:
    """What `/dev/vblk0.1` is."""
    assert disk[510:512] == b"\x55\xaa"
    row = disk[446 + 16 : 446 + 32]
    assert row[4] != 0, "no system"
    assert row[2] != 0, "no first sector: OSv takes it for no partition"
    begin, count = number(row, 8, 4), number(row, 12, 4)
    assert all(disk[446 + 16 * other + 4] == 0 for other in (0, 2, 3)), "there is one partition"
    assert (begin + count) * 512 <= len(disk)
    return disk[begin * 512 : (begin + count) * 512]


def read(disk: bytes) -> dict[str, Content]:
    """Everything on it, by its absolute path."""
    data = partition(disk)
    magic, version, block, first, blocks, entries, links, inodes = (number(data, 8 * i) for i in range(8))
    assert (magic, version, block) == (0xDEADBEAD, 1, 512)
    assert (first + blocks) * 512 == len(data)
    table = data[first * 512 :]
    at = 0
    names: list[tuple[int, bytes]] = []
    for _entry in range(entries):
        size = number(table, at + 8, 2)
        names.append((number(table, at), table[at + 10 : at + 10 + size]))
        at += 10 + size
    targets: list[bytes] = []
    for _link in range(links):
        size = number(table, at, 2)
        targets.append(table[at + 2 : at + 2 + size])
        at += 2 + size
    nodes = [[number(table, at + 32 * i + 8 * j) for j in range(4)] for i in range(inodes)]
    assert at + 32 * inodes <= len(table)
    found: dict[str, Content] = {}

    def visit(path: str, inode: int) -> None:
        mode, own, place, count = nodes[inode - 1]
        assert own == inode
        if mode == 0x4000:
            found[path] = None
            for child, name in names[place : place + count]:
                assert name not in (b"", b".", b"..")
                assert b"/" not in name
                visit(f"{path}/{name.decode('utf-8', 'surrogateescape')}", child)
        elif mode == 0x8000:
            assert place >= 1 or not count
            found[path] = data[place * 512 : place * 512 + count]
        else:
            assert mode == 0xA000
            found[path] = targets[place].decode("utf-8", "surrogateescape")

    visit("", 1)
    del found[""]
    return found

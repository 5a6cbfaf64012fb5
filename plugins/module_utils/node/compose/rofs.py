# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OSv's read-only file system (ROFS), written, and the disk around it.

All of it in blocks of 512 bytes and little-endian numbers (fs/rofs/rofs.hh and rofs_vfsops.cc of OSv, August 2026):

superblock      eight u64: magic, version, size of a block, first block and blocks of the tables, counts of their rows
files           from block 1 on, each begins a block
tables          one behind the other, unaligned: entries of directories (u64 inode, u16 length, name), targets of links
                (u16 length, target), inodes (u64 mode, number, place, count)

The place of a directory is its first entry, of a link its target, of a file its block; the count is of entries, 1, or
of bytes.  The root is inode 1.  There are no owners, rights or times.
"""

from __future__ import annotations

import os
import posixpath
import struct
import typing as t

from ...errors import UserFault
from .tree import Directory, File, Link, Tree, read_pieces

BLOCK = 512
MAGIC, VERSION = 0xDEADBEAD, 1
MODES = {Directory: 0x4000, File: 0x8000, Link: 0xA000}
SUPERBLOCK = struct.Struct("<8Q")
ENTRY = struct.Struct("<QH")
TARGET = struct.Struct("<H")
INODE = struct.Struct("<4Q")
PARTITION = 1
"""Its number from 0 in the table: OSv mounts `/dev/vblk0.1` (loader.cc)."""
PARTITION_TYPE = 0x83
PARTITION_BLOCK = 1
SECTORS = 0xFFFFFFFF
"""Greatest number that a table of partitions takes."""
_TABLE, _PARTITION = 446, struct.Struct("<B3sB3sII")
Advance = t.Callable[[int], None]


def write_disk(tree: Tree, stream: t.BinaryIO, advance: Advance) -> int:
    """Write a disk whose second partition is the file system, from block 1 on.

    Args:
        tree: its files.
        stream: empty, and can be written anywhere.
        advance: called with the bytes of each piece.

    Returns:
        The size of the disk, in bytes.

    Raises:
        UserFault: a file cannot be read, or was changed; or there is too much for a disk.
        OSError: the disk cannot be written.
    """
    stream.seek(PARTITION_BLOCK * BLOCK)
    blocks = write_file_system(tree, stream, advance)
    if blocks > SECTORS:
        raise UserFault("the image", f"has {blocks} blocks, a table of partitions has room for {SECTORS}")
    # a sector of the beginning must not be 0, which is no partition to OSv (fs/devfs/device.cc); who reads the disk
    # goes by the numbers of blocks behind it
    row = _PARTITION.pack(0, b"\0\2\0", PARTITION_TYPE, b"\xfe\xff\xff", PARTITION_BLOCK, blocks)
    head = bytearray(BLOCK)
    at = _TABLE + PARTITION * _PARTITION.size
    head[at : at + len(row)] = row
    head[510:] = b"\x55\xaa"
    stream.seek(0)
    stream.write(head)
    return (PARTITION_BLOCK + blocks) * BLOCK


def write_file_system(tree: Tree, stream: t.BinaryIO, advance: Advance) -> int:
    """Write the file system from the stream's place on.

    Args:
        tree: its files.
        stream: can be written anywhere behind its place.
        advance: called with the bytes of each piece.

    Returns:
        Its blocks.

    Raises:
        UserFault: a file cannot be read, or was changed.
        OSError: the stream cannot be written.
    """
    begin = stream.tell()
    stream.write(bytes(BLOCK))
    order = _number(tree)
    inodes: list[bytes] = []
    names: list[bytes] = []
    targets: list[bytes] = []
    block = 1
    for path, (number, children) in order.items():
        entry = tree.entries[path] if path else Directory("")
        if isinstance(entry, File):
            place, count = block, entry.size
            block += _write_file(path, entry, stream, advance)
        elif isinstance(entry, Link):
            place, count = len(targets), 1
            target = os.fsencode(entry.target)
            targets.append(TARGET.pack(len(target)) + target)
        else:
            place, count = len(names), len(children)
            for child in children:
                name = os.fsencode(posixpath.basename(child))
                names.append(ENTRY.pack(order[child][0], len(name)) + name)
        inodes.append(INODE.pack(MODES[type(entry)], number, place, count))
    tables = b"".join((*names, *targets, *inodes))
    # a block more than is needed is what OSv's own writer leaves, too
    count = len(tables) // BLOCK + 1
    stream.write(tables.ljust(count * BLOCK, b"\0"))
    stream.seek(begin)
    stream.write(SUPERBLOCK.pack(MAGIC, VERSION, BLOCK, block, count, len(names), len(targets), len(inodes)))
    return block + count


def _number(tree: Tree) -> dict[str, tuple[int, list[str]]]:
    """Give each path its inode and its children: level by level, by name, so that the same tree is the same bytes."""
    children: dict[str, list[str]] = {"": []}
    for path in sorted(tree.entries, key=lambda path: (path.count("/"), os.fsencode(path))):
        children[path] = []
        children[posixpath.dirname(path)].append(path)
    return {path: (number, found) for number, (path, found) in enumerate(children.items(), 1)}


def _write_file(path: str, file: File, stream: t.BinaryIO, advance: Advance) -> int:
    for piece in read_pieces(path, file):
        stream.write(piece)
        advance(len(piece))
    stream.write(bytes(-file.size % BLOCK))
    return -(-file.size // BLOCK)

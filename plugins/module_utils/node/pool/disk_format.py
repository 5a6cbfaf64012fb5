# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the first bytes of a disk file say it is: read by us, before any program that would follow what they name.

qcow2: QEMU, docs/interop/qcow2.txt; its limits: block/qcow2.h.  The other formats are known by what QEMU looks for
(`*_probe` in block/), so that nothing passes for raw that somebody would take for more.

oslo.utils 10.2 has an inspector of the same purpose (`imageutils.format_inspector`).  It refuses 6 of the 34 headers
of `test_disk_format.py`.  It lets an encrypted disk, snapshots and tables outside of the file pass.  A VHD of fixed
size, a Parallels disk and a VMDK that is a text pass for raw.  It refuses `extended_l2`, which guests boot.  It brings
eight packages and takes 90 ms of processor time to load, where this module takes 0.1 ms for a disk.  This module goes
when oslo.utils refuses what its tests refuse.
"""

from __future__ import annotations

import os
import pathlib
import re
import struct
import typing as t

from ...effects import leaves_nothing
from ...errors import ImageFault
from ...frozen import frozen
from ..state.directories import GONE, unreadable

READ_BYTES = 1 << 16
"""Headers are looked for in so much of a file's beginning; no format has more of one."""
END_BYTES = 512
SECTOR = 512
QCOW = b"QFI\xfb"
_CLUSTER_BITS = range(9, 22)
_L1_BYTES, _REFCOUNT_BYTES = 32 << 20, 8 << 20
_DIRTY, _CORRUPT, _DATA_FILE, _COMPRESSION, _WIDE_L2 = (1 << bit for bit in range(5))
_EXTENSIONS = 64
_END, _DATA_FILE_NAME, _ENCRYPTION = 0x00000000, 0x44415441, 0x0537BE77
_COMPRESSIONS = (0, 1)
_WHOLE = "an image must be whole: qemu-img convert -O qcow2 FILE NEW.qcow2"
_DECRYPT = "every node reads an image: decrypt it with qemu-img convert"
_AGAIN = "fetch or copy it again"

_FOREIGN: tuple[tuple[int, bytes, str], ...] = (
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0x40, b"\x7f\x10\xda\xbe", "VDI"),
    (0, b"conectix", "VHD"),
    (0, b"vhdxfile", "VHDX"),
    (0, b"QED\0", "QED"),
    (0, b"WithoutFreeSpace", "Parallels"),
    (0, b"WithouFreSpacExt", "Parallels"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0, b"Bochs Virtual HD Image", "Bochs"),
    (0, b"#!/bin/sh\n#V2.0 Format\n", "cloop"),
)
"""Where a format's mark stands, the mark, and what people call it."""
_CONVERT_AS = {"VHD": "vpc", "LUKS": "luks"}
_PACKED: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"BZh", "bzip2"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (257, b"ustar", "tar"),
)


@frozen
class DiskHeader:
    """What a disk file says of itself.

    Attributes:
        format: `qcow2`, or `raw` for what is no format that anybody knows.
        virtual_bytes: size that a guest sees.
        partitioned: whether a raw disk begins with a table of partitions.
    """

    format: str
    virtual_bytes: int
    partitioned: bool = False


@leaves_nothing
def read_header(stream: t.BinaryIO, size: int, what: str) -> DiskHeader:
    """Read what a disk file is; no more than some hundred KiB of it, and no other file.

    Args:
        stream: the file, which can be read anywhere.
        size: of the file, in bytes.
        what: the file, for messages.

    Raises:
        ImageFault: it is of a format that images do not have, leans on another file, is encrypted, cut off, or garbage.
        OSError: it cannot be read.
    """
    if size == 0:
        raise ImageFault(what, "is empty")
    head = _at(stream, 0, READ_BYTES)
    if head.startswith(QCOW):
        return DiskHeader("qcow2", _qcow2(head, size, what))
    refuse_foreign(head, _at(stream, max(0, size - END_BYTES), END_BYTES), what)
    if size % SECTOR:
        raise ImageFault(what, f"has {size} bytes, which are no whole sectors of a disk", "it is cut off, or no disk")
    return DiskHeader("raw", size, _partitioned(head, size, what))


def _at(stream: t.BinaryIO, offset: int, count: int) -> bytes:
    stream.seek(offset)
    return stream.read(count)


def refuse_foreign(head: bytes, end: bytes, what: str) -> None:
    """Refuse what some program could take for more than a raw disk, and would follow.

    Args:
        head: the file's beginning.
        end: its last sector.
        what: the file, for messages.

    Raises:
        ImageFault: says of what format it is, and how it becomes an image.
    """
    kind = next((name for at, mark, name in _FOREIGN if head[at : at + len(mark)] == mark), "")
    if not kind and end.startswith((b"conectix", b"koly")):
        kind = "VHD" if end.startswith(b"conectix") else "DMG"
    if not kind and _is_descriptor(head):
        kind = "VMDK"
    if kind:
        raise ImageFault(
            what,
            f"is a disk in the format {kind}, which may name other files: images are qcow2 or raw",
            f"convert it: qemu-img convert -f {_CONVERT_AS.get(kind, kind.lower())} -O qcow2 FILE NEW.qcow2",
        )
    packed = next((name for at, mark, name in _PACKED if head[at : at + len(mark)] == mark), "")
    if packed:
        raise ImageFault(what, f"is packed ({packed})", "unpack it first")


def _is_descriptor(head: bytes) -> bool:
    """A VMDK may be a text that names its files: comments and blank lines, then its version (vmdk_probe)."""
    for line in re.split(rb"\r?\n", head):
        if line.strip(b" ") and not line.startswith(b"#"):
            return line.startswith(b"version=")
    return False


def _partitioned(head: bytes, size: int, what: str) -> bool:
    """A table of partitions, in its old or new form, knows how long the disk was."""
    if head[510:512] != b"\x55\xaa":
        return False
    needed = 0
    kinds = [head[at + 4] for at in range(446, 510, 16)]
    if head[SECTOR : SECTOR + 8] == b"EFI PART" and 0xEE in kinds:
        # UEFI, 5.3.2: the other copy of the table is the last sector of the disk
        needed = (int.from_bytes(head[SECTOR + 32 : SECTOR + 40], "little") + 1) * SECTOR
    elif all(head[at] in (0x00, 0x80) for at in range(446, 510, 16)):
        for at in range(446, 510, 16):
            if head[at + 4]:
                first, count = struct.unpack_from("<II", head, at + 8)
                needed = max(needed, (first + count) * SECTOR)
    if needed > size:
        raise ImageFault(what, f"is cut off: its table of partitions reaches to byte {needed}, it has {size}")
    return needed > 0


class _Header(t.NamedTuple):
    """The fields that both versions of qcow2 have, as they follow the mark."""

    version: int
    backing_offset: int
    backing_bytes: int
    cluster_bits: int
    virtual_bytes: int
    encryption: int
    l1_entries: int
    l1_offset: int
    refcount_offset: int
    refcount_clusters: int
    snapshots: int
    snapshots_offset: int


def _qcow2(head: bytes, size: int, what: str) -> int:
    """Look at a qcow2 header; the size that a guest sees."""

    def refuse(why: str, hint: str = "") -> t.NoReturn:
        raise ImageFault(what, why, hint)

    if len(head) < 72:
        refuse("is cut off within its qcow2 header", _AGAIN)
    header = _Header(*struct.unpack_from(">IQIIQIIQQIIQ", head, 4))
    if header.version == 1:
        refuse("is of the old format qcow", "convert it: qemu-img convert -f qcow -O qcow2 FILE NEW.qcow2")
    if header.version not in (2, 3):
        refuse(f"is qcow2 of version {header.version}; 2 and 3 are known")
    if header.backing_offset or header.backing_bytes:
        refuse("has a backing file: it would read another file of the host", _WHOLE)
    if header.encryption:
        refuse("is encrypted", _DECRYPT)
    if header.cluster_bits not in _CLUSTER_BITS:
        refuse(f"its qcow2 header is garbage: clusters of 2^{header.cluster_bits} bytes")
    wide = _features(head, 1 << header.cluster_bits, refuse) if header.version == 3 else False
    if header.snapshots:
        refuse(f"holds {header.snapshots} snapshots of its own, and with them what was removed from it", _WHOLE)
    _sizes(header, wide, size, refuse)
    return header.virtual_bytes


def _sizes(header: _Header, wide: bool, size: int, refuse: t.Callable[..., t.NoReturn]) -> None:
    cluster, virtual = 1 << header.cluster_bits, header.virtual_bytes
    if not virtual:
        refuse("is a disk of no size")
    if virtual % SECTOR:  # QEMU leaves out what is beyond the last whole one
        refuse(f"its qcow2 header is garbage: a disk of {virtual} bytes, which are no whole sectors")
    # an entry of the first table stands for a table of one cluster, whose entries have 8 bytes, or 16
    reach = header.l1_entries * cluster * (cluster // (16 if wide else 8))
    if header.l1_entries * 8 > _L1_BYTES or virtual > reach or virtual >= 1 << 63:
        refuse(f"its qcow2 header is garbage: a disk of {virtual} bytes, and tables for {reach}")
    refcounts = header.refcount_clusters * cluster
    if not 0 < refcounts <= _REFCOUNT_BYTES:
        refuse(f"its qcow2 header is garbage: {header.refcount_clusters} clusters of reference counts")
    for name, offset, count in (
        ("first table", header.l1_offset, header.l1_entries * 8),
        ("table of reference counts", header.refcount_offset, refcounts),
    ):
        if offset % cluster or not offset:
            refuse(f"its qcow2 header is garbage: {name} at byte {offset}")
        if offset + count > size:
            refuse(f"is cut off: its {name} reaches to byte {offset + count}, it has {size}", _AGAIN)


def _features(head: bytes, cluster: int, refuse: t.Callable[..., t.NoReturn]) -> bool:
    """Look at what version 3 has besides; return whether the entries of second tables are wide."""
    if len(head) < 104:
        refuse("is cut off within its qcow2 header", _AGAIN)
    features, refcount_order, header_bytes = struct.unpack_from(">Q16xII", head, 72)
    if features & _DATA_FILE:
        refuse("keeps its data in an external file: it would read another file of the host", _WHOLE)
    if features & (_DIRTY | _CORRUPT):
        word = "corrupt" if features & _CORRUPT else "not closed properly"
        refuse(f"is marked as {word}", "qemu-img check -r all FILE, where its first owner is")
    unknown = features & ~(_DIRTY | _CORRUPT | _DATA_FILE | _COMPRESSION | _WIDE_L2)
    if unknown:
        refuse(f"asks for features of qcow2 that are not known here ({unknown:#x})", _WHOLE)
    if refcount_order > 6 or header_bytes < 104 or header_bytes % 8 or header_bytes > min(cluster, len(head)):
        refuse("its qcow2 header is garbage")
    compression = head[104] if header_bytes > 104 else 0
    if compression not in _COMPRESSIONS or bool(compression) != bool(features & _COMPRESSION):
        refuse(f"is compressed in a way that is not known here ({compression})")
    for kind in _extensions(head[:cluster], header_bytes, refuse):
        if kind == _DATA_FILE_NAME:
            refuse("names an external file for its data", _WHOLE)
        if kind == _ENCRYPTION:
            refuse("is encrypted", _DECRYPT)
    return bool(features & _WIDE_L2)


def _extensions(head: bytes, offset: int, refuse: t.Callable[..., t.NoReturn]) -> t.Iterator[int]:
    for _number in range(_EXTENSIONS):
        if offset + 8 > len(head):
            return
        kind, count = struct.unpack_from(">II", head, offset)
        if kind == _END:
            return
        if offset + 8 + count > len(head):
            refuse("its qcow2 header is garbage: an extension reaches out of it")
        yield kind
        offset += 8 + (count + 7) // 8 * 8
    refuse(f"its qcow2 header is garbage: more than {_EXTENSIONS} extensions")


def backing_file(overlay: pathlib.Path) -> str:
    """The file that an overlay of ours stands on, as its header names it.

    Args:
        overlay: what `overlays.make_overlay` made.

    Returns:
        "": none, or it is no such file (any more).

    Raises:
        NodeFault: it is there and cannot be read, so that it is not known.
    """
    try:
        with overlay.open("rb") as stream:
            head = stream.read(READ_BYTES)
    except GONE:
        return ""
    except OSError as error:
        raise unreadable(overlay, error) from error
    if not head.startswith(QCOW) or len(head) < 20:
        return ""
    offset, count = struct.unpack_from(">QI", head, 8)
    return os.fsdecode(head[offset : offset + count])

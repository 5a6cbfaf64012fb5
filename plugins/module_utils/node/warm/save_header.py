# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header of a domain's saved state, read and written anew for another domain.

libvirt keeps it for itself (`struct _virQEMUSaveHeader` of src/qemu/qemu_saveimage.h, version 2 from libvirt 0.8 to at
least 11): 92 bytes in the order of this machine, then the domain's XML with a NUL, then a cookie with a NUL, then what
qemu wrote.  `virDomainSaveImageDefineXML` would be the way, and refuses another name, another UUID and another disk.
Whatever is not of just this form is refused, and its guest boots cold.
"""

from __future__ import annotations

import dataclasses
import struct
import typing as t

from ...errors import VTorqueError

MAGIC = b"LibvirtQemudSave"
VERSION = 2
_FORM = struct.Struct("=16s5I56x")
LONGEST = 4 << 20
"""Bytes of XML and cookie that are read at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class SaveHeader:
    """What stands before the memory.

    Attributes:
        xml: of the domain, as it was saved.
        cookie: what libvirt notes for itself, with its NUL; b"": nothing.
        memory_at: where in the file qemu's part begins.
    """

    xml: str
    cookie: bytes
    memory_at: int


def read_header(stream: t.BinaryIO) -> SaveHeader:
    """Read the header of a saved state.

    Args:
        stream: at its beginning.

    Raises:
        VTorqueError: it is not of the form that is known here; says in what.
    """
    what = "the saved state"
    head = stream.read(_FORM.size)
    if len(head) != _FORM.size:
        raise VTorqueError(what, f"is cut off within its header, after {len(head)} bytes")
    magic, version, length, _running, compressed, cookie_at = _FORM.unpack(head)
    if magic != MAGIC:
        raise VTorqueError(what, f"begins with {magic!a}, not with {MAGIC!a}")
    if version != VERSION:
        raise VTorqueError(what, f"is of version {version}, this program knows {VERSION}")
    if compressed:
        raise VTorqueError(what, f"is compressed (form {compressed})", "save_image_format = raw in qemu.conf")
    if not 0 < length <= LONGEST or (cookie_at and not 0 < cookie_at < length):
        raise VTorqueError(what, f"says that its XML has {length} bytes, and its cookie begins at {cookie_at}")
    data = stream.read(length)
    if len(data) != length:
        raise VTorqueError(what, f"is cut off within its XML, after {len(data)} of {length} bytes")
    xml, _nul, _rest = data.partition(b"\0")
    cookie = data[cookie_at:].partition(b"\0")[0] + b"\0" if cookie_at else b""
    try:
        return SaveHeader(xml.decode("utf-8"), cookie, _FORM.size + length)
    except UnicodeDecodeError as error:
        raise VTorqueError(what, f"holds XML that is not UTF-8: {error}") from error


def header_of(xml: str, cookie: bytes) -> bytes:
    """Return the header for another domain.

    Args:
        xml: of it.
        cookie: as `read_header` found it.
    """
    text = xml.encode("utf-8") + b"\0"
    length = len(text) + len(cookie)
    return _FORM.pack(MAGIC, VERSION, length, 0, 0, len(text) if cookie else 0) + text + cookie

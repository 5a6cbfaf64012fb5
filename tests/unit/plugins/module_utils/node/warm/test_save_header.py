# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The header of what libvirt saved, as it is and spoilt."""

from __future__ import annotations

import io
import struct

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm.save_header import header_of, read_header

from .template_node import saved


@pytest.mark.parametrize("libvirt", ["9.0.0", "11.3.0"])
def test_header_of_libvirt_is_read_to_where_qemu_begins(libvirt: str) -> None:
    data = saved(libvirt)
    header = read_header(io.BytesIO(data))
    assert header.xml.startswith("<domain type='qemu'>")
    assert header.xml.rstrip().endswith("</domain>")
    assert header.cookie.strip(b"\0").strip().endswith(b"</cookie>")
    assert data[header.memory_at :].startswith(b"QEVM")


def test_header_for_another_domain_is_read_back() -> None:
    before = read_header(io.BytesIO(saved()))
    data = header_of("<domain><name>vcn1-1</name></domain>", before.cookie)
    after = read_header(io.BytesIO(data))
    assert (after.xml, after.cookie) == ("<domain><name>vcn1-1</name></domain>", before.cookie)
    assert after.memory_at == len(data)
    assert read_header(io.BytesIO(header_of("<domain/>", b""))).cookie == b""


@pytest.mark.parametrize(
    ("at", "field", "message"),
    [
        (0, b"LibvirtQemudPart", "begins with"),
        (16, struct.pack("=I", 3), "version 3"),
        (20, struct.pack("=I", 0), "0 bytes"),
        (20, struct.pack("=I", 1 << 30), f"{1 << 30} bytes"),
        (28, struct.pack("=I", 2), "compressed"),
        (32, struct.pack("=I", 1 << 29), "cookie begins at"),
        (92, b"\xff\xfe", "UTF-8"),
    ],
)
def test_header_of_another_form_is_refused(at: int, field: bytes, message: str) -> None:
    data = bytearray(saved())
    data[at : at + len(field)] = field
    with pytest.raises(VTorqueError, match=message):
        read_header(io.BytesIO(bytes(data)))


@pytest.mark.parametrize("length", [0, 15, 91, 92, 5000])
def test_header_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(VTorqueError, match="cut off"):
        read_header(io.BytesIO(saved()[:length]))

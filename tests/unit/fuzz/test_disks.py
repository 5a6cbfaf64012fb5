# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever the head of a disk or the record of an image holds: it is believed within bounds, or refused as an image.

Seen to fail: with a header of which nobody asks whether it is encrypted.
"""

from __future__ import annotations

import io
import struct
import typing as t

import hypothesis.strategies as st
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import disk_format, images
from hypothesis import given

from tests.unit.qcow2_numbers import FIELDS, NUMBERS

from .inputs import check_message, damaged, spoiled, tried

CUTS = st.one_of(st.none(), st.none(), st.none(), st.integers(1, 112))
CLUSTER = 1 << 16
RECORD: dict[str, t.Any] = {
    "version": 1, "name": "tiny", "revision": 2, "distro": "debian", "arch": "x86_64", "format": "qcow2",
    "disk": "disk.qcow2", "disk_sha256": "0f" * 32, "disk_bytes": 4096, "virtual_bytes": 16 << 20,
    "boot": {"mode": "kernel", "kernel": "vmlinuz", "initrd": "initrd", "cmdline": "console=ttyS0"},
    "description": "for tests", "created": "2026-01-01T00:00:00+00:00",
}  # fmt: skip


def good() -> bytes:
    """The head of a qcow2 of 64 MiB, version 3, as qemu-img lays it out."""
    head = struct.pack(
        ">4sIQIIQIIQQIIQQQQII", b"QFI\xfb", 3, 0, 0, 16, 64 << 20, 0, 1, 3 * CLUSTER, CLUSTER, 1, 0, 0, 0, 0, 0, 4, 112
    )
    return head.ljust(112, b"\0") + struct.pack(">II", 0, 0)


GOOD = good()
LENGTH = 4 * CLUSTER


class Sparse(io.BytesIO):
    """A disk of this head, of which the rest is zeros."""


def looked(head: bytes, size: int = LENGTH) -> disk_format.DiskHeader | None:
    """The header; None: it is refused."""
    try:
        return disk_format.read_header(Sparse(head), size, "the disk")
    except ImageFault as error:
        check_message(error)
        return None


def test_head_is_one_that_is_believed() -> None:
    assert looked(GOOD) == disk_format.DiskHeader("qcow2", 64 << 20)


@tried
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), NUMBERS, max_size=4), CUTS, st.integers(1, 1 << 62))
def test_any_numbers_in_a_qcow2_are_within_bounds_or_refused(
    numbers: dict[int, int], cut: int | None, size: int
) -> None:
    head = bytearray(GOOD)
    for at, value in numbers.items():
        struct.pack_into(FIELDS[at], head, at, value % (1 << (8 * struct.calcsize(FIELDS[at]))))
    for length in (LENGTH, size):
        header = looked(bytes(head[:cut]), length)
        if header is not None and header.format == "qcow2":
            version, backing = struct.unpack_from(">IQ", head, 4)
            assert version in (2, 3)
            assert not backing
            assert struct.unpack_from(">I", head, 32)[0] == 0, "encrypted"
            assert header.virtual_bytes == struct.unpack_from(">Q", head, 24)[0]


@tried
@given(damaged(GOOD), st.integers(1, 1 << 20))
def test_any_head_is_of_a_disk_or_refused(head: bytes, size: int) -> None:
    header = looked(head, size)
    assert header is None or header.format in ("qcow2", "raw")


@tried
@given(st.lists(st.tuples(st.integers(0, 1023), st.binary(min_size=1, max_size=16)), max_size=6), st.integers(1, 9))
def test_any_table_of_partitions_is_within_the_disk_or_refused(changes: list[tuple[int, bytes]], sectors: int) -> None:
    head = bytearray(1024)
    head[510:512] = b"\x55\xaa"
    for at, data in changes:
        head[at : at + len(data)] = data
    header = looked(bytes(head[: sectors * 512]), sectors * 512)
    assert header is None or header.virtual_bytes == sectors * 512


@tried
@given(spoiled(RECORD))
def test_any_record_is_of_the_form_or_refused(record: t.Any) -> None:
    if not isinstance(record, dict):
        return
    try:
        images._check_record("record of image tiny@2", "tiny@2", record)
    except ImageFault as error:
        check_message(error)
    else:
        assert (record["name"], record["revision"]) == ("tiny", 2)
        assert "/" not in record["disk"]
        assert all("/" not in (record["boot"].get(key) or "") for key in ("kernel", "initrd"))

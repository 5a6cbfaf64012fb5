# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the first bytes of a disk file say; every answer is a header or an error of ours."""

from __future__ import annotations

import io
import pathlib
import struct
import subprocess
import typing as t

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.disk_format import (
    DiskHeader,
    backing_file,
    read_header,
)

from .fuzz import examples

MIB = 1 << 20


def qemu_img(*arguments: object) -> None:
    subprocess.run(["qemu-img", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Shown(bytes):
    def __repr__(self) -> str:
        return f"{len(self)} bytes"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "good.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", path, "8M")
    return Shown(path.read_bytes())


def read(content: bytes, size: int | None = None) -> DiskHeader:
    return read_header(io.BytesIO(content), len(content) if size is None else size, "disk")


def answer(content: bytes, size: int | None = None) -> DiskHeader | ImageFault:
    try:
        return read(content, size)
    except ImageFault as error:
        return error


def refused(content: bytes) -> str:
    with pytest.raises(ImageFault) as caught:
        read(content)
    return str(caught.value)


@pytest.mark.parametrize(
    "options",
    ["compat=0.10", "compat=1.1", "lazy_refcounts=on", "cluster_size=512", "cluster_size=2M",
     "compression_type=zstd", "extended_l2=on", "refcount_bits=64"],
)  # fmt: skip
def test_every_kind_of_qcow2_that_a_guest_may_boot(tmp_path: pathlib.Path, options: str) -> None:
    qemu_img("create", "-q", "-f", "qcow2", "-o", options, tmp_path / "disk", "64M")
    assert read((tmp_path / "disk").read_bytes()) == DiskHeader("qcow2", 64 * MIB)


@pytest.mark.parametrize(
    ("format", "options"),
    [("vmdk", ""), ("vmdk", "subformat=monolithicFlat"), ("vmdk", "subformat=twoGbMaxExtentSparse"), ("vdi", ""),
     ("vpc", ""), ("vpc", "subformat=fixed"), ("vhdx", ""), ("qed", ""), ("qcow", ""), ("parallels", "")],
)  # fmt: skip
def test_other_formats_are_refused_with_the_way_to_convert_them(
    tmp_path: pathlib.Path, format: str, options: str
) -> None:
    qemu_img("create", "-q", "-f", format, *(("-o", options) if options else ()), tmp_path / "disk", "8M")
    assert f"qemu-img convert -f {format} -O qcow2" in refused((tmp_path / "disk").read_bytes())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"LUKS\xba\xbe" + bytes(506), "convert"),
        (b"\n# words\nversion=1\nRW 2048 FLAT \"/etc/shadow\" 0\n".ljust(512), "VMDK"),
        (b"# Disk DescriptorFile".ljust(512), "VMDK"),
        (bytes(512) + b"koly" + bytes(508), "DMG"),
        (b"\x1f\x8b" + bytes(510), "unpack it first"),
        (b"\xfd7zXZ\0" + bytes(506), "unpack it first"),
        (bytes(257) + b"ustar" + bytes(250), "unpack it first"),
        (bytes(511), "no whole sectors"),
        (b"QFI\xfb", "cut off"),
        (b"QFI\xfb\0\0\0\3" + bytes(40), "cut off"),
    ],
)  # fmt: skip
def test_file_that_is_no_disk_is_refused_with_its_kind(content: bytes, message: str) -> None:
    assert message in refused(content)


def number(at: int, form: str, value: int) -> t.Callable[[bytearray], None]:
    return lambda content: struct.pack_into(form, content, at, value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (number(4, ">I", 1), "old format qcow"),
        (number(4, ">I", 4), "version 4"),
        (number(8, ">Q", 512), "backing file"),
        (number(16, ">I", 11), "backing file"),
        (number(20, ">I", 8), "garbage"),
        (number(20, ">I", 63), "garbage"),
        (number(24, ">Q", 0), "no size"),
        (number(24, ">Q", 8 * MIB + 511), "no whole sectors"),
        (number(24, ">Q", 1 << 60), "garbage"),
        (number(24, ">Q", (1 << 64) - 1), "garbage"),
        (number(32, ">I", 1), "encrypted"),
        (number(32, ">I", 2), "encrypted"),
        (number(36, ">I", 0), "garbage"),
        (number(36, ">I", 0xFFFFFFFF), "garbage"),
        (number(36, ">I", 4 * MIB), "cut off"),
        (number(40, ">Q", 0), "garbage"),
        (number(40, ">Q", 1 << 63), "cut off"),
        (number(40, ">Q", 100), "garbage"),
        (number(48, ">Q", 1 << 62), "cut off"),
        (number(56, ">I", 0), "garbage"),
        (number(56, ">I", 0xFFFFFFFF), "garbage"),
        (number(60, ">I", 3), "3 snapshots"),
        (number(72, ">Q", 1), "not closed properly"),
        (number(72, ">Q", 2), "corrupt"),
        (number(72, ">Q", 4), "external file"),
        (number(72, ">Q", 8), "compressed in a way"),
        (number(72, ">Q", 1 << 5), "not known here (0x20)"),
        (number(72, ">Q", 1 << 63), "not known here"),
        (number(96, ">I", 7), "garbage"),
        (number(100, ">I", 0), "garbage"),
        (number(100, ">I", 1 << 30), "garbage"),
        (number(112, ">I", 0x44415441), "external file"),
        (number(112, ">I", 0x0537BE77), "encrypted"),
        (number(116, ">I", 0xFFFFFFFF), "garbage"),
    ],
)  # fmt: skip
def test_a_header_that_names_other_files_or_cannot_be_is_refused(
    good: bytes, spoil: t.Callable[[bytearray], None], message: str
) -> None:
    content = bytearray(good)
    spoil(content)
    assert message in refused(bytes(content))


def test_qcow2_that_ends_before_its_tables_is_cut_off(good: bytes) -> None:
    assert "cut off" in refused(good[: MIB // 8])


def test_extensions_have_an_end(good: bytes) -> None:
    many = good[:112] + struct.pack(">II", 0x12345678, 0) * 1000
    assert "extensions" in refused(many + good[len(many) :])


def disk(*partitions: tuple[int, int]) -> bytes:
    table = b"".join(struct.pack("<BxxxBxxxII", 0x80, 0x83, first, count) for first, count in partitions)
    return bytes(446) + table.ljust(64, b"\0") + b"\x55\xaa" + bytes(2048 * 512)


def test_raw_disk_knows_its_partitions() -> None:
    assert read(disk((1, 2048))) == DiskHeader("raw", 2049 * 512, partitioned=True)
    assert read(bytes(512)) == DiskHeader("raw", 512)
    assert "cut off" in refused(disk((1, 2049)))


def test_newer_table_of_partitions_says_where_the_disk_ended() -> None:
    content = bytearray(disk((1, 0xFFFFFFFF)))
    content[446 + 4] = 0xEE
    content[512:520] = b"EFI PART"
    struct.pack_into("<Q", content, 512 + 32, 2048)
    assert read(bytes(content)).partitioned
    struct.pack_into("<Q", content, 512 + 32, 2049)
    assert "cut off" in refused(bytes(content))


@examples(400)
@hypothesis.given(
    places=st.lists(st.tuples(st.integers(0, 299), st.integers(0, 255)), max_size=12), cut=st.integers(0, 1 << 18),
    size=st.one_of(st.none(), st.integers(1, (1 << 63) - 1)),
)  # fmt: skip
def test_no_header_ends_in_anything_but_an_answer(
    good: bytes, places: list[tuple[int, int]], cut: int, size: int | None
) -> None:
    content = bytearray(good)
    for at, value in places:
        content[at] = value
    header = answer(bytes(content[:cut] or b"\0"), size)
    assert isinstance(header, ImageFault) or header.virtual_bytes > 0


@examples(300)
@hypothesis.given(st.binary(max_size=2048))
def test_no_garbage_ends_in_anything_but_an_answer(content: bytes) -> None:
    for head in (content, b"QFI\xfb\0\0\0\3" + content):
        header = answer(head)
        assert isinstance(header, ImageFault) or header.format == "raw"


def test_overlay_names_what_it_stands_on(tmp_path: pathlib.Path) -> None:
    qemu_img("create", "-q", "-f", "qcow2", "-u", "-b", "/pool/a b", "-F", "raw", tmp_path / "overlay", "8M")
    assert backing_file(tmp_path / "overlay") == "/pool/a b"
    (tmp_path / "other").write_bytes(b"QFI\xfb\xff")
    assert backing_file(tmp_path / "other") == ""
    assert backing_file(tmp_path / "none") == ""

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a disk, a record or a name holds: there is an answer, and it is one of ours; what is believed is safe."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import struct
import typing as t

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import (
    checksum,
    disk_check,
    images,
    publish,
    retire,
    revision,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.disk_format import DiskHeader
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import IMAGE_NAME
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import messages

from tests.unit.qcow2_numbers import FIELDS, NUMBERS

from .fuzz import examples

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

ME = os.getuid()
SOON = 60.0
SECTOR = 512
SPOILED = st.dictionaries(st.sampled_from(sorted(FIELDS)), NUMBERS, max_size=4)
MARKS = [
    (0, b"KDMV"), (0, b"COWD"), (0, b"# Disk DescriptorFile\n"), (0, b"\n #x\nversion=1\n"),
    (0, b"#\r\n \nversion=3\r\n"), (0, b"version=2\nRW 1 FLAT \"/etc/shadow\" 0\n"),
    (0x40, b"\x7f\x10\xda\xbe"), (0, b"conectix"), (-512, b"conectix"),
    (0, b"vhdxfile"), (0, b"QED\0"), (0, b"WithoutFreeSpace"), (0, b"WithouFreSpacExt"), (0, b"LUKS\xba\xbe\0\1"),
    (0, b"Bochs Virtual HD Image"), (0, b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop"), (-512, b"koly"), (0, b"QFI\xfb"),
    (0, b""),
]  # fmt: skip
"""What QEMU's own probes look for, and nothing."""
Rule = t.Callable[[str, pathlib.Path], tuple[str, ...]]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=6,
)
TRICKS = ["/", "..", "\n", "\0", "@", "\u0131", "\u202e", "\ud800", "%2f", "*"]
NAMES = st.one_of(
    st.text(max_size=80),
    st.from_regex(r"[A-Za-z0-9@._/-]{1,70}", fullmatch=True),
    st.sampled_from(["tiny", "tiny@2", "plain", "plain.qcow2", "old.img", "notes.txt"]).flatmap(
        lambda name: st.tuples(st.just(name), st.integers(0, len(name)), st.sampled_from(TRICKS))
    ).map(lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] :]),
)  # fmt: skip


def spoiled(content: bytes, numbers: t.Mapping[int, int]) -> bytes:
    """With these numbers in the header, as far as their places hold them."""
    found = bytearray(content)
    for at, value in numbers.items():
        bits = 8 * struct.calcsize(FIELDS[at])
        struct.pack_into(FIELDS[at], found, at, value % (1 << bits))
    return bytes(found)


def looked(path: pathlib.Path, **more: t.Any) -> DiskHeader | None:
    """The header; None: it is refused."""
    with disk_check.open_disk(path) as stream, contextlib.suppress(ImageFault):
        return disk_check.inspect_header(stream, "the disk", **more)
    return None


def qemu_says(path: pathlib.Path, *arguments: str) -> dict[str, t.Any]:
    """What qemu-img takes a file for; {}: for nothing."""
    with contextlib.suppress(ImageFault):
        argv = [disk_check.QEMU_IMG, "info", "--output=json", *arguments, path]
        return t.cast("dict[str, t.Any]", json.loads(disk_check.run_qemu_img(argv, Deadline.after(SOON), ImageFault)))
    return {}


class Shown(bytes):
    def __repr__(self) -> str:
        return f"{len(self)} bytes"


@pytest.fixture
def good(image_pool: ImagePool, tmp_path: pathlib.Path) -> bytes:
    image_pool.qemu_img("create", "-q", "-f", "qcow2", tmp_path / "good", "64M")
    return Shown((tmp_path / "good").read_bytes())


@examples(60)
@hypothesis.given(numbers=SPOILED, cut=st.one_of(st.none(), st.integers(1, 1 << 18)))
def test_a_header_that_is_believed_is_what_qemu_reads_and_names_no_other_file(
    tmp_path: pathlib.Path, good: bytes, numbers: dict[int, int], cut: int | None
) -> None:
    path = tmp_path / "disk"
    path.write_bytes(spoiled(good, numbers)[:cut])
    header = looked(path, format="qcow2")
    if header and (facts := qemu_says(path, "-f", "qcow2")):
        assert facts["virtual-size"] == header.virtual_bytes
        assert not facts.get("backing-filename")
        assert not facts.get("encrypted")
        assert not facts.get("format-specific", {}).get("data", {}).get("data-file")


@examples(60)
@hypothesis.given(
    mark=st.sampled_from(MARKS), more=st.binary(max_size=80), sectors=st.integers(2, 8),
    places=st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 255)), max_size=3),
)  # fmt: skip
def test_image_accepted_as_raw_is_raw_to_qemu(
    tmp_path: pathlib.Path, mark: tuple[int, bytes], more: bytes, sectors: int, places: list[tuple[int, int]]
) -> None:
    content = bytearray(sectors * SECTOR)
    at = mark[0] % len(content)
    arguments = (mark[1] + more)[: len(content) - at]
    content[at : at + len(arguments)] = arguments
    for place, value in places:
        content[place] = value
    (tmp_path / "disk").write_bytes(content)
    header = looked(tmp_path / "disk", format="raw")
    assert header is None or qemu_says(tmp_path / "disk").get("format", "raw") == "raw"


def everything(pool: pathlib.Path) -> set[tuple[str, int, int]]:
    """Of each file its inode and time."""
    return {(str(path), path.lstat().st_ino, path.lstat().st_mtime_ns) for path in pool.rglob("*") if path.is_file()}


@examples(25)
@hypothesis.given(
    numbers=SPOILED, cut=st.one_of(st.none(), st.integers(1, 1 << 18)),
    tables=st.lists(st.tuples(st.integers(0, 24575), NUMBERS), max_size=6),
)  # fmt: skip
def test_disk_is_added_whole_or_the_pool_is_as_it_was(
    image_pool: ImagePool, tmp_path: pathlib.Path, good: bytes, numbers: dict[int, int], cut: int | None,
    tables: list[tuple[int, int]],
) -> None:  # fmt: skip
    """Its header, its tables and its end are anything."""
    content = bytearray(spoiled(good, numbers).ljust(24576 * 8, b"\0"))
    for entry, value in tables:
        struct.pack_into(">Q", content, max(128, entry * 8), value % (1 << 64))
    (tmp_path / "disk").write_bytes(content[:cut])
    before = everything(image_pool.path)
    wanted = revision.RevisionSpec("debian12", tmp_path / "disk", distro="debian")
    with contextlib.suppress(VTorqueError):
        image = publish.publish(wanted, image_pool.path, owner_uid=ME, max_bytes=1 << 41)
        assert checksum.verify(image)
        retire.remove(image.name, image_pool.path, tmp_path / "guests", owner_uid=ME)
        (image_pool.path / f".retired.{image.name}").unlink()
    assert everything(image_pool.path) == before


@examples(150)
@hypothesis.given(
    changes=st.dictionaries(
        st.sampled_from(["version", "name", "revision", "distro", "arch", "format", "disk", "disk_sha256", "disk_bytes",
                         "virtual_bytes", "boot", "description", "created", "who", "made", "source", "inputs"]),
        JSON, max_size=3,
    ),
    boot=st.dictionaries(st.sampled_from(["mode", "kernel", "initrd", "cmdline", "kernel_sha256"]), JSON, max_size=2),
)  # fmt: skip
def test_record_is_believed_or_refused_and_the_list_goes_on(
    image_pool: ImagePool, changes: dict[str, t.Any], boot: dict[str, t.Any]
) -> None:
    file = image_pool.path / "tiny@10/record.json"
    record = json.loads((image_pool.path / "tiny@9/record.json").read_text())
    record = {**record, "revision": 10, "boot": {**record["boot"], **boot}, **changes}
    file.chmod(0o644)
    file.write_text(json.dumps(record))
    found = dict(images.list_images(image_pool.path, owner_uid=ME))
    assert isinstance(found["tiny@9"], images.Image)
    tried = found["tiny@10"]
    if isinstance(tried, images.Image):
        for path in (tried.path, tried.boot.kernel, tried.boot.initrd):
            assert path is None or path.parent == image_pool.path / "tiny@10"
    else:
        assert isinstance(tried, ImageFault)


@examples(50)
@hypothesis.given(content=st.one_of(st.binary(max_size=200), JSON.map(lambda data: json.dumps(data).encode())))
def test_record_that_is_anything_is_refused(image_pool: ImagePool, content: bytes) -> None:
    file = image_pool.path / "tiny@10/record.json"
    file.chmod(0o644)
    file.write_bytes(content)
    with pytest.raises(ImageFault):
        image_pool.find("tiny@10")


@examples(300)
@hypothesis.given(name=NAMES)
def test_no_name_leads_anywhere_but_into_the_pool(image_pool: ImagePool, name: str) -> None:
    """Whoever is told a name: who adds, who deletes, who boots, and vsub."""
    known = images.list_names(image_pool.path)
    for rule in (found_by_guests, retire.entries, refused_or_new, asked_by_users):
        entries, arguments = verdict_of(rule, name, image_pool.path)
        assert arguments.isprintable()
        for entry in entries:
            assert entry in known
            assert entry.partition("@")[0].startswith(name.partition("@")[0])


def verdict_of(rule: Rule, name: str, pool: pathlib.Path) -> tuple[tuple[str, ...], str]:
    """Which entries of the pool a name means; or why it means none, as vmgr says it."""
    try:
        return rule(name, pool), ""
    except VTorqueError as error:
        return (), messages.text("vmgr", error).replace("\n", " ")


def found_by_guests(name: str, pool: pathlib.Path) -> tuple[str, ...]:
    return (images.find(name, pool, owner_uid=ME).name,)


def refused_or_new(name: str, pool: pathlib.Path) -> tuple[str, ...]:
    revision.check_name(name, pool)
    return ()


def asked_by_users(name: str, _pool: pathlib.Path) -> tuple[str, ...]:
    """What of it is a name, for a comma begins another key; a path is another matter (allow_user_images)."""
    found = str(request.parse([(f"img={name}", "-vm")]).values.get("img", ""))
    assert not found or found.startswith("/") or re.fullmatch(IMAGE_NAME, found)
    return ()

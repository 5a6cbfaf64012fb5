# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a disk file is."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import typing as t

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import disk_check
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from .fuzz import examples

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

SOON = 60.0


@pytest.mark.parametrize("option", ["backing", "data"])
def test_an_image_that_leans_on_another_file_is_refused(
    image_pool: ImagePool, option: str, tmp_path: pathlib.Path
) -> None:
    path = image_pool.path / "leaning.qcow2"
    if option == "backing":
        image_pool.qemu_img("create", "-q", "-f", "qcow2", "-b", image_pool.path / "old.img", "-F", "raw", path, "8M")
    else:
        image_pool.qemu_img("create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path / 'data'}", path, "8M")
    path.chmod(0o444)
    with pytest.raises(ImageFault, match="file"):
        disk_check.inspect(image_pool.find("leaning"))


def test_disk_that_is_none_is_the_images_fault(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    (image_pool.path / "broken.qcow2").write_bytes(bytes(512))
    (image_pool.path / "broken.qcow2").chmod(0o444)
    with pytest.raises(ImageFault, match="is raw, not qcow2"):
        disk_check.inspect(image_pool.find("broken"))


def test_disk_of_another_size_than_its_record_says_is_the_images_fault(
    image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    image_pool.add("tiny", 11, virtual_bytes=32 << 20)
    with pytest.raises(ImageFault, match="its record says"):
        disk_check.inspect(image_pool.find("tiny"))


def checked(path: pathlib.Path, **more: t.Any) -> None:
    with disk_check.open_disk(path) as stream:
        header = disk_check.inspect_header(stream, "the disk", **more)
    disk_check.prove(path, header, Deadline.after(SOON))


@pytest.mark.parametrize("format", ["qcow2", "raw"])
def test_disk_that_was_filled_is_one(image_pool: ImagePool, tmp_path: pathlib.Path, format: str) -> None:
    (tmp_path / "raw").write_bytes(os.urandom(3 << 20))
    image_pool.qemu_img("convert", "-f", "raw", "-O", format, tmp_path / "raw", tmp_path / "disk")
    checked(tmp_path / "disk", format=format)


def test_qcow2_whose_end_is_missing_is_found(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").write_bytes(os.urandom(3 << 20))
    image_pool.qemu_img("convert", "-f", "raw", "-O", "qcow2", tmp_path / "raw", tmp_path / "disk")
    os.truncate(tmp_path / "disk", (tmp_path / "disk").stat().st_size - (1 << 20))
    with pytest.raises(ImageFault, match="qemu-img check"):
        checked(tmp_path / "disk")


def test_tables_that_lead_everywhere_are_found(image_pool: ImagePool, tmp_path: pathlib.Path) -> None:
    """Every entry of the first table at one table, and that one full of one place far beyond the end of the file."""
    path = tmp_path / "disk"
    image_pool.qemu_img("create", "-q", "-f", "qcow2", path, "1T")
    content = bytearray(path.read_bytes())
    l1_entries, l1_offset = int.from_bytes(content[36:40], "big"), int.from_bytes(content[40:48], "big")
    end = len(content)
    for number in range(l1_entries):
        at = l1_offset + 8 * number
        content[at : at + 8] = ((1 << 63) | (end + (-end % 65536))).to_bytes(8, "big")
    content += bytes(-end % 65536) + ((1 << 63) | (1 << 55)).to_bytes(8, "big") * 8192
    path.write_bytes(content)
    with pytest.raises(VTorqueError, match="qemu-img check"):
        checked(path)


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (b"\0" * 4096, {}, "no qcow2"),
        (b"\0" * 4096, {"format": "qcow2"}, "is raw, not qcow2"),
        (b"\0" * 4096, {"format": "raw", "max_bytes": 1024}, "the site allows"),
        (b"KDMV" + b"\0" * 508, {"format": "raw"}, "qemu-img convert"),
    ],
)
def test_disk_that_the_site_does_not_want(
    tmp_path: pathlib.Path, content: bytes, more: dict[str, t.Any], message: str
) -> None:
    (tmp_path / "disk").write_bytes(content)
    with pytest.raises(ImageFault, match=message):
        checked(tmp_path / "disk", **more)


def test_greater_disk_than_the_site_allows_is_refused_by_its_header(
    image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    image_pool.qemu_img("create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", tmp_path / "disk", 1 << 53)
    with pytest.raises(ImageFault, match="the site allows"):
        checked(tmp_path / "disk", max_bytes=1 << 41)


def test_qcow2_under_the_name_of_a_raw_one_is_refused(image_pool: ImagePool) -> None:
    """What a distribution calls .img is often qcow2, and would boot as garbage."""
    (image_pool.path / "plain.qcow2").rename(image_pool.path / "plain.img")
    with pytest.raises(ImageFault, match="is qcow2, not raw"):
        disk_check.inspect(image_pool.find("plain"))


def test_pipe_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "disk")
    with pytest.raises(ImageFault, match="not a regular file"):
        disk_check.open_disk(tmp_path / "disk")


def test_tool_that_wants_too_much_memory_gets_none(tmp_path: pathlib.Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(
        f"#!{sys.executable}\nimport resource as r, time\n"
        # it is bounded a moment after it has begun
        "while r.getrlimit(r.RLIMIT_AS)[0] == r.RLIM_INFINITY: time.sleep(0.01)\nprint(len(bytearray(3 << 30)))\n"
    )
    tool.chmod(0o755)
    with pytest.raises(ImageFault, match="MemoryError"):
        disk_check.run_qemu_img([tool, "info"], Deadline.after(SOON), ImageFault)


@examples(12)
@hypothesis.given(places=st.lists(st.tuples(st.integers(104, 196607), st.integers(0, 255)), min_size=1, max_size=40))
def test_no_table_ends_in_anything_but_an_answer(
    image_pool: ImagePool, tmp_path: pathlib.Path, places: list[tuple[int, int]]
) -> None:
    path = tmp_path / "disk"
    image_pool.qemu_img("create", "-q", "-f", "qcow2", path, "64M")
    content = bytearray(path.read_bytes())
    for at, value in places:
        content[at] = value
    path.write_bytes(content)
    with contextlib.suppress(ImageFault):
        checked(path)


def test_answer_about_a_disk_of_any_depth_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ImageFault, match="is no JSON"):
        disk_check._parse_facts("[" * 1_000_000, tmp_path)

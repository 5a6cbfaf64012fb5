# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image pool: what is found, and what is believed."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

ME = os.getuid()


@pytest.fixture
def pool(image_pool: ImagePool) -> pathlib.Path:
    return image_pool.path


def find(name: str, pool: pathlib.Path) -> images.Image:
    return images.find(name, pool, owner_uid=ME)


@pytest.mark.parametrize(
    ("name", "found", "file"),
    [
        ("tiny", "tiny@10", "tiny@10/disk.qcow2"),
        ("tiny@9", "tiny@9", "tiny@9/disk.qcow2"),
        ("plain", "plain.qcow2", "plain.qcow2"),
        ("plain.qcow2", "plain.qcow2", "plain.qcow2"),
        ("old", "old.img", "old.img"),
    ],
)
def test_finds_the_newest_revision_or_the_named_one(pool: pathlib.Path, name: str, found: str, file: str) -> None:
    image = find(name, pool)
    assert (image.name, image.path) == (found, pool / file)


def test_takes_the_boot_files_and_sizes_from_the_record(pool: pathlib.Path) -> None:
    image = find("tiny@2", pool)
    assert image.boot == images.Boot("kernel", pool / "tiny@2/vmlinuz", pool / "tiny@2/initrd", "console=ttyS0")
    assert (image.distro, image.arch, image.format, image.virtual_bytes) == ("debian", "x86_64", "qcow2", 16 << 20)


def test_file_without_a_record_has_the_format_of_its_name_whatever_it_holds(pool: pathlib.Path) -> None:
    # a guest with a raw disk could write a qcow2 header that names any file of the host
    (pool / "old.img").chmod(0o644)
    (pool / "plain.qcow2").rename(pool / "old.img")
    assert find("old", pool).format == "raw"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tyni", "did you mean tiny?"),
        ("tiny@7", "tiny@10"),
        ("../etc/passwd", "not the name of an image"),
        ("/etc/passwd", "not the name of an image"),
        ("tiny/disk.qcow2", "not the name of an image"),
        ("zzz", "images: old, plain, tiny"),
        ("plian.qcow2", "did you mean plain?"),
    ],
)
def test_image_that_is_not_there_is_the_users_fault_with_the_nearest_name(
    pool: pathlib.Path, name: str, message: str
) -> None:
    with pytest.raises(errors.UserFault) as caught:
        find(name, pool)
    assert message in str(caught.value)


def link_out_of_the_pool(pool: ImagePool) -> None:
    (pool.path / "tiny@11").symlink_to(pool.path.parent)


def link_of_a_disk(pool: ImagePool) -> None:
    pool.add("tiny", 11)
    (pool.path / "tiny@11/disk.qcow2").rename(pool.path.parent / "disk")
    (pool.path / "tiny@11/disk.qcow2").symlink_to(pool.path.parent / "disk")


def link_of_a_record(pool: ImagePool) -> None:
    pool.add("tiny", 11)
    (pool.path / "tiny@11/record.json").rename(pool.path.parent / "record")
    (pool.path / "tiny@11/record.json").symlink_to(pool.path.parent / "record")


def link_of_a_kernel(pool: ImagePool) -> None:
    pool.add("tiny", 11)
    (pool.path / "tiny@11/vmlinuz").unlink()
    (pool.path / "tiny@11/vmlinuz").symlink_to("/etc/shadow")


def writable_pool(pool: ImagePool) -> None:
    pool.path.chmod(0o775)


def writable_revision(pool: ImagePool) -> None:
    (pool.path / "tiny@10").chmod(0o757)


def writable_disk(pool: ImagePool) -> None:
    (pool.path / "tiny@10/disk.qcow2").chmod(0o666)


def pipe_for_a_disk(pool: ImagePool) -> None:
    (pool.path / "tiny@10/disk.qcow2").unlink()
    os.mkfifo(pool.path / "tiny@10/disk.qcow2", 0o444)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (writable_pool, errors.SiteFault),
        *(
            (spoil, errors.ImageFault)
            for spoil in (
                link_out_of_the_pool, link_of_a_disk, link_of_a_record, link_of_a_kernel, writable_revision,
                writable_disk, pipe_for_a_disk,
            )
        ),
    ],
)  # fmt: skip
def test_image_that_others_can_write_or_redirect_is_refused(
    image_pool: ImagePool, spoil: t.Callable[[ImagePool], None], fault: type[errors.VTorqueError]
) -> None:
    spoil(image_pool)
    with pytest.raises(fault):
        image_pool.find("tiny")


def test_plain_image_that_is_a_link_is_refused(pool: pathlib.Path) -> None:
    (pool / "shadow.img").symlink_to("/etc/shadow")
    with pytest.raises(errors.ImageFault, match="is a link"):
        find("shadow", pool)


def test_image_of_another_owner_is_refused(pool: pathlib.Path) -> None:
    with pytest.raises(errors.SiteFault, match="belongs to uid"):
        images.find("tiny", pool, owner_uid=ME + 1)


def test_pool_that_is_not_there_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.SiteFault, match="vm_img_dir"):
        find("tiny", tmp_path / "none")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": True},
        {"name": "other"},
        {"revision": 12},
        {"disk": "../tiny@2/disk.qcow2"},
        {"disk_bytes": 1},
        {"format": "vmdk"},
        {"virtual_bytes": "16M"},
        {"boot": {"mode": "floppy"}},
        {"boot": {"mode": "bios", "kernel": "vmlinuz"}},
        {"boot": {"mode": "kernel", "kernel": "/boot/vmlinuz"}},
        {"boot": {"mode": "kernel", "kernel": "vmlinuz", "cmdline": "a\nb"}},
        {"boot": "kernel"},
        {"disk": "missing.qcow2"},
    ],
)
def test_record_that_does_not_hold_is_the_images_fault(image_pool: ImagePool, changes: dict[str, t.Any]) -> None:
    image_pool.add("tiny", 11, **changes)
    with pytest.raises(errors.ImageFault):
        image_pool.find("tiny")


def test_record_that_is_no_json_is_the_images_fault(image_pool: ImagePool) -> None:
    directory = image_pool.add("tiny", 11)
    (directory / "record.json").write_text("{")
    with pytest.raises(errors.ImageFault):
        image_pool.find("tiny")


def test_list_shows_good_and_bad_images(image_pool: ImagePool) -> None:
    writable_disk(image_pool)
    found = dict(images.list_images(image_pool.path, owner_uid=ME))
    assert sorted(found) == ["old.img", "plain.qcow2", "tiny@10", "tiny@2", "tiny@9"]
    assert isinstance(found["tiny@10"], errors.ImageFault)
    assert isinstance(found["tiny@2"], images.Image)

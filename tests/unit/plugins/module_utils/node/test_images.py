# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image pool: what is found, what is believed, and what an overlay is."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import Deadline

ME = os.getuid()
SOON = 60.0


def qemu_img(*words: object) -> None:
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True, timeout=60)


@pytest.fixture
def pool(tmp_path: pathlib.Path) -> pathlib.Path:
    directory = tmp_path / "pool"
    directory.mkdir(mode=0o755)
    for revision in (2, 10, 9):
        add(directory, "tiny", revision)
    qemu_img("create", "-q", "-f", "qcow2", directory / "plain.qcow2", "8M")
    (directory / "old.img").write_bytes(b"\0" * 4096)
    (directory / "notes.txt").write_text("no image")
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    return directory


def add(pool: pathlib.Path, entry: str, number: int, **changes: t.Any) -> pathlib.Path:
    directory = pool / f"{entry}@{number}"
    directory.mkdir(mode=0o755)
    disk = directory / "disk.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", disk, "16M")
    (directory / "vmlinuz").write_bytes(b"kernel")
    (directory / "initrd").write_bytes(b"initrd")
    record = {
        "version": 1, "name": entry, "revision": number, "distro": "debian", "arch": "x86_64", "format": "qcow2",
        "disk": "disk.qcow2", "disk_sha256": hashlib.sha256(disk.read_bytes()).hexdigest(),
        "disk_bytes": disk.stat().st_size, "virtual_bytes": 16 << 20,
        "boot": {"mode": "kernel", "kernel": "vmlinuz", "initrd": "initrd", "cmdline": "console=ttyS0"},
        "description": "for tests", "created": "2026-01-01T00:00:00+00:00", **changes,
    }  # fmt: skip
    (directory / "record.json").write_text(json.dumps(record))
    return directory


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


def test_a_file_without_a_record_has_the_format_of_its_name_whatever_it_holds(pool: pathlib.Path) -> None:
    # a guest with a raw disk could write a qcow2 header that names any file of the host
    (pool / "old.img").chmod(0o644)
    (pool / "plain.qcow2").rename(pool / "old.img")
    assert find("old", pool).format == "raw"


@pytest.mark.parametrize(
    ("name", "words"),
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
def test_an_image_that_is_not_there_is_the_users_fault_with_the_nearest_name(
    pool: pathlib.Path, name: str, words: str
) -> None:
    with pytest.raises(UserFault) as caught:
        find(name, pool)
    assert words in str(caught.value)


def link_out_of_the_pool(pool: pathlib.Path) -> None:
    (pool / "tiny@11").symlink_to(pool.parent)


def link_of_a_disk(pool: pathlib.Path) -> None:
    add(pool, "tiny", 11)
    (pool / "tiny@11/disk.qcow2").rename(pool.parent / "disk")
    (pool / "tiny@11/disk.qcow2").symlink_to(pool.parent / "disk")


def link_of_a_record(pool: pathlib.Path) -> None:
    add(pool, "tiny", 11)
    (pool / "tiny@11/record.json").rename(pool.parent / "record")
    (pool / "tiny@11/record.json").symlink_to(pool.parent / "record")


def link_of_a_kernel(pool: pathlib.Path) -> None:
    add(pool, "tiny", 11)
    (pool / "tiny@11/vmlinuz").unlink()
    (pool / "tiny@11/vmlinuz").symlink_to("/etc/shadow")


def writable_pool(pool: pathlib.Path) -> None:
    pool.chmod(0o775)


def writable_revision(pool: pathlib.Path) -> None:
    (pool / "tiny@10").chmod(0o757)


def writable_disk(pool: pathlib.Path) -> None:
    (pool / "tiny@10/disk.qcow2").chmod(0o666)


def pipe_for_a_disk(pool: pathlib.Path) -> None:
    (pool / "tiny@10/disk.qcow2").unlink()
    os.mkfifo(pool / "tiny@10/disk.qcow2", 0o444)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (writable_pool, SiteFault),
        *(
            (spoil, ImageFault)
            for spoil in (
                link_out_of_the_pool, link_of_a_disk, link_of_a_record, link_of_a_kernel, writable_revision,
                writable_disk, pipe_for_a_disk,
            )
        ),
    ],
)  # fmt: skip
def test_what_others_could_have_written_or_redirected_is_the_fault_of_the_pool_or_of_the_image(
    pool: pathlib.Path, spoil: t.Callable[[pathlib.Path], None], fault: type[VTorqueError]
) -> None:
    spoil(pool)
    with pytest.raises(fault):
        find("tiny", pool)


def test_a_plain_image_that_is_a_link_is_refused(pool: pathlib.Path) -> None:
    (pool / "shadow.img").symlink_to("/etc/shadow")
    with pytest.raises(ImageFault, match="is a link"):
        find("shadow", pool)


def test_an_image_of_another_owner_is_refused(pool: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="belongs to uid"):
        images.find("tiny", pool, owner_uid=ME + 1)


def test_a_pool_that_is_not_there_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="vm_img_dir"):
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
def test_a_record_that_does_not_hold_is_the_images_fault(pool: pathlib.Path, changes: dict[str, t.Any]) -> None:
    add(pool, "tiny", 11, **changes)
    with pytest.raises(ImageFault):
        find("tiny", pool)


def test_a_record_that_is_no_json_is_the_images_fault(pool: pathlib.Path) -> None:
    directory = add(pool, "tiny", 11)
    (directory / "record.json").write_text("{")
    with pytest.raises(ImageFault):
        find("tiny", pool)


def test_the_list_shows_good_and_bad_images(pool: pathlib.Path) -> None:
    writable_disk(pool)
    found = dict(images.list_images(pool, owner_uid=ME))
    assert sorted(found) == ["old.img", "plain.qcow2", "tiny@10", "tiny@2", "tiny@9"]
    assert isinstance(found["tiny@10"], ImageFault)
    assert isinstance(found["tiny@2"], images.Image)


@pytest.mark.parametrize("name", ["tiny", "plain", "old"])
def test_an_overlay_names_its_base_and_leaves_it_alone(pool: pathlib.Path, name: str, tmp_path: pathlib.Path) -> None:
    image = find(name, pool)
    before = image.path.read_bytes()
    size = images.make_overlay(image, tmp_path / "overlay.qcow2", Deadline.after(SOON))
    told = subprocess.run(
        ["qemu-img", "info", "--output=json", tmp_path / "overlay.qcow2"], check=True, capture_output=True, timeout=60
    )
    facts = json.loads(told.stdout)
    assert facts["backing-filename"] == str(image.path)
    assert facts["backing-filename-format"] == image.format
    assert facts["virtual-size"] == size
    assert image.path.read_bytes() == before
    assert (tmp_path / "overlay.qcow2").stat().st_mode & 0o777 == 0o600


def test_an_overlay_is_never_readable_by_others(pool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Not for a moment: who has it open once reads all that the guest ever writes."""
    modes = tmp_path / "modes"
    program = tmp_path / "qemu-img"
    program.write_text(
        f'#!/bin/sh\nqemu-img "$@" || exit\nfor last; do :; done\n[ "$1" != create ] || stat -c %a "$last" >{modes}\n'
    )
    program.chmod(0o755)
    former = os.umask(0o022)
    try:
        images.make_overlay(find("old", pool), tmp_path / "disk.qcow2", Deadline.after(SOON), qemu_img=program)
    finally:
        os.umask(former)
    assert modes.read_text() == "600\n"


@pytest.mark.parametrize("option", ["backing", "data"])
def test_an_image_that_leans_on_another_file_is_refused(
    pool: pathlib.Path, option: str, tmp_path: pathlib.Path
) -> None:
    path = pool / "leaning.qcow2"
    if option == "backing":
        qemu_img("create", "-q", "-f", "qcow2", "-b", pool / "old.img", "-F", "raw", path, "8M")
    else:
        qemu_img("create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path / 'data'}", path, "8M")
    path.chmod(0o444)
    with pytest.raises(ImageFault, match="file"):
        images.make_overlay(find("leaning", pool), tmp_path / "overlay.qcow2", Deadline.after(SOON))
    assert not (tmp_path / "overlay.qcow2").exists()


def test_a_disk_that_is_none_is_the_images_fault(pool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (pool / "broken.qcow2").write_text("not a disk")
    (pool / "broken.qcow2").chmod(0o444)
    with pytest.raises(ImageFault, match="qemu-img info"):
        images.make_overlay(find("broken", pool), tmp_path / "overlay.qcow2", Deadline.after(SOON))


def test_a_disk_of_another_size_than_its_record_says_is_the_images_fault(
    pool: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    add(pool, "tiny", 11, virtual_bytes=32 << 20)
    with pytest.raises(ImageFault, match="its record says"):
        images.make_overlay(find("tiny", pool), tmp_path / "overlay.qcow2", Deadline.after(SOON))


@pytest.mark.parametrize(
    ("taken", "fault"),
    [
        (images.Taken(), NodeFault),
        (images.Taken(held_bytes=4 << 20), NodeFault),
        (images.Taken(held_bytes=8 << 20), SiteFault),
        (images.Taken(held_bytes=8 << 20, promised_bytes=1 << 60), SiteFault),
    ],
)
def test_a_disk_that_guests_fill_is_no_fault_of_the_node(
    pool: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, taken: images.Taken, fault: type
) -> None:
    """Else a user who asks for enough guests could set a node offline that is well; 16 MiB are asked for."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1 << 30, 1 << 30, 8 << 20))
    with pytest.raises(fault, match="no room"):
        images.make_overlay(find("tiny", pool), tmp_path / "overlay.qcow2", Deadline.after(SOON), taken=taken)
    assert not (tmp_path / "overlay.qcow2").exists()


def test_promised_space_is_not_given_twice(pool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    taken = images.Taken(promised_bytes=1 << 60)
    with pytest.raises(SiteFault, match="promised to other guests"):
        images.make_overlay(find("tiny", pool), tmp_path / "overlay.qcow2", Deadline.after(SOON), taken=taken)
    assert not (tmp_path / "overlay.qcow2").exists()


def test_an_image_that_no_disk_could_hold_is_the_sites_fault(pool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    qemu_img("create", "-q", "-f", "qcow2", pool / "huge.qcow2", shutil.disk_usage(tmp_path).total * 4)
    (pool / "huge.qcow2").chmod(0o444)
    with pytest.raises(SiteFault, match="in all"):
        images.make_overlay(find("huge", pool), tmp_path / "overlay.qcow2", Deadline.after(SOON))


def test_a_missing_tool_is_the_nodes_fault(pool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(NodeFault, match="is missing"):
        images.inspect(find("tiny", pool), Deadline.after(SOON), qemu_img=tmp_path / "none")


def test_a_tool_that_hangs_ends_at_the_deadline(pool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tool = tmp_path / "slow"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    with pytest.raises(VTorqueError, match="no answer"):
        images.inspect(find("tiny", pool), Deadline.after(0.3), qemu_img=tool)

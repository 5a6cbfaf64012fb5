# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A revision appears whole or not at all, and what it says of itself."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import checksum, images, revision
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import publish as publishing

from .fuzz import examples

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

ME = os.getuid()
Made = t.Callable[..., images.Image]


@pytest.fixture
def disk(image_pool: ImagePool, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "new.qcow2"
    image_pool.qemu_img("create", "-q", "-f", "qcow2", path, "32M")
    return path


@pytest.fixture
def publish(image_pool: ImagePool) -> Made:
    def call(name: str = "debian12", disk: pathlib.Path | None = None, **more: t.Any) -> images.Image:
        output = {"distro": "debian", **more} if disk else more
        wanted = revision.RevisionSpec(name, disk, **{key: output[key] for key in output if key != "max_bytes"})
        return publishing.publish(wanted, image_pool.path, owner_uid=ME, max_bytes=more.get("max_bytes", 0))

    return call


def everything(pool: ImagePool) -> dict[str, tuple[int, float]]:
    """Of each file its inode and time: nothing that was there may change."""
    return {
        str(path.relative_to(pool.path)): (path.lstat().st_ino, path.lstat().st_mtime)
        for path in pool.path.rglob("*") if not path.is_dir()
    }  # fmt: skip


def test_a_revision_is_whole_readable_by_all_and_written_by_nobody(
    image_pool: ImagePool, publish: Made, disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "vmlinuz-6.1").write_bytes(b"kernel")
    former = os.umask(0o077)
    try:
        image = publish(
            disk=disk, kernel=tmp_path / "vmlinuz-6.1", cmdline="quiet", description="für alle", made="by hand"
        )
    finally:
        os.umask(former)
    assert image.name == "debian12@1"
    directory = image_pool.path / "debian12@1"
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == dict.fromkeys(
        ("disk.qcow2", "record.json", "vmlinuz"), 0o444
    )
    assert directory.stat().st_mode & 0o777 == 0o755
    record = json.loads((directory / "record.json").read_text(encoding="utf-8"))
    assert record["disk_sha256"] == hashlib.sha256(disk.read_bytes()).hexdigest()
    assert record["boot"] == {
        "mode": "kernel", "kernel": "vmlinuz", "kernel_sha256": hashlib.sha256(b"kernel").hexdigest(),
        "cmdline": "quiet",
    }  # fmt: skip
    assert (record["virtual_bytes"], record["description"], record["made"]) == (32 << 20, "für alle", "by hand")
    assert record["source"] == str(disk)
    assert record["who"].partition("@")[0]
    assert checksum.verify(image)
    assert image == image_pool.find("debian12")


def test_raw_disk_keeps_its_holes(publish: Made, tmp_path: pathlib.Path) -> None:
    with (tmp_path / "raw").open("wb") as stream:
        stream.write(b"begin")
        stream.seek(64 << 20)
        stream.write(b"end".ljust(512))
    image = publish(disk=tmp_path / "raw", format="raw")
    assert (image.format, image.path.name) == ("raw", "disk.raw")
    assert image.path.stat().st_size == (64 << 20) + 512
    assert image.path.stat().st_blocks * 512 < 16 << 20
    assert hashlib.sha256(image.path.read_bytes()).hexdigest() == image.record["disk_sha256"]


def test_next_revision_keeps_what_is_not_said(publish: Made, disk: pathlib.Path) -> None:
    publish(disk=disk, description="first", distro="rocky", boot="uefi")
    second = publish(disk=disk, distro=None)
    assert (second.name, second.distro, second.boot.mode) == ("debian12@2", "rocky", "uefi")
    third = publish(description="third")
    assert (third.name, third.record["description"], third.record["source"]) == ("debian12@3", "third", "debian12@2")
    assert third.path.samefile(second.path)
    assert checksum.verify(third)


def test_record_says_whether_guests_have_verbs_once_it_is_known(publish: Made, disk: pathlib.Path) -> None:
    first = publish(disk=disk)
    assert first.record["rdma"] == ""
    second = publish(rdma="yes")
    assert (second.name, second.record["rdma"]) == ("debian12@2", "yes")
    assert publish(description="third").record["rdma"] == "yes"
    assert revision.same(revision.RevisionSpec("debian12", rdma="yes"), second)
    assert not revision.same(revision.RevisionSpec("debian12", rdma="no"), second)
    with pytest.raises(errors.UserFault, match="rdma 'maybe' is not of the form demanded"):
        publish(rdma="maybe")


def test_a_disk_that_can_be_warm_says_so_until_another_one_comes(publish: Made, disk: pathlib.Path) -> None:
    assert publish(disk=disk, warm=True).record["warm"] == "1"
    assert publish(description="second").record["warm"] == "1"
    assert not revision.same(revision.RevisionSpec("debian12", disk), publish(disk=disk, warm=True))
    assert "warm" not in publish(disk=disk).record


def test_new_disk_does_not_boot_the_kernel_of_the_old_one(
    publish: Made, disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "vmlinuz").write_bytes(b"kernel")
    publish(disk=disk, kernel=tmp_path / "vmlinuz")
    with pytest.raises(errors.UserFault, match="may not fit"):
        publish(disk=disk)
    assert publish(disk=disk, boot="bios").boot.mode == "bios"


def test_number_is_never_given_twice(image_pool: ImagePool, publish: Made, disk: pathlib.Path) -> None:
    (image_pool.path / ".retired.debian12@7").touch()
    (image_pool.path / ".retired.debian@9").touch()
    assert publish(disk=disk).name == "debian12@8"


def test_wanted_revision_equal_to_the_last_is_recognised(
    publish: Made, disk: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    before = publish(disk=disk, description="first")
    same = revision.RevisionSpec("debian12", disk, description="first")
    assert revision.same(same, before)
    assert revision.same(revision.RevisionSpec("debian12", description="first"), before)
    assert not revision.same(revision.RevisionSpec("debian12", disk, description="other"), before)
    assert not revision.same(revision.RevisionSpec("debian12", boot="uefi"), before)
    other = tmp_path / "other"
    other.write_bytes(disk.read_bytes()[:-1] + b"x")
    assert not revision.same(revision.RevisionSpec("debian12", other), before)


NAMES = [
    "", "/", "a/b", "../x", "..", ".", ".hidden", "a..b", "a.", "-a", "a b", "a\n", "a\0b", "\n", "debian12@3", "a@",
    "débian", "d\u0435bian", "a\u200b", "\u202ea", "\uff41", "x.qcow2", "x.img", "x.IMG", "Tiny", "a" * 65, "a\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_name_that_misleads_is_refused_and_shown_harmlessly(
    image_pool: ImagePool, publish: Made, disk: pathlib.Path, name: str
) -> None:
    before = everything(image_pool)
    with pytest.raises(errors.UserFault) as caught:
        publish(name, disk)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert everything(image_pool) == before


@examples(300)
@hypothesis.given(name=st.one_of(st.text(max_size=80), st.from_regex(r"[A-Za-z0-9@._/-]{1,70}", fullmatch=True)))
def test_name_that_is_taken_can_be_found_again(image_pool: ImagePool, name: str) -> None:
    with contextlib.suppress(errors.UserFault):
        revision.check_name(name, image_pool.path)
        found_again(image_pool, name)


def found_again(image_pool: ImagePool, name: str) -> None:
    assert pathlib.PurePath(name).name == name
    directory = image_pool.path / "tiny@2"
    record = json.loads((directory / "record.json").read_text(encoding="utf-8"))
    (directory / "record.json").chmod(0o644)
    (directory / "record.json").write_text(json.dumps({**record, "name": name}), encoding="utf-8")
    directory.rename(image_pool.path / f"{name}@2")
    try:
        assert image_pool.find(f"{name}@2").name == f"{name}@2"
    finally:
        (image_pool.path / f"{name}@2").rename(directory)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"distro": ""}, "of which distribution"),
        ({"distro": "Debian 12"}, "not of the form"),
        ({"arch": "x86/64"}, "not of the form"),
        ({"description": "a\nb"}, "no text"),
        ({"description": "a\u202eb"}, "no text"),
        ({"description": "\ud800"}, "no text"),
        ({"description": "a" * 1001}, "too long"),
        ({"cmdline": "quiet"}, "belong to a kernel"),
        ({"kernel": pathlib.Path("/etc/hostname"), "boot": "uefi"}, "not by both"),
        ({"kernel": pathlib.Path("/nowhere")}, "No such file"),
        ({"kernel": pathlib.Path("/dev/null")}, "not a regular file"),
        ({"kernel": pathlib.Path("/etc/hostname"), "cmdline": "a" * 2001}, "more than 2000"),
        ({"max_bytes": 1 << 20}, "the site allows"),
        ({"format": "raw"}, "is qcow2, not raw"),
    ],
)
def test_publish_of_no_image_changes_nothing(
    image_pool: ImagePool, publish: Made, disk: pathlib.Path, more: dict[str, t.Any], message: str
) -> None:
    before = everything(image_pool)
    with pytest.raises(errors.VTorqueError, match=message):
        publish(disk=disk, **more)
    assert everything(image_pool) == before
    assert sorted(path.name for path in image_pool.path.iterdir() if path.name.startswith(".")) == []


def test_disk_that_is_none_changes_nothing(image_pool: ImagePool, publish: Made, tmp_path: pathlib.Path) -> None:
    image_pool.qemu_img("create", "-q", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", tmp_path / "hostile", "8M")
    (tmp_path / "garbage").write_bytes(b"garbage".ljust(4096))
    with (tmp_path / "bomb").open("wb") as stream:
        stream.truncate(1 << 43)
    before = everything(image_pool)
    for name, arguments in (
        ("hostile", "backing file"),
        ("garbage", "garbage"),
        ("bomb", "garbage"),
        ("none", "No such"),
    ):
        with pytest.raises(errors.VTorqueError, match=arguments):
            publish(disk=tmp_path / name)
    with pytest.raises(errors.UserFault, match="in all"):
        publish(disk=tmp_path / "bomb", format="raw")
    with pytest.raises(errors.UserFault, match="not in the pool yet"):
        publish()
    assert everything(image_pool) == before


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "free some space"), (errno.EROFS, "may write the pool"), (errno.EIO, "was not added")],
)
def test_disk_that_fails_leaves_the_pool_as_it_was(
    image_pool: ImagePool, publish: Made, disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    def fail(*_words: object) -> None:
        raise OSError(number, os.strerror(number))

    before = everything(image_pool)
    monkeypatch.setattr(checksum, "_write", fail)
    monkeypatch.setattr(checksum, "_cloned", lambda *_files: False)
    with pytest.raises(errors.SiteFault, match=message) as caught:
        publish(disk=disk)
    assert os.strerror(number) in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert everything(image_pool) == before


def test_disk_that_is_written_meanwhile_is_refused(
    image_pool: ImagePool, publish: Made, disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checksum._copied

    def write_too(source: t.BinaryIO, *more: t.Any) -> str:
        found = real(source, *more)
        os.utime(disk, ns=(0, 0))
        return found

    monkeypatch.setattr(checksum, "_cloned", lambda *_files: False)
    monkeypatch.setattr(checksum, "_copied", write_too)
    before = everything(image_pool)
    with pytest.raises(errors.UserFault, match="changed while it was copied"):
        publish(disk=disk)
    assert everything(image_pool) == before


def test_publish_without_ownership_of_the_pool_is_refused(image_pool: ImagePool, disk: pathlib.Path) -> None:
    with pytest.raises(errors.VTorqueError, match="root"):
        publishing.publish(revision.RevisionSpec("a", disk, distro="debian"), image_pool.path, owner_uid=ME + 1)


def test_two_at_once_get_a_revision_each(image_pool: ImagePool, publish: Made, disk: pathlib.Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as several:
        made = [several.submit(publish, disk=disk, description=f"number {number}") for number in range(8)]
        found = [one.result() for one in made]
    assert sorted(image.name for image in found) == [f"debian12@{number}" for number in range(1, 9)]
    assert [image.record["description"] for image in found] == [f"number {number}" for number in range(8)]
    assert all(checksum.verify(image) for image in found)


KILLED = """
import os, pathlib, signal, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import publish as publishing, revision
publishing.{room}.{function} = lambda *words, **more: os.kill(os.getpid(), signal.SIGKILL)
wanted = revision.RevisionSpec("debian12", pathlib.Path(sys.argv[1]), distro="debian")
publishing.publish(wanted, pathlib.Path(sys.argv[2]), owner_uid=os.getuid())
"""


@pytest.mark.parametrize(
    ("room", "function"), [("disk_check", "prove"), ("json", "dump"), ("disk_check", "inspect_header")]
)
def test_who_is_killed_leaves_nothing_that_can_be_seen_and_the_next_one_cleans_up(
    image_pool: ImagePool, publish: Made, disk: pathlib.Path, room: str, function: str
) -> None:
    program = KILLED.format(room=room, function=function)
    names = images.list_names(image_pool.path)
    done = subprocess.run(
        [sys.executable, "-c", program, disk, image_pool.path], timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert images.list_names(image_pool.path) == names
    assert [path.name for path in image_pool.path.iterdir() if path.name.startswith(".work.")]
    assert publish(disk=disk).name == "debian12@1"
    assert not [path.name for path in image_pool.path.iterdir() if path.name.startswith(".")]


def test_place_where_somebody_works_is_left_alone(image_pool: ImagePool, publish: Made, disk: pathlib.Path) -> None:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.staging_area import workplace

    with workplace(image_pool.path, "a test", owner_uid=ME) as place:
        place.mkdir()
        publish(disk=disk)
        assert place.is_dir()
    assert not place.exists()


def test_damage_is_found(publish: Made, disk: pathlib.Path) -> None:
    image = publish(disk=disk)
    content = bytearray(image.path.read_bytes())
    content[-1] ^= 1
    image.path.chmod(0o644)
    image.path.write_bytes(content)
    with pytest.raises(errors.ImageFault, match="is damaged"):
        checksum.verify(image)

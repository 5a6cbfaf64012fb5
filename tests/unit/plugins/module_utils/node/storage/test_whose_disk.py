# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose an error of the system's is: the node's own disk, its copy of an image, the pool, or somebody else's file."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.verdict.decide import names_node
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import (
    copy_queue,
    copy_worker,
    pool_digests,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import disk_check, disk_format, images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from ..conftest import Node
from ..pool import image_pool

IMAGE = "disk@1"
AWAY = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EROFS)
"""What a soft mount says whose server does not answer, or has lost its disks."""
MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
FULL = (errno.ENOSPC, errno.EDQUOT)


@pytest.fixture(autouse=True)
def revision(node: Node) -> pathlib.Path:
    """An image of the pool, with a kernel."""
    return image_pool.add(node.settings.pool, IMAGE)


def error_of(number: int, *files: object) -> OSError:
    """What the system says, of these files."""
    return OSError(number, os.strerror(number), *([files[0], None, *files[1:]] if files else []))


class Broken:
    """Calls of the system that fail for one file, on a disk or a server that is not there."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.patch, self.number = patch, number

    def by_name(self, path: pathlib.Path, *names: str) -> None:
        """These calls, given the file's name; the error tells it."""
        for room, name in [(os, name) for name in names] + ([(io, "open")] if "open" in names else []):
            self._of(room, name, lambda given: isinstance(given, str | os.PathLike) and os.fspath(given) == str(path))

    def by_descriptor(self, path: pathlib.Path) -> None:
        """All reads of the file, which is open; the error tells no name."""
        for name, at in (("pread", 0), ("sendfile", 1)):
            self._of(os, name, lambda fd: os.readlink(f"/proc/self/fd/{fd}") == str(path), at)

    def _of(self, room: t.Any, name: str, meant: t.Callable[[t.Any], bool], at: int = 0) -> None:
        real = getattr(room, name)

        def call(*arguments: t.Any, **more: t.Any) -> t.Any:
            if len(arguments) > at and meant(arguments[at]):
                named = isinstance(arguments[at], str | os.PathLike)
                raise error_of(self.number, *([os.fspath(arguments[at])] if named else []))
            return real(*arguments, **more)

        self.patch.setattr(room, name, call)

    def reads_of(self, path: pathlib.Path) -> None:
        """All reads of a disk's header."""
        real = disk_format._at

        def read(stream: t.BinaryIO, *where: int) -> bytes:
            if os.readlink(f"/proc/self/fd/{stream.fileno()}") == str(path):
                raise error_of(self.number)
            return real(stream, *where)

        self.patch.setattr(disk_format, "_at", read)


def break_(broken: Broken, revision: pathlib.Path, place: str) -> None:
    """Let one way to the pool fail."""
    disk = revision / "disk.img"
    match place:
        case "the pool":
            broken.by_name(revision.parent, "stat", "lstat")
        case "its list":
            broken.by_name(revision.parent, "listdir", "scandir")
        case "the revision":
            broken.by_name(revision, "stat", "lstat")
        case "the disk's facts":
            broken.by_name(disk, "stat", "lstat")
        case "the record":
            broken.by_name(revision / "record.json", "open")
        case "the disk":
            broken.by_name(disk, "open")
        case "the disk's header":
            broken.reads_of(disk)
        case "the kernel":
            broken.by_descriptor(revision / "vmlinuz")


PLACES = ("the pool", "its list", "the revision", "the disk's facts", "the record", "the disk", "the disk's header",
          "the kernel")  # fmt: skip


@pytest.mark.parametrize("number", AWAY, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", PLACES)
def test_a_pool_that_fails_is_the_sites_fault_wherever_it_shows(
    node: Node, monkeypatch: pytest.MonkeyPatch, revision: pathlib.Path, place: str, number: int
) -> None:
    """It ends no job as an image that boots nowhere, takes no node offline, and is no image that the user misspelt."""
    with monkeypatch.context() as patch:
        break_(Broken(patch, number), revision, place)
        with pytest.raises(errors.VTorqueError, match=os.strerror(number)) as caught:
            node.present(node.part(image="disk" if place == "its list" else IMAGE))
    assert caught.type is errors.SiteFault
    assert not names_node(caught.value)


@pytest.mark.parametrize("number", AWAY, ids=errno.errorcode.get)
def test_pool_that_fails_where_an_image_was_refused_before_is_the_sites_fault(
    node: Node, monkeypatch: pytest.MonkeyPatch, revision: pathlib.Path, number: int
) -> None:
    image = images.find(IMAGE, node.settings.pool)
    copy_queue.fail(node.settings, copy_queue.Want("sharedfs", IMAGE), errors.ImageFault("it", "is wrong"), image)
    Broken(monkeypatch, number).by_name(revision / "disk.img", "stat", "lstat")
    for ask in (
        lambda: copy_queue.refusal(node.settings, image),
        lambda: pool_digests.is_checked(image, node.settings),
    ):
        with pytest.raises(errors.VTorqueError) as caught, present_absent.blame_disk(node.settings):
            ask()
        assert caught.type is errors.SiteFault


@pytest.mark.parametrize("number", MISSING, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["the disk's facts", "the record", "the disk"])
def test_image_missing_in_the_pool_is_the_images_fault(
    node: Node, monkeypatch: pytest.MonkeyPatch, revision: pathlib.Path, place: str, number: int
) -> None:
    with monkeypatch.context() as patch:
        break_(Broken(patch, number), revision, place)
        with pytest.raises(errors.VTorqueError) as caught:
            node.present(node.part(image=IMAGE))
    assert caught.type is errors.ImageFault


@pytest.mark.parametrize("number", AWAY, ids=errno.errorcode.get)
def test_a_pool_that_fails_under_qemu_img_is_no_damaged_image(node: Node, tmp_path: pathlib.Path, number: int) -> None:
    tool = tmp_path / "qemu-img"
    tool.write_text(f"#!/bin/sh\necho \"qemu-img: Could not open 'disk.img': {os.strerror(number)}\" >&2\nexit 1\n")
    tool.chmod(0o755)
    image = images.find(IMAGE, node.settings.pool)
    with pytest.raises(errors.VTorqueError, match=os.strerror(number)) as caught:
        disk_check.blame(image, Deadline.after(60), qemu_img=tool)
    # nobody writes to a base, so a program that says "read-only" of it is not heard as the pool
    assert caught.type is (errors.ImageFault if number == errno.EROFS else errors.SiteFault)


# -- copies on the node


@pytest.mark.parametrize("number", AWAY, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["the disk", "the disk's header", "the kernel"])
@pytest.mark.parametrize("fs_type", ["local", "ramdisk"])
def test_a_copy_that_cannot_be_read_is_the_fault_of_who_keeps_it(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, fs_type: str, place: str, number: int
) -> None:
    """The node's disk; of a ramdisk the disk is well, and its test would take the note back at once."""
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import ramdisk

    node.settings = dataclasses.replace(node.settings, cache_bytes=64 << 20, ramdisk_dir=tmp_path / "ramdisk")
    monkeypatch.setattr(ramdisk, "check", lambda _settings: 64 << 20)
    monkeypatch.setattr(
        copy_queue, "ensure_worker", lambda settings: copy_worker.work_off(settings, lambda *_words: None)
    )
    stored = node.settings.images_dir / "copies" if fs_type == "local" else ramdisk.place_of(node.settings)
    node.present(node.part(image=IMAGE, fs_type=fs_type))
    with monkeypatch.context() as patch:
        break_(Broken(patch, number), stored / IMAGE, place)
        with pytest.raises(errors.VTorqueError, match=os.strerror(number)) as caught:
            node.present(node.part(image=IMAGE, fs_type=fs_type, start=2))
    assert caught.type is (errors.NodeFault if fs_type == "local" else errors.SiteFault)
    assert names_node(caught.value) == (fs_type == "local")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOENT], ids=errno.errorcode.get)
def test_failure_without_a_proof_blames_no_disk(node: Node, number: int) -> None:
    copy = dataclasses.replace(images.find(IMAGE, node.settings.pool), kept_in="disk")
    assert images.unreadable(copy, copy.path, error_of(number)).__class__ is errors.VTorqueError


# -- the node's own disk


def judged(node: Node, error: Exception) -> errors.VTorqueError:
    """What comes of an error while a node works."""
    with pytest.raises(errors.VTorqueError) as caught, present_absent.blame_disk(node.settings):
        raise error
    return caught.value


@pytest.mark.parametrize("number", [*AWAY, *FULL], ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["state/guests/7.head.1/vcn1-1/seed.iso", "run/locks/7.head.1", "state"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_failure_below_the_nodes_directories_is_its_disk(
    node: Node, tmp_path: pathlib.Path, place: str, wrapped: bool, number: int
) -> None:
    error: Exception = error_of(number, str(tmp_path / place))
    if wrapped:
        outer = errors.VTorqueError("it was not written")
        outer.__cause__, error = error, outer
    found = judged(node, error)
    assert isinstance(found, errors.NodeFault)
    assert found.cause == "disk"


def test_second_name_of_an_error_counts_too(node: Node, tmp_path: pathlib.Path) -> None:
    assert names_node(judged(node, error_of(errno.ENOSPC, "/elsewhere", str(tmp_path / "state/slots/1"))))
    assert names_node(judged(node, error_of(errno.ENOSPC, os.fsencode(tmp_path / "state/slots/1"))))


@pytest.mark.parametrize("number", [*FULL, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_full_disk_under_an_open_file_names_none_and_is_the_nodes(node: Node, number: int) -> None:
    """`write` knows no name; of some calls the system tells a descriptor."""
    for error in (error_of(number), error_of(number, 7)):
        assert names_node(judged(node, error))


def test_real_full_disk_is_the_nodes(node: Node) -> None:
    with pytest.raises(errors.NodeFault) as caught, present_absent.blame_disk(node.settings):
        pathlib.Path("/dev/full").write_bytes(b"x")
    assert caught.value.cause == "disk"


@pytest.mark.parametrize("number", [*AWAY, *FULL], ids=errno.errorcode.get)
@pytest.mark.parametrize("path", ["/home/alice/disk.img", "/proc/sys/vm/nr", "statement", "/ramdisk/vtorque/.use"])
def test_a_file_that_is_not_the_nodes_own_proves_nothing_of_its_disk(node: Node, path: str, number: int) -> None:
    """A user's, of a server that nobody thought of here, or in memory: the note would be taken back at once."""
    assert judged(node, error_of(number, path)).__class__ is errors.VTorqueError


def test_connection_in_vain_is_no_disk(node: Node) -> None:
    assert judged(node, error_of(errno.ETIMEDOUT)).__class__ is errors.VTorqueError


@pytest.mark.parametrize("number", [*AWAY, *FULL, errno.EACCES], ids=errno.errorcode.get)
def test_failure_on_a_stale_pool_is_the_sites_fault(node: Node, number: int) -> None:
    assert judged(node, error_of(number, str(node.settings.pool / IMAGE / "disk.img"))).__class__ is errors.SiteFault


@pytest.mark.parametrize(
    "error",
    [
        errors.SiteFault("image pool /pool", "Input/output error"),
        errors.UserFault("disk /home/a/d.img", "cannot be opened to read and write"),
        errors.ImageFault("image disk@1", "is cut off"),
        errors.ImpostorFault("another host key"),
        errors.NodeFault("qemu-img info", "Input/output error", cause="programs"),
    ],
    ids=lambda error: error.fault,
)
def test_fault_with_an_owner_keeps_it(node: Node, tmp_path: pathlib.Path, error: errors.VTorqueError) -> None:
    error.__cause__ = error_of(errno.EIO, str(tmp_path / "state/guests"))
    assert judged(node, error) is error

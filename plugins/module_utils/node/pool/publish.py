# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Putting an image into the pool, as a revision that appears whole, by one rename, and never changes."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import re
import shutil
import typing as t

from ...errors import ImageFault, UserFault, VTorqueError
from ...system.clock import Deadline
from . import disk_check, images
from .checksum import Advance, copy, ignore_progress
from .disk_format import DiskHeader
from .images import Image
from .revision import RevisionSpec, check_name, newest, open_source, record_of
from .staging_area import RETIRED, explain_os_errors, sync_path, workplace

CHECK_S = 1800.0
"""For qemu-img's walk through a disk: 20 GiB of it take seconds."""
LAST_REVISION = 9_999_999
"""As `guestspec.IMAGE_NAME` has it."""
Trial = t.Callable[[Image], None]
BOOT_PARTS = {"kernel": "vmlinuz", "initrd": "initrd"}


def publish(
    wanted: RevisionSpec,
    pool: pathlib.Path,
    *,
    advance: Advance = ignore_progress,
    max_bytes: int = 0,
    owner_uid: int = 0,
    qemu_img: pathlib.Path = disk_check.QEMU_IMG,
    trial: Trial | None = None,
) -> Image:
    """Put the next revision of an image into the pool.

    Args:
        wanted: what it is to be.
        pool: the image pool.
        advance: told of each piece that was read.
        max_bytes: greatest size that a guest may see; 0: any.
        owner_uid: who owns the pool and alone may write it.
        qemu_img: the program.
        trial: called with a new disk before it appears in the pool; an error that it raises keeps it out.

    Returns:
        The revision, as every node will find it.

    Raises:
        UserFault: what is wanted cannot be; or the disk cannot be read, or was changed meanwhile.
        ImageFault: the disk is none that an image may have (disk_check.py).
        SiteFault: the pool is not root's, is full, read-only or does not answer.
    """
    images.believe_pool(pool, owner_uid=owner_uid)
    check_name(wanted.name, pool)
    before = newest(wanted.name, pool, owner_uid=owner_uid)
    record = record_of(wanted, before)
    what = f"image {wanted.name} was not added"
    with workplace(pool, what, owner_uid=owner_uid) as stage:
        stage.mkdir(mode=0o700)
        if wanted.disk is None:
            _link_disk(t.cast("Image", before), stage, record)
        else:
            _bring_disk(wanted, stage, record, pool, advance, max_bytes, qemu_img)
        _bring_boot(wanted, stage, record, advance)
        images.check_form(what, record)
        if trial and wanted.disk:
            # for qemu, which is not root; nobody else knows its name
            stage.chmod(0o711)
            trial(_staged(stage, record))
        with explain_os_errors(what, pool):
            name = _appear(stage, record, pool)
    return images.find(name, pool, owner_uid=owner_uid)


def _staged(stage: pathlib.Path, record: t.Mapping[str, t.Any]) -> Image:
    """The image as it will be, where it is being made."""
    boot = record["boot"]
    parts = {key: stage / boot[key] for key in BOOT_PARTS if key in boot}
    return Image(
        record["name"],
        stage / record["disk"],
        record["format"],
        images.Boot(boot["mode"], parts.get("kernel"), parts.get("initrd"), boot.get("cmdline", "")),
        record["distro"],
        record["arch"],
        record["virtual_bytes"],
        record,
    )


def foreseen(wanted: RevisionSpec, before: Image | None, *, max_bytes: int = 0) -> dict[str, t.Any]:
    """What `publish` would say in the record, as far as headers tell; nothing is changed.

    Args:
        wanted: the image.
        before: its newest revision.
        max_bytes: greatest size that a guest may see; 0: any.

    Raises:
        UserFault: as `publish`.
        ImageFault: the header of the disk is none that an image may have.
    """
    record = record_of(wanted, before)
    if wanted.disk:
        with open_source(wanted.disk) as stream:
            header = _inspect_source(stream, wanted, max_bytes)
        record.update({"format": header.format, "virtual_bytes": header.virtual_bytes})
    return record


def _inspect_source(stream: t.BinaryIO, wanted: RevisionSpec, max_bytes: int) -> DiskHeader:
    """At the source, so that nothing is copied in vain."""
    demanded = wanted.format or _bare(stream, wanted)
    return disk_check.inspect_header(stream, f"{wanted.disk}", format=demanded, max_bytes=max_bytes)


def _bring_disk(
    wanted: RevisionSpec,
    stage: pathlib.Path,
    record: dict[str, t.Any],
    pool: pathlib.Path,
    advance: Advance,
    max_bytes: int,
    qemu_img: pathlib.Path,
) -> None:
    path = t.cast("pathlib.Path", wanted.disk)
    with open_source(path) as stream:
        header = _inspect_source(stream, wanted, max_bytes)
        _room(os.fstat(stream.fileno()), path, pool)
        disk = stage / f"disk.{header.format}"
        found, size = copy(stream, disk, f"{path}", advance)
    # what counts is what was copied, which nobody else can write
    with open_source(disk) as stream:
        header = disk_check.inspect_header(stream, f"{path}", format=header.format, max_bytes=max_bytes)
    try:
        disk_check.prove(disk, header, Deadline.after(CHECK_S), qemu_img=qemu_img)
    except ImageFault as error:
        raise ImageFault(f"{path}", f"{error.what}: {error.why}", error.hint) from error
    record.update(
        {
            "format": header.format,
            "disk": disk.name,
            "disk_sha256": found,
            "disk_bytes": size,
            "virtual_bytes": header.virtual_bytes,
        }
    )


def _bare(stream: t.BinaryIO, wanted: RevisionSpec) -> str:
    """What a kernel boots may be a bare file system, without a table of partitions."""
    stream.seek(0)
    return "raw" if wanted.kernel and stream.read(4) != b"QFI\xfb" else ""


def _room(facts: os.stat_result, path: pathlib.Path, pool: pathlib.Path) -> None:
    disk = shutil.disk_usage(pool)
    if facts.st_size > disk.total:
        raise UserFault(f"{path}", f"has {facts.st_size >> 20} MiB, {pool} {disk.total >> 20} MiB in all")
    # a copy that shares blocks would fit nonetheless, and its next change elsewhere would not
    if facts.st_blocks * 512 > disk.free:
        raise OSError(errno.ENOSPC, f"{facts.st_blocks // 2} KiB are needed, {disk.free >> 10} KiB are free")


def _bring_boot(wanted: RevisionSpec, stage: pathlib.Path, record: dict[str, t.Any], advance: Advance) -> None:
    for key, name in BOOT_PARTS.items():
        path: pathlib.Path | None = getattr(wanted, key)
        if path:
            with open_source(path) as stream:
                found, size = copy(stream, stage / name, f"{path}", advance)
            if not size:
                raise UserFault(f"{path}", "is empty")
            record["boot"] = {**record["boot"], key: name, f"{key}_sha256": found}


def _link_disk(before: Image, stage: pathlib.Path, record: dict[str, t.Any]) -> None:
    """Give the same disk another record: a second name of the file, since neither ever changes."""
    for path in (before.path, *filter(None, (before.boot.kernel, before.boot.initrd))):
        try:
            os.link(path, stage / path.name)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            with path.open("rb", buffering=0) as stream:
                copy(stream, stage / path.name, f"{path}")
    keys = ("format", "disk", "disk_sha256", "disk_bytes", "virtual_bytes")
    record.update({key: before.record[key] for key in keys})


def _appear(stage: pathlib.Path, record: dict[str, t.Any], pool: pathlib.Path) -> str:
    """Give it the next number, and let it be seen."""
    stage.chmod(0o755)
    while True:
        name = f"{record['name']}@{_next_revision(record['name'], pool)}"
        _write_record(stage / "record.json", {**record, "revision": int(name.rpartition("@")[2])})
        sync_path(stage)
        try:
            stage.rename(pool / name)
        except OSError as error:
            # somebody else was faster: the next number is free
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue
        sync_path(pool)
        return name


def _next_revision(name: str, pool: pathlib.Path) -> int:
    """A number that no revision has, nor had: records of jobs and copies on nodes speak of it."""
    form = re.compile(rf"({re.escape(RETIRED)})?{re.escape(name)}@([0-9]+)")
    numbers = [int(found[2]) for path in pool.iterdir() if (found := form.fullmatch(path.name))]
    number = max(numbers, default=0) + 1
    if number > LAST_REVISION:
        raise VTorqueError(f"image {name}", "has used up its numbers", "another name")
    return number


def _write_record(path: pathlib.Path, record: t.Mapping[str, t.Any]) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as stream:
        json.dump(record, stream, indent=1, ensure_ascii=False)
        stream.write("\n")
        stream.flush()
        os.fchmod(fd, 0o444)
        os.fsync(fd)

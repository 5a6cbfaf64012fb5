# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a revision of an image is to be, and what its record says."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import platform
import pwd
import re
import socket
import typing as t

from ...errors import UserFault
from ...text import printable
from . import disk_check, images
from .checksum import Advance, digest, ignore_progress
from .images import Image

WARM = "1"
"""The version of the first order that images are made for (`guest/first_order.py`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class RevisionSpec:
    """An image as it is to be; None: as the revision before, where there is one.

    Attributes:
        name: without a revision.
        disk: the disk file; None: the disk of the revision before, and what boots it.
        format: `qcow2` or `raw`; "": what the file is.
        distro: family of the image.
        arch: None besides: this machine's.
        boot: `bios` or `uefi`; with a kernel neither.
        kernel: boots the disk, and is kept beside it.
        made: how it was made, in words.
        inputs: a digest of what it was made of, for who makes it again.
        rdma: whether its guests have verbs (`vrdma=true`): `yes` or `no`; "": not known.
        warm: whether its guests accept the first order of a warm start; it belongs to the disk.
        source: of what it was made, in words; "": of the disk file.
    """

    name: str
    disk: pathlib.Path | None = None
    format: str = ""
    distro: str | None = None
    arch: str | None = None
    description: str | None = None
    boot: str | None = None
    kernel: pathlib.Path | None = None
    initrd: pathlib.Path | None = None
    cmdline: str | None = None
    made: str = ""
    inputs: str = ""
    rdma: str | None = None
    warm: bool = False
    source: str = ""


def check_name(name: str, pool: pathlib.Path) -> None:
    """See that a name can be an image's that is to be added.

    Args:
        name: without a revision.
        pool: the image pool.

    Raises:
        UserFault: says what is wrong with it.
    """
    what = f"image name {name[:80]!a}"
    if "@" in name:
        raise UserFault(what, "the pool gives the revisions their numbers", f"{name.partition('@')[0]!a}")
    if not re.fullmatch(images.RECORD_FORMS["name"], name):
        raise UserFault(what, "1 to 64 letters, digits and . _ - of ASCII, the first a letter or digit")
    if ".." in name or name.endswith("."):
        raise UserFault(what, "has dots that mislead")
    if pathlib.PurePath(name).suffix.lower() in images.PLAIN_SUFFIXES:
        raise UserFault(what, "ends like the name of a file", f"{pathlib.PurePath(name).stem}")
    for known in sorted({entry.partition("@")[0] for entry in images.list_names(pool) if "@" in entry}):
        if known.lower() == name.lower() and known != name:
            raise UserFault(what, f"differs from {known} in small and capital letters alone", "another name")


def newest(name: str, pool: pathlib.Path, *, owner_uid: int = 0) -> Image | None:
    """The revision that a new one comes after.

    Args:
        name: without a revision.
        pool: the image pool.
        owner_uid: see `images.find`.

    Raises:
        VTorqueError: there is one, and it cannot be believed.
    """
    if not any(re.fullmatch(re.escape(name) + r"@[0-9]+", entry) for entry in images.list_names(pool)):
        return None
    return images.find(name, pool, owner_uid=owner_uid)


def same(wanted: RevisionSpec, before: Image, *, advance: Advance = ignore_progress) -> bool:
    """Return whether the newest revision is what is wanted already.

    Args:
        wanted: the image.
        before: its newest revision.
        advance: told of each piece that was read.

    Raises:
        UserFault: a file that is wanted cannot be read.
    """
    record = record_of(wanted, before)
    keys = ("distro", "arch", "description", "rdma", "warm", *(("inputs",) if wanted.inputs else ()))
    if any((record.get(key) or "") != (before.record.get(key) or "") for key in keys):
        return False
    there = before.record["boot"]
    if (record["boot"]["mode"], record["boot"].get("cmdline", "")) != (there["mode"], there.get("cmdline", "")):
        return False
    files = (
        (wanted.disk, before.record.get("disk_sha256"), before.path),
        (wanted.kernel, there.get("kernel_sha256"), before.boot.kernel),
        (wanted.initrd, there.get("initrd_sha256"), before.boot.initrd),
    )
    if wanted.disk and bool(wanted.initrd) != bool(before.boot.initrd):
        return False
    return all(path is None or _holds(path, known, present, advance) for path, known, present in files)


def _holds(path: pathlib.Path, known: str | None, present: pathlib.Path | None, advance: Advance) -> bool:
    """Return whether a file has this digest, or, where none is known, what that file has."""
    with open_source(path) as stream:
        if present is None or os.fstat(stream.fileno()).st_size != present.stat().st_size:
            return False
        found = digest(stream, advance)
    if not known:
        with present.open("rb", buffering=0) as other:
            known = digest(other)
    return found == known


def record_of(wanted: RevisionSpec, before: Image | None) -> dict[str, t.Any]:
    """What is known of a revision before any file is read.

    Args:
        wanted: the image.
        before: the revision that it comes after.

    Raises:
        UserFault: what is wanted does not fit together, or is said in a way that no record takes.
    """
    old = before.record if before else {}
    if wanted.disk is None and before is None:
        raise UserFault(f"image {wanted.name}", "is not in the pool yet", "give its disk")
    if (wanted.initrd or wanted.cmdline) and not wanted.kernel and wanted.disk:
        raise UserFault(f"image {wanted.name}", "an initrd and a command line belong to a kernel", "give the kernel")
    if wanted.kernel and wanted.boot not in (None, "kernel"):
        raise UserFault(f"image {wanted.name}", f"boots by {wanted.boot} or by a kernel, not by both")
    if wanted.kernel and not wanted.disk:
        raise UserFault(f"image {wanted.name}", "a kernel belongs to its disk", "give both")

    def chosen(value: str | None, key: str, default: str = "") -> str:
        return value if value is not None else str(old.get(key) or default)

    record = {
        "version": images.RECORD_VERSION,
        "name": wanted.name,
        "distro": chosen(wanted.distro, "distro"),
        "arch": chosen(wanted.arch, "arch", platform.machine()),
        "description": chosen(wanted.description, "description"),
        "rdma": chosen(wanted.rdma, "rdma"),
        "boot": _boot(wanted, before),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "who": _who(),
        "made": wanted.made or "added",
        "source": wanted.source
        or (printable(str(wanted.disk.absolute())) if wanted.disk else before.name if before else ""),
        # a disk that is kept was made of what it was made of
        "inputs": wanted.inputs or ("" if wanted.disk else str(old.get("inputs") or "")),
    }
    if warm := WARM if wanted.warm else "" if wanted.disk else str(old.get("warm") or ""):
        record["warm"] = warm
    _check_texts(record)
    return record


def _check_texts(record: t.Mapping[str, t.Any]) -> None:
    what = f"image {record['name']}"
    if not record["distro"]:
        raise UserFault(what, "of which distribution is it?", "debian, ubuntu, redhat, centos, rocky, alma or osv")
    for key, text in {**record, **record["boot"]}.items():
        if isinstance(text, str) and not text.isprintable():
            raise UserFault(what, f"{key} {text[:80]!a} holds what is no text")
    for key in ("distro", "arch", "description", "inputs", "rdma"):
        if not re.fullmatch({**images.RECORD_FORMS, **images.OPTIONAL_FORMS}[key], record[key]):
            raise UserFault(what, f"{key} {record[key][:80]!a} is not of the form demanded, or too long")
    if len(record["boot"].get("cmdline", "")) > images.CMDLINE:
        raise UserFault(what, f"the command line of its kernel has more than {images.CMDLINE} characters")


def _boot(wanted: RevisionSpec, before: Image | None) -> dict[str, str]:
    if wanted.kernel:
        return {"mode": "kernel", "cmdline": wanted.cmdline or ""}
    old = dict(before.record["boot"]) if before else {"mode": "bios"}
    if wanted.disk and old["mode"] == "kernel" and wanted.boot is None:
        raise UserFault(
            f"image {wanted.name}",
            "boots by a kernel beside its disk, which a new disk may not fit",
            "give the kernel of the new disk, or say boot by bios or uefi",
        )
    mode = wanted.boot or old["mode"]
    if mode == "kernel":
        if wanted.disk or before is None:
            raise UserFault(f"image {wanted.name}", "boots by a kernel", "give the kernel")
        return {**old, "cmdline": old.get("cmdline", "") if wanted.cmdline is None else wanted.cmdline}
    return {"mode": mode}


def _who() -> str:
    """Who called, through sudo and su: the login's user, as the kernel keeps it (pam_loginuid)."""
    number = os.getuid()
    with contextlib.suppress(OSError, ValueError):
        login = int(pathlib.Path("/proc/self/loginuid").read_text(encoding="ascii"))
        number = login if login != 0xFFFFFFFF else number
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = f"uid {number}"
    return f"{name}@{socket.gethostname()}"


def bytes_to_read(wanted: RevisionSpec) -> int:
    """How much `publish` tells its `advance` of, at most.

    Args:
        wanted: the image.
    """
    found = 0
    for path in (wanted.disk, wanted.kernel, wanted.initrd):
        with contextlib.suppress(OSError):
            found += path.stat().st_size if path else 0
    return found


@contextlib.contextmanager
def open_source(path: pathlib.Path) -> t.Iterator[t.BinaryIO]:
    """A file that somebody wants in an image.

    Args:
        path: of it.

    Raises:
        UserFault: it cannot be read.
        ImageFault: it is no regular file.
    """
    try:
        stream = disk_check.open_disk(path)
    except OSError as error:
        raise UserFault(f"{path}", error.strerror or str(error)) from error
    with stream:
        yield stream

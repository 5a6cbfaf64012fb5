# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image pool: what is in it, and whether it can be believed.

<pool>/<name>@<n>/record.json, disk.qcow2 [vmlinuz, initrd]     a revision, published by one rename
<pool>/<name>.qcow2, <name>.img                                  an image without a record
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pathlib
import re
import stat
import typing as t

from ...effects import leaves_nothing
from ...errors import ImageFault, NodeFault, SiteFault, UserFault, VTorqueError, broken_disk
from ...frozen import frozen
from ...slow_libraries import load_library
from ...system.files import read_json
from ...wire.messages import IMAGE_NAME

RECORD_VERSION = 1
CMDLINE = 2000
FORMATS = ("qcow2", "raw")
BOOT_MODES = ("bios", "uefi", "kernel")
PLAIN_SUFFIXES = {".qcow2": "qcow2", ".img": "raw"}
_FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
RECORD_FORMS: dict[str, str] = {
    "name": r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    "distro": r"[a-z]{1,16}",
    "arch": r"[a-z0-9_]{1,16}",
    "format": "|".join(FORMATS),
    "disk": _FILE_NAME,
    "disk_sha256": r"[0-9a-f]{64}",
    "description": r"[^\x00-\x1f\x7f]{0,1000}",
    "created": r"[0-9T:.Z+-]{10,40}",
}
OPTIONAL_FORMS = {
    "who": r"[^\x00-\x1f\x7f]{0,200}",
    "made": r"[^\x00-\x1f\x7f]{0,200}",
    "source": r"[^\x00-\x1f\x7f]{0,4096}",
    "inputs": r"[^\x00-\x1f\x7f]{0,200}",
    "rdma": "(yes|no)?",
    "warm": r"[1-9][0-9]?",
}
"""What not every image has: who made it, how, and of what; whether its guests have verbs (`vrdma=true`); and the
version of the first order that its guests take after a warm start (`guest/first_order.py`)."""
PART = ".part:"
"""Begins the name of a copy that is on its way (`image_cache.Cache.part`)."""
READ_BYTES = 4 << 20
"""At once, of a file that is read whole."""
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR})
"""The pool answers, and has no such file.  Whatever else it says is no word about the image."""
_RECORD_NUMBERS = ("version", "revision", "disk_bytes", "virtual_bytes")


@frozen
class Boot:
    """How an image boots: by BIOS, by UEFI, or by a kernel that lies beside the disk."""

    mode: str = "bios"
    kernel: pathlib.Path | None = None
    initrd: pathlib.Path | None = None
    cmdline: str = ""


@frozen
class Image:
    """An image of the pool that was checked.

    Attributes:
        name: with its revision, where it has one: `debian12@3`.
        path: the disk.
        format: `qcow2` or `raw`; never found out by looking into the file.
        virtual_bytes: size that a guest sees; 0 when no record says it.
        record: what the image's record says, or {}.
        kept_in: whose the files are: the `pool`'s, or this node's, on its `disk` or in its `memory`.
    """

    name: str
    path: pathlib.Path
    format: str
    boot: Boot
    distro: str = ""
    arch: str = ""
    virtual_bytes: int = 0
    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    record: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    kept_in: t.Literal["pool", "disk", "memory"] = "pool"


@leaves_nothing
def find(name: str, pool: pathlib.Path, *, owner_uid: int = 0) -> Image:
    """Find an image of the pool, the newest revision when none is named.

    Args:
        name: `debian12`, `debian12@3`, or the file name of an image without a record (with or without suffix).
        pool: the image pool.
        owner_uid: who must own pool and image: root.

    Raises:
        UserFault: there is no such image; names the nearest one.
        SiteFault: the pool could have been written by others, leads elsewhere, or cannot be read.
        ImageFault: the image could have been, does, or is not what its record says: no node would believe it.
    """
    if not re.fullmatch(IMAGE_NAME, name):
        raise UserFault(
            f"img={name[:80]!r}", "not the name of an image", "letters, digits and . _ - with or without @revision"
        )
    believe_pool(pool, owner_uid=owner_uid)
    entry = _entry(name, pool)
    if entry is None:
        names = sorted({_stem(known) for known in list_names(pool)})
        near = load_library("difflib").get_close_matches(_stem(name), names, n=1, cutoff=0.5)
        revisions = [known for known in list_names(pool) if "@" in known and _stem(known) == _stem(name)]
        hint = f"there is {', '.join(revisions)}" if revisions else f"did you mean {near[0]}?" if near else ""
        raise UserFault(f"img={name}", f"no such image in {pool}", hint or f"images: {', '.join(names) or 'none'}")
    if entry.suffix in PLAIN_SUFFIXES and "@" not in entry.name:
        _trusted_file(entry, owner_uid)
        return Image(entry.name, entry, PLAIN_SUFFIXES[entry.suffix], Boot())
    _trusted_directory(entry, owner_uid, ImageFault)
    return _with_record(entry, owner_uid)


def _stem(name: str) -> str:
    """A name as people say it: without revision and suffix."""
    stem = name.partition("@")[0]
    suffix = pathlib.PurePath(stem).suffix
    return stem.removesuffix(suffix) if suffix in PLAIN_SUFFIXES else stem


def _entry(name: str, pool: pathlib.Path) -> pathlib.Path | None:
    """The entry of the pool that a name means; a link counts, so that it is refused and not passed over."""
    if "@" in name:
        return pool / name if _is_there(pool / name) else None
    revisions = [known for known in list_names(pool) if re.fullmatch(re.escape(name) + r"@[0-9]+", known)]
    if revisions:
        return pool / max(revisions, key=lambda known: int(known.rpartition("@")[2]))
    plain = [pool / name] if pathlib.PurePath(name).suffix in PLAIN_SUFFIXES else []
    plain += [pool / f"{name}{suffix}" for suffix in PLAIN_SUFFIXES]
    return next((path for path in plain if _is_there(path)), None)


def _is_there(path: pathlib.Path) -> bool:
    """`os.path.lexists` would take a pool that does not answer for one that lacks the image, by the user's fault."""
    try:
        return bool(path.lstat())
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise _pool_fails(f"{path}", error) from error
        return False


def _pool_fails(what: str, error: OSError, why: str = "") -> SiteFault:
    return SiteFault(what, why or error.strerror or str(error), "see to the image pool")


def unreadable(image: Image, path: pathlib.Path, error: OSError) -> VTorqueError:
    """Whose fault it is that a file of an image cannot be read: of who keeps it.

    Args:
        image: of the pool, or a copy.
        path: of the file.
        error: what the system says.

    Returns:
        A SiteFault; of a copy on this node's disk a NodeFault, or, where that proves nothing of the disk, an error that
        blames nobody.
    """
    what, why = f"image {image.name} cannot be read", f"{path}: {error.strerror or error}"
    if image.kept_in == "pool":
        return _pool_fails(what, error, why)
    if image.kept_in == "memory":
        return SiteFault(what, why, "see ramdisk_dir in vtorque.yml")
    of_a_file = OSError(error.errno, error.strerror, str(path))
    return NodeFault(what, why, "see to the disk", cause="disk") if broken_disk(of_a_file) else VTorqueError(what, why)


def read(image: Image, path: pathlib.Path, begin: int = 0) -> t.Iterator[bytes]:
    """A file of an image, in pieces.

    Args:
        image: of the pool, or a copy.
        path: of the file.
        begin: the first byte that is read.

    Raises:
        VTorqueError: it cannot be read; see `unreadable`.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise unreadable(image, path, error) from None
    try:
        while piece := _piece(image, path, fd, begin):
            begin += len(piece)
            yield piece
    finally:
        os.close(fd)


def _piece(image: Image, path: pathlib.Path, fd: int, begin: int) -> bytes:
    try:
        return os.pread(fd, READ_BYTES, begin)
    except OSError as error:
        raise unreadable(image, path, error) from None


def copy_file(image: Image, path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Copy a file of an image; an error says which of the two it is of, as `shutil.copyfile`'s do not.

    Args:
        image: of the pool, or a copy.
        path: of the file.
        target: where to; what is there is replaced.

    Returns:
        `target`.

    Raises:
        VTorqueError: the file cannot be read; see `unreadable`.
        OSError: the target cannot be written.
    """
    with target.open("wb") as stream:
        for piece in read(image, path):
            stream.write(piece)
    return target


def copy_boot(image: Image, directory: pathlib.Path) -> Boot:
    """Copy kernel and initrd into a guest's directory: libvirt chowns what a domain boots from; see `copy_file`."""
    kernel, initrd = image.boot.kernel, image.boot.initrd
    return dataclasses.replace(
        image.boot,
        kernel=kernel and copy_file(image, kernel, directory / "vmlinuz"),
        initrd=initrd and copy_file(image, initrd, directory / "initrd"),
    )


def list_names(pool: pathlib.Path) -> tuple[str, ...]:
    """Names of what is in the pool, revisions apart, unchecked; names out of form are no images.

    Raises:
        SiteFault: the pool cannot be read.
    """
    try:
        entries = sorted(path.name for path in pool.iterdir())
    except OSError as error:
        raise SiteFault(f"image pool {pool}", error.strerror or str(error), "see vm_img_dir in vtorque.yml") from error
    return tuple(
        entry
        for entry in entries
        if re.fullmatch(IMAGE_NAME, entry) and ("@" in entry or pathlib.PurePath(entry).suffix in PLAIN_SUFFIXES)
    )


def list_images(pool: pathlib.Path, *, owner_uid: int = 0) -> tuple[tuple[str, Image | VTorqueError], ...]:
    """Every image of the pool by its name, or what is wrong with it."""
    found: list[tuple[str, Image | VTorqueError]] = []
    for name in list_names(pool):
        try:
            found.append((name, find(name, pool, owner_uid=owner_uid)))
        except VTorqueError as error:
            found.append((name, error))
    return tuple(found)


def believe_pool(pool: pathlib.Path, *, owner_uid: int = 0) -> None:
    """See that nobody but root could have put an image there.

    Args:
        pool: the image pool.
        owner_uid: who must own it: root.

    Raises:
        SiteFault: somebody could have, or it is not there.
    """
    _trusted_directory(pool, owner_uid, SiteFault)


def _trusted_directory(path: pathlib.Path, owner_uid: int, fault: type[VTorqueError]) -> None:
    facts = _facts(path, fault)
    if not stat.S_ISDIR(facts.st_mode):
        raise fault(f"{path}", "a link or a file stands where a directory of the image pool should be")
    _only_owner_writes(path, facts, owner_uid, fault)


def _trusted_file(path: pathlib.Path, owner_uid: int) -> os.stat_result:
    facts = _facts(path)
    if stat.S_ISLNK(facts.st_mode):
        raise ImageFault(
            f"image file {path}", "is a link; what it leads to is not in the pool's hands", "put the file itself there"
        )
    if not stat.S_ISREG(facts.st_mode):
        raise ImageFault(f"image file {path}", "is not a regular file")
    _only_owner_writes(path, facts, owner_uid, ImageFault)
    return facts


def _facts(path: pathlib.Path, fault: type[VTorqueError] = ImageFault) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise _pool_fails(f"{path}", error) from error
        why = "is missing from the image pool" if fault is ImageFault else "is missing on this node"
        raise fault(f"{path}", why, "" if fault is ImageFault else "see vm_img_dir in vtorque.yml") from None


def _only_owner_writes(path: pathlib.Path, facts: os.stat_result, owner_uid: int, fault: type[VTorqueError]) -> None:
    if facts.st_uid != owner_uid:
        raise fault(f"{path}", f"belongs to uid {facts.st_uid}, not to root: not believed", f"chown root {path}")
    # with an ACL the group bits are its mask, so that a right granted there shows here too
    if facts.st_mode & 0o022:
        raise fault(f"{path}", "can be written by others than root: not believed", f"chmod go-w {path}")


def _with_record(directory: pathlib.Path, owner_uid: int) -> Image:
    what = f"record of image {directory.name}"
    record_file = directory / "record.json"
    _trusted_file(record_file, owner_uid)
    try:
        # `read_json` believes root's files alone; another owner is for images that are not the site's
        record = read_json(record_file) if owner_uid == 0 else json.loads(record_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, VTorqueError) as error:
        if isinstance(error, OSError) and error.errno not in NOT_THERE:
            raise _pool_fails(what, error) from error
        raise ImageFault(what, str(error)) from error
    _check_record(what, directory.name, record)
    disk = directory / record["disk"]
    size = _trusted_file(disk, owner_uid).st_size
    if size != record["disk_bytes"]:
        raise ImageFault(
            f"image {directory.name}", f"{disk.name} has {size} bytes, its record says {record['disk_bytes']}"
        )
    boot = record["boot"]
    parts = {key: directory / boot[key] for key in ("kernel", "initrd") if boot.get(key)}
    for part in parts.values():
        _trusted_file(part, owner_uid)
    return Image(
        directory.name,
        disk,
        record["format"],
        Boot(boot["mode"], cmdline=boot.get("cmdline", ""), **parts),
        record["distro"],
        record["arch"],
        record["virtual_bytes"],
        record,
    )


def check_form(what: str, record: t.Mapping[str, t.Any]) -> None:
    """See that the words of a record are of the form demanded.

    Args:
        what: the record, for messages.
        record: it.

    Raises:
        ImageFault: names what is not.
    """
    forms = {**RECORD_FORMS, **{key: form for key, form in OPTIONAL_FORMS.items() if key in record}}
    for key, form in forms.items():
        if not isinstance(record.get(key), str) or not re.fullmatch(form, record[key]):
            raise ImageFault(what, f"{key}={ascii(record.get(key))[:80]} is not of the form demanded")
    _check_boot(what, record.get("boot"))


def _check_record(what: str, entry: str, record: t.Mapping[str, t.Any]) -> None:
    check_form(what, record)
    for key in _RECORD_NUMBERS:
        if not isinstance(record.get(key), int) or isinstance(record[key], bool) or not 0 < record[key] < 2**63:
            raise ImageFault(what, f"{key}={str(record.get(key))[:80]!r} is not a number greater than 0")
    if record["version"] != RECORD_VERSION:
        raise ImageFault(what, f"is of version {record['version']}, this program reads {RECORD_VERSION}")
    if f"{record['name']}@{record['revision']}" != entry:
        raise ImageFault(what, f"speaks of {record['name']}@{record['revision']}")


def _check_boot(what: str, boot: object) -> None:
    if not isinstance(boot, dict) or boot.get("mode") not in BOOT_MODES:
        raise ImageFault(what, f"boot: mode is one of {', '.join(BOOT_MODES)}")
    if (boot["mode"] == "kernel") != bool(boot.get("kernel")):
        raise ImageFault(what, "boot: a kernel belongs to mode kernel, and to no other")
    for key, form in (
        ("kernel", _FILE_NAME),
        ("initrd", _FILE_NAME),
        ("cmdline", rf"[^\x00-\x1f\x7f]{{0,{CMDLINE}}}"),
        ("kernel_sha256", r"[0-9a-f]{64}"),
        ("initrd_sha256", r"[0-9a-f]{64}"),
    ):
        value = boot.get(key) or ""
        if not isinstance(value, str) or (value and not re.fullmatch(form, value)):
            raise ImageFault(what, f"boot: {key} is not of the form demanded")

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verified copies of images on this node: which can be believed, and which may go when room is needed.

<place>/<name>@<n>/{disk..., vmlinuz, initrd, verified.json}   a copy, published by one rename
<place>/.part:<name>@<n>:<digest>/                             one that is on its way
<place>/.use                                                   a lock: shared while an overlay is put on a copy, held
                                                               alone while one is taken away

No lease says that a copy is in use: the guests' overlays do, in their headers, for as long as they are there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import stat
import time
import typing as t

from ...errors import SiteFault, UserFault, VTorqueError
from ...frozen import frozen
from ...system import files as files_module
from ...system.process import process_id
from ...text import format_bytes
from ..pool.images import PART, Image
from .overlay_bases import bases

VERIFIED = "verified.json"
VERSION = 1
_GONE = ".gone:"


@frozen
class Source:
    """One file of an image in the pool.

    Attributes:
        sha256: what its record says; "" where it does not.
    """

    path: pathlib.Path
    size: int
    sha256: str


@frozen
class Copy:
    """A copy that is here, believed or not.

    Attributes:
        image: `debian12@3`.
        held_bytes: what it takes of the disk.
        used_at: when a guest was last put on it, in seconds since the epoch.
        verified_at: when its digest was last found right; 0: never.
        boot_id: the boot in which that was.
        trouble: why it is not believed, or "".
    """

    image: str
    directory: pathlib.Path
    held_bytes: int
    used_at: float
    verified_at: float = 0.0
    boot_id: str = ""
    trouble: str = ""


def sources_of(image: Image) -> tuple[Source, ...]:
    """The files that a copy of an image has, the disk first.

    Raises:
        UserFault: it has no record, so that nothing says what a copy must be like.
        SiteFault: the pool does not tell of a file.
    """
    if not image.record:
        raise UserFault(
            f"img={image.name}",
            "has no record with a digest, by which a copy could be checked",
            "fs_type=sharedfs, or an image that was added by vmgr image add",
        )
    boot = t.cast("t.Mapping[str, t.Any]", image.record["boot"])
    found = [(image.path, str(image.record["disk_sha256"]))]
    for part, path in (("kernel", image.boot.kernel), ("initrd", image.boot.initrd)):
        if path is not None:
            found.append((path, str(boot.get(f"{part}_sha256") or "")))
    try:
        return tuple(Source(path, path.stat().st_size, sha256) for path, sha256 in found)
    except OSError as error:
        raise SiteFault(f"image {image.name}", str(error), "see to the image pool") from error


def facts_of(path: pathlib.Path) -> dict[str, int]:
    """What tells that nobody has touched a file since it was looked at."""
    facts = path.lstat()
    # a link, or what others may write, has no facts that count
    mode = 0 if stat.S_ISREG(facts.st_mode) and not facts.st_mode & 0o022 else facts.st_mode
    return {
        "ino": facts.st_ino,
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "ctime_ns": facts.st_ctime_ns,
        "uid": facts.st_uid,
        "odd": mode,
    }


class Cache:
    """The copies of one place.

    Args:
        place: where they are; made when it is needed.
        guests_dir: of this node; its overlays say which copies are in use.
        kept_in: of the node; see `images.Image`.
    """

    def __init__(
        self, place: pathlib.Path, guests_dir: pathlib.Path, kept_in: t.Literal["disk", "memory"] = "disk"
    ) -> None:
        self.place = place
        self.guests_dir = guests_dir
        self.kept_in = kept_in

    # -- what is here

    def find(self, image: Image) -> Image | None:
        """The image as this node has it, all of whose files are as they were when their digests were found right.

        Args:
            image: of the pool; its record says what a copy must be.

        Returns:
            The same image on the copy's files; None: there is no copy that can be believed.
        """
        directory = self.place / image.name
        try:
            verified = files_module.read_json(directory / VERIFIED)
            wanted = {source.path.name: source for source in sources_of(image)}
        except (OSError, VTorqueError):
            return None
        if _trouble(directory, verified):
            return None
        for name, source in wanted.items():
            identity = verified["files"].get(name)
            if identity is None or identity["size"] != source.size or source.sha256 not in ("", identity["sha256"]):
                return None
        return dataclasses.replace(_standing_in(image, directory), kept_in=self.kept_in)

    def copy(self, name: str) -> Copy | None:
        """What is here of an image by its full name, believed or not."""
        return next((one for one in self.copies() if one.image == name), None)

    def copies(self) -> tuple[Copy, ...]:
        """Every copy that is here whole, the one that was not used for longest first."""
        try:
            names = [path for path in self.place.iterdir() if not path.name.startswith(".")]
        except FileNotFoundError:
            return ()
        found = []
        for directory in names:
            with contextlib.suppress(FileNotFoundError):  # another takes it away
                found.append(_copy(directory))
        return tuple(sorted(found, key=lambda one: one.used_at))

    @contextlib.contextmanager
    def lock_copies(self) -> t.Iterator[None]:
        """Nothing is taken away from here meanwhile: what is found can be used until an overlay stands on it."""
        with self._use(fcntl.LOCK_SH):
            yield

    def used(self, image: Image) -> None:
        """A guest is put on the copy: it goes after all that were not used since."""
        with contextlib.suppress(OSError):
            os.utime(self.place / image.name)

    def in_use(self) -> dict[str, tuple[str, ...]]:
        """The guests on each copy, by the copy's name.

        Raises:
            NodeFault: a directory cannot be read, so that it is not known.
            OSError: the same of an overlay.
        """
        found: dict[str, tuple[str, ...]] = {}
        for guest, base in bases(self.guests_dir):
            if base.parent.parent == self.place:
                found[base.parent.name] = (*found.get(base.parent.name, ()), guest)
        return found

    # -- what comes and goes

    def part(self, image: Image) -> pathlib.Path:
        """Where the copy of an image grows: named by the digest too, so that another content begins anew.

        Raises:
            UserFault: see `sources_of`.
        """
        sources_of(image)
        return self.place / f"{PART}{image.name}:{str(image.record['disk_sha256'])[:16]}"

    def publish(self, image: Image, digests: t.Mapping[str, str]) -> None:
        """The copy that has grown is whole and right: from now on it is found.  One that was there before goes.

        Args:
            image: of the pool.
            digests: what was found of each file.
        """
        part = self.part(image)
        _note(part, image.name, digests)
        _sync(part)
        with self._use(fcntl.LOCK_EX):
            self._move_away(image.name)
            part.rename(self.place / image.name)
            _sync(self.place)
        self._tidy()

    def note_verified(self, name: str, digests: t.Mapping[str, str]) -> None:
        """The digests of a copy were found right once more."""
        _note(self.place / name, name, digests)

    def remove(self, name: str, *, even_used: bool = False) -> None:
        """Take a copy away.

        Args:
            name: with its revision.
            even_used: its content is wrong; guests on it keep the files that they have open.

        Raises:
            SiteFault: a guest is on it.
        """
        with self._use(fcntl.LOCK_EX):
            guests = self.in_use().get(name, ()) if not even_used else ()
            if guests:
                raise SiteFault(f"the copy of {name}", f"is in use by {', '.join(guests)}", "wait for the jobs to end")
            self._move_away(name)
        self._tidy()

    def make_room(self, image: Image, limit_bytes: int, promised_bytes: int = 0) -> None:
        """See to it that a copy of an image can grow here, by taking away what was not used for longest.

        Args:
            image: of the pool; what is here of it already counts.
            limit_bytes: for all copies together.
            promised_bytes: of the file system's free room, to guests.

        Raises:
            SiteFault: it does not fit, or guests are on what would have to go.
        """
        total = sum(source.size for source in sources_of(image))
        if total > limit_bytes:
            raise SiteFault(
                f"image {image.name}",
                f"has {format_bytes(total)}, {self.place} may hold {format_bytes(limit_bytes)}",
                "raise cache_max in vtorque.yml, or fs_type=sharedfs",
            )
        with self._use(fcntl.LOCK_EX):
            self._drop_parts(except_for=self.part(image))
            here = _used_bytes(self.part(image))
            in_use = self.in_use()
            copies = [one for one in self.copies() if one.image != image.name]
            may_go = [one for one in copies if one.image not in in_use]

            def lacking() -> int:
                beyond = total + sum(one.held_bytes for one in copies) - limit_bytes
                unfit = total - here + promised_bytes - shutil.disk_usage(self.place).free
                return max(beyond, unfit)

            while (lack := lacking()) > 0:
                if not may_go:
                    busy = ", ".join(f"{name} ({', '.join(guests)})" for name, guests in sorted(in_use.items()))
                    raise SiteFault(
                        f"no room for image {image.name} under {self.place}",
                        f"{format_bytes(lack)} more are needed; in use: {busy or 'no copy'}",
                        "wait for jobs to end, free some space, or raise cache_max",
                    )
                self._move_away(may_go[0].image)
                self._tidy()
                copies.remove(may_go.pop(0))

    def _drop_parts(self, except_for: pathlib.Path) -> None:
        for path in self.place.glob(f"{PART}*"):
            if path != except_for:
                shutil.rmtree(path)

    def _move_away(self, name: str) -> None:
        """Out of sight by one rename; a directory that is half removed would be taken for a copy."""
        with contextlib.suppress(FileNotFoundError):
            (self.place / name).rename(self.place / f"{_GONE}{name}:{os.getpid()}")

    def _tidy(self) -> None:
        for path in self.place.glob(f"{_GONE}*"):
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def _use(self, way: int) -> t.Iterator[None]:
        files_module.make_directory(self.place)
        fd = os.open(self.place / ".use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, way)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # not only closed: who was forked from us meanwhile has it open too
            os.close(fd)


def _standing_in(image: Image, directory: pathlib.Path) -> Image:
    kernel, initrd = (path and directory / path.name for path in (image.boot.kernel, image.boot.initrd))
    boot = dataclasses.replace(image.boot, kernel=kernel, initrd=initrd)
    return dataclasses.replace(image, path=directory / image.path.name, boot=boot)


def _copy(directory: pathlib.Path) -> Copy:
    held, used_at = _used_bytes(directory), directory.stat().st_mtime
    try:
        verified = files_module.read_json(directory / VERIFIED)
    except (OSError, VTorqueError) as error:
        return Copy(directory.name, directory, held, used_at, trouble=str(error))
    trouble = _trouble(directory, verified)
    return Copy(
        directory.name, directory, held, used_at, verified.get("when", 0.0), verified.get("boot_id", ""), trouble
    )


def _trouble(directory: pathlib.Path, verified: t.Mapping[str, t.Any]) -> str:
    if (
        verified.get("version") != VERSION
        or verified.get("image") != directory.name
        or not isinstance(verified.get("files"), dict)
    ):
        return f"{VERIFIED} is not of the form of this version"
    for name, identity in verified["files"].items():
        try:
            now = facts_of(directory / name)
        except OSError as error:
            return f"{name}: {error.strerror}"
        if now != {key: identity.get(key) for key in now}:
            return f"{name} was changed since it was verified"
    return ""


def _note(directory: pathlib.Path, name: str, digests: t.Mapping[str, str]) -> None:
    files = {file: {**facts_of(directory / file), "sha256": digest} for file, digest in digests.items()}
    note = {
        "version": VERSION,
        "image": name,
        "when": round(time.time(), 3),
        "boot_id": process_id.boot_id(),
        "files": files,
    }
    files_module.write(directory / VERIFIED, json.dumps(note), mode=0o444)


def _used_bytes(directory: pathlib.Path) -> int:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sum(path.lstat().st_blocks * 512 for path in directory.iterdir())
    return 0


def _sync(directory: pathlib.Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

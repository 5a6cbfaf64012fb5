# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of warm starts on this node: what there is, published by one rename, bounded, and thrown away.

<state_dir>/warm/<key>/record.json, mem, disk.qcow2, seed.iso     a template; root's alone
<state_dir>/warm/<key>/used                                       touched by each start from it
<state_dir>/warm/<key>/failed                                     how often a start from it failed
<state_dir>/warm/making.*                                         one that is being made; its maker holds it locked
<state_dir>/warm/gone.*                                           one that is being taken away
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import secrets
import shutil
import time
import typing as t

from ...errors import VTorqueError
from ...system import files
from ..state.directories import entries
from ..state.settings import NodeSettings
from .key import FORM

RECORD, MEMORY, DISK, SEED, USED, FAILED = "record.json", "mem", "disk.qcow2", "seed.iso", "used", "failed"
MAKING, GONE = "making.", "gone."
KEY = r"[0-9a-f]{32}"
MOST_FAILURES = 2
"""A template from which so many starts have failed is thrown away."""


class NoTemplate(VTorqueError):
    """There is no template from which a guest could start."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What is known of a template.

    Attributes:
        form: of the directory.
        key: `key.key_of`.
        image: of the guests, with its revision.
        vcpus, ram_mib: of each.
        token: with which its guest says that it is the one.
        made: when, in seconds since the epoch.
        seconds: that its making took.
        memory_bytes: of the memory's file.
        memory_sha256, disk_sha256: of the files.
        files: digests of what it has of a start's files, by path (`first_order.GuestFileText`).
    """

    form: int
    key: str
    image: str
    vcpus: int
    ram_mib: int
    token: str
    made: float
    seconds: float
    memory_bytes: int
    memory_sha256: str
    disk_sha256: str
    files: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """A template of this node.

    Attributes:
        place: its directory.
    """

    place: pathlib.Path
    record: Record

    @property
    def memory(self) -> pathlib.Path:
        """What libvirt saved."""
        return self.place / MEMORY

    @property
    def disk(self) -> pathlib.Path:
        """The overlay as it was then."""
        return self.place / DISK

    @property
    def seed(self) -> pathlib.Path:
        """The disk that was its seed, and tells nothing of a job."""
        return self.place / SEED

    @property
    def bytes(self) -> int:
        """What it takes of the disk."""
        return sum(path.stat().st_blocks * 512 for path in (self.memory, self.disk, self.seed))

    @property
    def used(self) -> float:
        """When a guest was made from it last, in seconds since the epoch; else when it was made."""
        with contextlib.suppress(OSError):
            return (self.place / USED).stat().st_mtime
        return self.record.made


def is_key(name: str) -> bool:
    """Return whether a directory of this name is a template."""
    return re.fullmatch(KEY, name) is not None


def find(key: str, settings: NodeSettings, now: float | None = None) -> Template:
    """Return the template of a shape.

    Args:
        key: `key.key_of`.
        settings: NodeSettings of this node.
        now: seconds since the epoch.

    Raises:
        NoTemplate: there is none that may be used; says why.
    """
    what = f"template {key[:8]}"
    place = settings.warm_dir / key
    if not place.is_dir():
        raise NoTemplate("this node has no template of this shape")
    try:
        template = read(place)
        sizes = template.memory.stat().st_size, template.record.memory_bytes
    except (OSError, VTorqueError) as error:
        raise NoTemplate(what, f"cannot be used: {error}") from error
    if sizes[0] != sizes[1]:
        raise NoTemplate(what, f"has a memory of {sizes[0]} bytes, its record says {sizes[1]}")
    if is_old(template, settings, now):
        raise NoTemplate(what, f"is older than {settings.warm_days} days")
    return template


def read(place: pathlib.Path) -> Template:
    """Return the template that is in a directory.

    Raises:
        OSError: something of it is missing.
        VTorqueError: its record is none that root wrote, or of another form.
    """
    try:
        record = Record(**files.read_json(place / RECORD))
    except TypeError as error:
        raise VTorqueError(f"{place / RECORD}", "is of another version of this program") from error
    if record.form != FORM or record.key != place.name:
        raise VTorqueError(f"{place / RECORD}", "speaks of another template")
    return Template(place, record)


def is_old(template: Template, settings: NodeSettings, now: float | None = None) -> bool:
    """Return whether a template is older than the site allows; one of the future is, too."""
    age_s = (time.time() if now is None else now) - template.record.made
    return not -86_400 < age_s <= settings.warm_days * 86_400


def list_templates(settings: NodeSettings) -> tuple[Template | VTorqueError, ...]:
    """Return what there is, by key, or why a directory is none that can be used."""
    found: list[Template | VTorqueError] = []
    for place in entries(settings.warm_dir):
        if is_key(place.name):
            try:
                template = read(place)
                template.bytes  # noqa: B018 - all of it is there
                found.append(template)
            except (OSError, VTorqueError) as error:
                found.append(VTorqueError(f"template {place.name}", str(error)))
    return tuple(found)


def note_use(template: Template) -> None:
    """A guest is made from it now; that it cannot be noted stops nobody."""
    with contextlib.suppress(OSError):
        used = template.place / USED
        used.touch(mode=0o600)
        os.utime(used)


def note_success(template: Template) -> None:
    """A guest that was made from it became ready."""
    with contextlib.suppress(OSError):
        (template.place / FAILED).unlink(missing_ok=True)


def note_failure(template: Template, settings: NodeSettings) -> bool:
    """A start from it failed; returns whether it was thrown away for that.

    Raises:
        VTorqueError: it should go, and does not.
    """
    failed = template.place / FAILED
    count = 1
    with contextlib.suppress(OSError, ValueError):
        count += int(failed.read_text(encoding="ascii"))
    if count >= MOST_FAILURES:
        return remove(template.record.key, settings)
    with contextlib.suppress(OSError, VTorqueError):
        failed.unlink(missing_ok=True)
        files.write(failed, str(count))
    return False


def remove(key: str, settings: NodeSettings) -> bool:
    """Take a template away; guests that were made from it stand on nothing of it.

    Args:
        key: of it.
        settings: NodeSettings of this node.

    Returns:
        Whether there was one.

    Raises:
        VTorqueError: it would not go.
    """
    gone = settings.warm_dir / f"{GONE}{key}.{secrets.token_hex(4)}"
    try:
        (settings.warm_dir / key).rename(gone)
        shutil.rmtree(gone)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise VTorqueError(f"template {key}", f"was not removed: {error}") from error
    return True


@contextlib.contextmanager
def workplace(settings: NodeSettings) -> t.Iterator[pathlib.Path]:
    """Yield a directory in which a template is made; it is gone afterwards unless it was published."""
    files.make_directory(settings.warm_dir, mode=0o711)
    place = settings.warm_dir / f"{MAKING}{secrets.token_hex(4)}"
    # qemu's user must pass through while the template's guest runs; what is in here is root's and libvirt's own
    place.mkdir(mode=0o711)
    place.chmod(0o711)
    holder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(holder)


def publish(place: pathlib.Path, record: Record, settings: NodeSettings) -> Template:
    """Let a template appear, whole; then those go that are too many.

    Args:
        place: where it was made.
        record: of it.
        settings: NodeSettings of this node.

    Raises:
        OSError, VTorqueError: it did not appear.
    """
    for name in (MEMORY, DISK, SEED):
        path = place / name
        os.chown(path, 0, 0)
        path.chmod(0o600)
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    files.write(place / RECORD, json.dumps(dataclasses.asdict(record)))
    place.chmod(0o700)
    remove(record.key, settings)
    target = settings.warm_dir / record.key
    place.rename(target)
    template = Template(target, record)
    make_room(settings, keep=record.key)
    return template


def make_room(settings: NodeSettings, *, keep: str = "", least_bytes: int = 0) -> tuple[str, ...]:
    """Take away what is old, what cannot be used, and of the rest those that were not used longest.

    Args:
        settings: say how many may stay.
        keep: the key of one that stays.
        least_bytes: that are to be free afterwards, as far as templates can give them.

    Returns:
        The keys of those that went.
    """
    usable: list[Template] = []
    gone: list[str] = []
    for place in entries(settings.warm_dir):
        if not is_key(place.name):
            continue
        template = None
        with contextlib.suppress(OSError, VTorqueError):
            template = read(place)
        if template is None or is_old(template, settings):
            gone += [place.name] if place.name != keep and remove(place.name, settings) else []
        else:
            usable.append(template)
    usable.sort(key=lambda one: one.used)
    for template in [one for one in usable if one.record.key != keep]:
        too_many = len(usable) > settings.warm_max
        if not too_many and (not least_bytes or shutil.disk_usage(settings.warm_dir).free >= least_bytes):
            break
        usable.remove(template)
        gone += [template.record.key] if remove(template.record.key, settings) else []
    return tuple(gone)


def tidy(settings: NodeSettings) -> tuple[str, ...]:
    """Take away what makers left that were killed, and what is old; returns what, as words."""
    removed = []
    for place in entries(settings.warm_dir):
        if place.name.startswith(GONE) or (place.name.startswith(MAKING) and not _is_locked(place)):
            shutil.rmtree(place, ignore_errors=True)
            removed.append(f"half a template {place.name}")
    return (*removed, *(f"template {key}" for key in make_room(settings)))


def _is_locked(place: pathlib.Path) -> bool:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

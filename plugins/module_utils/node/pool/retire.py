# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking images out of the pool, and who on this host still stands on one."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import typing as t

from ...errors import UserFault
from ...text import printable
from ...wire.messages import IMAGE_NAME
from ..state import directories
from . import images
from .disk_format import backing_file
from .staging_area import RETIRED, explain_os_errors, sync_path, workplace

PROC = pathlib.Path("/proc")


class InUse(UserFault):
    """Somebody stands on the image."""


def entries(name: str, pool: pathlib.Path) -> tuple[str, ...]:
    """What of the pool a name means, good or not: a revision, all revisions of a name, or a file without a record.

    Args:
        name: `debian12@3`, `debian12`, `old.img` or `old`.
        pool: the image pool.

    Returns:
        Names of entries, the newest revision last; none: there is no such image.

    Raises:
        UserFault: it cannot be the name of an image.
        SiteFault: the pool cannot be read.
    """
    if not re.fullmatch(IMAGE_NAME, name):
        raise UserFault(f"image {name[:80]!a}", "not the name of an image", "vmgr image list")
    known = images.list_names(pool)
    if name in known:
        return (name,)
    revisions = [entry for entry in known if entry.rpartition("@")[0] == name]
    files = [entry for entry in known if "@" not in entry and pathlib.PurePath(entry).stem == name]
    return tuple(sorted(revisions, key=lambda entry: int(entry.rpartition("@")[2])) or files)


def users(entry: str, pool: pathlib.Path, guests_dir: pathlib.Path) -> tuple[str, ...]:
    """Who on this host stands on an image: overlays of guests, and processes that have a file of it open.

    Args:
        entry: name of an entry of the pool.
        pool: the image pool.
        guests_dir: one directory a start of a job, one below it a guest.

    Returns:
        In words.

    Raises:
        NodeFault: what guests there are cannot be read, so that nobody knows.
    """
    found = []
    files = (path for guest in directories.guest_directories(guests_dir) for path in directories.entries(guest))
    for overlay in (path for path in files if path.suffix == ".qcow2"):
        base = backing_file(overlay)
        if base and _within(base, pool / entry):
            found.append(f"guest {overlay.parent.name} of {overlay.parent.parent.name}")
    for number, path in _open_files():
        if _within(path, pool / entry):
            found.append(f"process {number} ({_command(number)})")
    return tuple(dict.fromkeys(found))


def _within(path: str, entry: pathlib.Path) -> bool:
    return path == str(entry) or path.startswith(f"{entry}/")


def _open_files() -> t.Iterator[tuple[str, str]]:
    """By the names that the kernel keeps: no file system is asked, which may be away."""
    for process in PROC.iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                for fd in (process / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        yield process.name, str(fd.readlink())


def _command(number: str) -> str:
    try:
        return printable((PROC / number / "comm").read_text(encoding="ascii", errors="replace").strip())
    except OSError:
        return "gone"


def remove(entry: str, pool: pathlib.Path, guests_dir: pathlib.Path, *, owner_uid: int = 0) -> None:
    """Take an image out of the pool, at one moment; nothing is left of it.

    Args:
        entry: name of an entry of the pool, which may be an image that nobody believes.
        pool: the image pool.
        guests_dir: see `users`.
        owner_uid: who owns the pool and alone may write it.

    Raises:
        InUse: somebody on this host uses it.
        UserFault: the caller does not own the pool, or there is no such image (any more).
        SiteFault: the pool is not root's, is full, read-only or does not answer.
    """
    images.believe_pool(pool, owner_uid=owner_uid)
    what = f"image {entry} was not deleted"
    with workplace(pool, what, owner_uid=owner_uid) as gone, explain_os_errors(what, pool):
        refuse_used(entry, pool, guests_dir)
        if not os.path.lexists(pool / entry):
            raise UserFault(f"image {entry}", f"no such image in {pool}", "vmgr image list")
        _save_number(entry, pool)
        (pool / entry).rename(gone)
        late = users(entry, pool, guests_dir)
        if late:
            # a guest began between the two looks
            gone.rename(pool / entry)
            _refuse(what, late)
        sync_path(pool)


def refuse_used(entry: str, pool: pathlib.Path, guests_dir: pathlib.Path) -> None:
    """See that nobody on this host stands on an image.

    Args:
        entry: name of an entry of the pool.
        pool: the image pool.
        guests_dir: see `users`.

    Raises:
        InUse: somebody does.
    """
    _refuse(f"image {entry} was not deleted", users(entry, pool, guests_dir))


def _save_number(entry: str, pool: pathlib.Path) -> None:
    """An empty file a name: the greatest number of a revision that went, before it goes."""
    name, at, number = entry.rpartition("@")
    if not at:
        return
    (pool / f"{RETIRED}{entry}").touch(mode=0o444)
    for path in pool.glob(f"{RETIRED}{name}@*"):
        its_name, _at, its_number = path.name.removeprefix(RETIRED).rpartition("@")
        if its_name == name and its_number.isdecimal() and int(its_number) < int(number):
            path.unlink(missing_ok=True)


def _refuse(what: str, found: t.Sequence[str]) -> None:
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise InUse(what, f"in use on this host by {', '.join(found[:5])}{more}", "delete it when they have ended")

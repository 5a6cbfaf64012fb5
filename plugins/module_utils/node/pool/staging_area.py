# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A place on the pool's own file system where something is made or taken apart that nobody may see yet, or any more.

<pool>/.work.<token>        under a name that no image can have: an image appears or goes by one rename
<pool>/.work.<token>.lock   locked by who works there: who finds it free takes both away
<pool>/.retired.<name>@<n>  the number of a revision that is gone, and that no other one gets
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import secrets
import shutil
import typing as t

from ...errors import SiteFault, UserFault
from ..state.start_lock import Lock

_LOCK = re.compile(r"(\.work\.[0-9a-f]{16})\.lock")
RETIRED = ".retired."
_TRIES = 20
_HINTS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.EROFS: "call it on the host that may write the pool",
    errno.EACCES: "the file server may not let root of this host write: call it where the pool lies",
    errno.EPERM: "the file server may not let root of this host write: call it where the pool lies",
    errno.ENOLCK: "files are locked on the pool: its file server must know that",
}


@contextlib.contextmanager
def workplace(pool: pathlib.Path, what: str, *, owner_uid: int = 0) -> t.Iterator[pathlib.Path]:
    """Work in a place of one's own, which is gone afterwards; what was left by who was killed goes first.

    Args:
        pool: the image pool, which was looked at.
        what: what is being done, for messages.
        owner_uid: who alone may do so.

    Yields:
        What is not there yet, and may be made: an image that goes on a full disk is renamed, which takes no room.

    Raises:
        UserFault: the caller does not own the pool.
        SiteFault: the pool is full, read-only, or does not answer; it is as it was.
    """
    if os.geteuid() != owner_uid:
        raise UserFault(what, "the pool is root's", "call it as root")
    with explain_os_errors(what, pool):
        remove_leftovers(pool)
        lock = _lock(pool)
        place = lock.path.with_suffix("")
        try:
            yield place
        finally:
            # what cannot be removed now is found by the next one
            with contextlib.suppress(OSError):
                _remove(place)
                lock.path.unlink()
            lock.close()


def _remove(place: pathlib.Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


@contextlib.contextmanager
def explain_os_errors(what: str, pool: pathlib.Path) -> t.Iterator[None]:
    """Tell what the system says as the site's fault.

    Args:
        what: what is being done.
        pool: where.
    """
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise SiteFault(what, f"pool {pool}: {error.strerror or error}; nothing was changed", hint) from error


def _lock(pool: pathlib.Path) -> Lock:
    for _try in range(_TRIES):
        lock = Lock(pool / f".work.{secrets.token_hex(8)}.lock")
        # who takes away what is left may have found it before it was locked
        if lock.take_now() and lock.current():
            return lock
        lock.close()
    raise SiteFault(f"pool {pool}", "somebody takes away what is being made there")


def remove_leftovers(pool: pathlib.Path) -> None:
    """Remove what was left by who was killed.

    Args:
        pool: the image pool.

    Raises:
        OSError: the pool cannot be read or written.
    """
    for path in list(pool.iterdir()):
        if not (found := _LOCK.fullmatch(path.name)):
            continue
        with contextlib.suppress(FileNotFoundError):
            lock = Lock(path)
            try:
                if lock.take_now() and lock.current():
                    _remove(pool / found[1])
                    path.unlink()
            finally:
                lock.close()


def sync_path(path: pathlib.Path) -> None:
    """Have the system write a file or directory down.

    Args:
        path: of it.

    Raises:
        OSError: it could not.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

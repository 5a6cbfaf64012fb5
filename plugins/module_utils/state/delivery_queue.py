# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records that the front end has not got yet: a mark for each, which stands until it was handed over.

/var/lib/vtorque/spool/<job>.<start>   0600 root: why it was not taken; its time is that of the last try
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import time
import typing as t

from ..errors import VTorqueError
from ..frozen import frozen
from ..system import files
from ..text import printable
from . import layout

SPOOL = "spool"
FIRST_S = 60.0
MOST_S = 1800.0
"""A record that was not taken is tried again when it has waited as long again, but within these bounds."""
WORDS = 500


@frozen
class Mark:
    """A record that waits.

    Attributes:
        since: when the record was written last, in seconds since the epoch.
        tried: when it was tried last.
        why: what was in the way then; "": it was not tried to the end yet.
    """

    key: str
    since: float
    tried: float
    why: str

    def is_due(self, now: float) -> bool:
        """Return whether it is time to try again.  A clock that was set back keeps nothing waiting.

        Args:
            now: seconds since the epoch.
        """
        wait_s = min(max(self.tried - self.since, FIRST_S), MOST_S)
        return not 0 <= now - self.tried < wait_s


def mark_pending(key: str, state_dir: pathlib.Path = layout.STATE_DIR) -> None:
    """Mark a record as one that the front end has not got; one that is marked stays as it is.

    Args:
        key: `state.layout.job_key`.
        state_dir: holds the spool.

    Raises:
        VTorqueError: it was not marked.
    """
    path = state_dir / SPOOL / key
    files.make_directory(path.parent)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise VTorqueError(f"{path} was not made", str(error)) from error


def is_marked(key: str, state_dir: pathlib.Path = layout.STATE_DIR) -> bool:
    """Return whether this record waits.

    Args:
        key: `state.layout.job_key`.
        state_dir: holds the spool.
    """
    return (state_dir / SPOOL / key).is_file()


def list_pending(state_dir: pathlib.Path = layout.STATE_DIR) -> tuple[Mark, ...]:
    """The records that wait, the oldest first.

    Args:
        state_dir: holds spool and records.

    Raises:
        OSError: the spool cannot be read.
    """
    place = state_dir / SPOOL
    found = []
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        if layout.start_of(path.name) is not None:
            with contextlib.suppress(FileNotFoundError):  # it was handed over meanwhile
                found.append(_mark(path.name, state_dir))
    return tuple(sorted(found, key=lambda mark: mark.since))


def _mark(key: str, state_dir: pathlib.Path) -> Mark:
    path = state_dir / SPOOL / key
    tried = path.stat(follow_symlinks=False).st_mtime
    since = tried
    with contextlib.suppress(FileNotFoundError):
        since = (state_dir / "records" / key / layout.RECORD).stat(follow_symlinks=False).st_mtime
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
        why = stream.read(WORDS).decode(errors="replace")
    return Mark(key, since, tried, printable(why))


@contextlib.contextmanager
def claimed(key: str, state_dir: pathlib.Path = layout.STATE_DIR) -> t.Iterator[bool]:
    """Be the only one who hands a marked record over.

    Args:
        key: `state.layout.job_key`.
        state_dir: holds the spool.

    Yields:
        False: it is not marked (any more), or somebody else is at it.
    """
    try:
        fd = os.open(state_dir / SPOOL / key, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.fstat(fd).st_nlink > 0
        except OSError:
            ours = False
        yield ours
    finally:
        os.close(fd)


def tried(key: str, why: str, state_dir: pathlib.Path = layout.STATE_DIR) -> None:
    """Note that a record was not taken, and when; that this cannot be noted stops nothing.

    Args:
        key: `state.layout.job_key`.
        why: in one line.
        state_dir: holds the spool.
    """
    path = state_dir / SPOOL / key
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.utime(fd, (time.time(),) * 2)  # a full disk lets this pass
            os.ftruncate(fd, 0)
            os.write(fd, why.encode(errors="replace")[:WORDS])
        finally:
            os.close(fd)


def done(key: str, state_dir: pathlib.Path = layout.STATE_DIR) -> None:
    """The record waits no more.

    Args:
        key: `state.layout.job_key`.
        state_dir: holds the spool.
    """
    with contextlib.suppress(OSError):
        os.unlink(state_dir / SPOOL / key)

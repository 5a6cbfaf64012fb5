# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One hand at a time on a start of a job, and the word that it is over."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import subprocess
import time
import typing as t

from ..errors import VTorqueError
from ..records import Deadline
from .settings import NodeSettings

STONE_KEPT_S = 2 * 86_400.0
"""A request lives a day at most (`NodePart.timeout_s`): after two nobody can come late any more."""


@contextlib.contextmanager
def held(path: pathlib.Path, settings: NodeSettings, deadline: Deadline) -> t.Iterator[None]:
    """Hold a lock that ends with us, however we end.

    Raises:
        VTorqueError: somebody else held it until the deadline; says who.
    """
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    fd = _acquire(path, settings, deadline)
    try:
        os.truncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(fd)


def _acquire(path: pathlib.Path, settings: NodeSettings, deadline: Deadline) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _wait(fd, path, settings, deadline)
            # who held it before may have taken the file away with it
            if _same(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _same(fd: int, path: pathlib.Path) -> bool:
    mine = os.fstat(fd)
    try:
        now = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (now.st_dev, now.st_ino)


def _wait(fd: int, path: pathlib.Path, settings: NodeSettings, deadline: Deadline) -> None:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
    late = VTorqueError(f"lock {path}", f"process {holder or 'unknown'} held it for too long")
    try:
        # flock(2) knows no deadline; flock(1) locks the same open file for us, and has one
        done = subprocess.run(
            [str(settings.flock), "-x", "-w", f"{deadline.left_s():.3f}", str(fd)], pass_fds=[fd],
            timeout=deadline.left_s() + 5.0, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise late from error
    if done.returncode != 0:
        raise late


def is_held(path: pathlib.Path) -> bool:
    """Does anybody hold this lock?"""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def start_lock(settings: NodeSettings, key: str) -> pathlib.Path:
    """The lock of one start of a job (`records.job_key`)."""
    return settings.run_dir / "locks" / key


def tombstone(settings: NodeSettings, key: str) -> pathlib.Path:
    """The word that a start is over: whoever comes later makes nothing any more."""
    return settings.run_dir / "tombstones" / key


def bury(settings: NodeSettings, key: str) -> None:
    """Say that a start is over, before anything of it is taken away.

    Old words are forgotten: they would fill /run, and refuse the jobs of a server that counts from 1 again.
    """
    stone = tombstone(settings, key)
    stone.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    stone.touch(mode=0o600)
    for old in stone.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if old.stat().st_mtime < time.time() - STONE_KEPT_S:
                old.unlink()


def refuse_if_over(settings: NodeSettings, key: str) -> None:
    """Raises VTorqueError when the start is over."""
    if tombstone(settings, key).exists():
        raise VTorqueError(f"start {key} is over on {settings.node_name}", "its guests were taken away meanwhile")

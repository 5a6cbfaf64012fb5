# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One hand at a time on a start of a job, and the word that it is over."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import time
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError
from ...slow_libraries import load_library
from ...system.clock import Deadline
from ...system.process.process_id import ProcessId
from ...system.process.processes import is_process, open_process
from ...time_budget import LOCK_HOLDER_END_S
from ..system import inotify
from .pause_order import pause_order, take_back
from .settings import NodeSettings

STONE_KEPT_S = 2 * 86_400.0
"""A request lives a day at most (`NodePart.timeout_s`): after two nobody can come late any more."""
WORDS_LIMIT = 1 << 16


class LockTimeout(VTorqueError):
    """Somebody else held a lock until the deadline."""


class StartOver(VTorqueError):
    """A start is over: whoever comes later makes nothing any more."""

    def __init__(self, settings: NodeSettings, key: str) -> None:
        super().__init__(f"start {key} is over on {settings.node_name}", "its guests were taken away meanwhile")


class Lock:
    """A lock's file, open: whoever is forked from us holds the lock with us, and it ends with the last of us.

    Its first line names the holder (a `process_id.ProcessId`), its second what they took away before they let go.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def take_now(self) -> bool:
        """Hold it alone, when nobody else holds it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def take(self, settings: NodeSettings, deadline: Deadline, *, shared: bool = False) -> None:
        """Hold it alone, or with others who share it.

        Raises:
            LockTimeout: somebody else held it until the deadline; says who.
        """
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return
        began = time.monotonic()
        late = LockTimeout(f"lock {self.path}", f"process {self.holder() or 'unknown'} held it for too long")
        try:
            # flock(2) knows no deadline; flock(1) locks the same open file for us, and has one
            done = subprocess.run(
                [str(settings.flock), "-s" if shared else "-x", "-w", f"{deadline.left_s():.3f}", str(self._fd)],
                pass_fds=[self._fd],
                timeout=deadline.left_s() + 5.0,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise late from error
        if done.returncode != 0:
            late.hint = f"waited {time.monotonic() - began:.1f} s"
            raise late

    @leaves_nothing
    def current(self) -> bool:
        """Return whether this is still the file of that name.  Who held it before may have taken it away with them."""
        mine = os.fstat(self._fd)
        try:
            now = self.path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (now.st_dev, now.st_ino)

    def sign(self, holder: ProcessId, took_away: t.Sequence[str] = ()) -> None:
        """Say who holds it, and what the holder took away; a full /run, where nothing can be said, ends no work.

        Args:
            holder: the process.
            took_away: words for the next who holds it.
        """
        content = f"{holder.pid} {holder.start_ticks}\n{json.dumps(list(took_away))}\n"
        with contextlib.suppress(OSError):
            os.truncate(self._fd, 0)
            os.pwrite(self._fd, content.encode("ascii"), 0)

    def holder(self) -> str:
        """The number of the process that signed it last; "" when nobody did."""
        return (self._lines()[0].split() or [""])[0]

    def took_away(self) -> tuple[str, ...]:
        """What the last holder took away."""
        try:
            return tuple(map(str, json.loads(self._lines()[1])))
        except (IndexError, ValueError, TypeError):
            return ()

    def _lines(self) -> list[str]:
        return os.pread(self._fd, WORDS_LIMIT, 0).decode("ascii", "replace").split("\n")

    def close(self) -> None:
        """Let go, unless a process that was forked from us holds it too."""
        os.close(self._fd)


@contextlib.contextmanager
def lock_alone(path: pathlib.Path, settings: NodeSettings, deadline: Deadline) -> t.Iterator[tuple[str, ...]]:
    """Hold a lock alone; it ends with us, however we end.

    Yields:
        What the last holder took away, in their words.

    Raises:
        LockTimeout: somebody else held it until the deadline; says who.
    """
    lock = _take_lock(path, settings, deadline)
    try:
        before = lock.took_away()
        lock.sign(ProcessId.of(os.getpid()))
        yield before
    finally:
        lock.close()


def _take_lock(path: pathlib.Path, settings: NodeSettings, deadline: Deadline) -> Lock:
    while True:
        lock = Lock(path)
        try:
            lock.take(settings, deadline)
            if lock.current():
                return lock
        except BaseException:
            lock.close()
            raise
        lock.close()


def is_locked(path: pathlib.Path) -> bool:
    """Return whether anybody holds this lock, who works on the start or watches its guests."""
    return _is_refused(path, fcntl.LOCK_EX)


def is_locked_alone(path: pathlib.Path) -> bool:
    """Return whether anybody works on the start.  Who watches guests that are ready shares the lock."""
    return _is_refused(path, fcntl.LOCK_SH)


def _is_refused(path: pathlib.Path, way: int) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, way | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def signer(path: pathlib.Path) -> ProcessId | None:
    """The process that signed this lock last; None when nobody did."""
    try:
        pid, ticks = map(int, path.read_text(encoding="ascii").split("\n")[0].split())
    except (OSError, ValueError):
        return None
    return ProcessId(pid, ticks)


def end_holder(path: pathlib.Path) -> None:
    """End the process that holds a lock and hears nothing any more; nobody, when it is not sure who that is."""
    holder = signer(path)
    if holder is None:
        return
    with contextlib.suppress(OSError, ValueError):
        handle = open_process(holder.pid, lambda: is_process(holder) and _has_open(holder.pid, path))
        if handle is not None:
            with handle:
                handle.kill(Deadline.after(LOCK_HOLDER_END_S))


def _has_open(pid: int, path: pathlib.Path) -> bool:
    """Return whether a process has a lock open: the file may name who held it once."""
    return any(descriptor.readlink() == path for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir())


@leaves_nothing
def start_lock(settings: NodeSettings, key: str) -> pathlib.Path:
    """The lock of one start of a job (`state.layout.job_key`)."""
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
    take_back(settings, key)
    for old in stone.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if old.stat().st_mtime < time.time() - STONE_KEPT_S:
                old.unlink()


@leaves_nothing
def refuse_if_over(settings: NodeSettings, key: str) -> None:
    """Raises StartOver when the start is over."""
    if tombstone(settings, key).exists():
        raise StartOver(settings, key)


class OverWatch:
    """Hears when a start is over, and of orders that its guests stand still; a context manager.

    Raises:
        OSError: root has used up what hears of changes (fs.inotify.max_user_instances).
        VTorqueError: or what is heard (fs.inotify.max_user_watches).
    """

    def __init__(self, settings: NodeSettings, key: str) -> None:
        inotify_simple = load_library("inotify_simple")

        self._stone = tombstone(settings, key)
        self._stone.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._inotify = inotify_simple.INotify(nonblocking=True)
        flags = inotify_simple.flags
        inotify.watch(self._inotify, self._stone.parent, flags.CREATE | flags.MOVED_TO)
        # a second watch, since an instance of its own is what root may have few of
        orders = pause_order(settings, key).parent
        orders.mkdir(mode=0o711, parents=True, exist_ok=True)
        inotify.watch(self._inotify, orders, flags.CREATE | flags.DELETE | flags.MOVED_TO)

    @leaves_nothing
    def fileno(self) -> int:
        """Readable when a tombstone was set or an order given or taken back, of whichever start."""
        return int(self._inotify.fileno())

    @leaves_nothing
    def over(self) -> bool:
        """Return whether it is over.  What was heard until now is forgotten."""
        self._inotify.read(timeout=0)
        return self._stone.exists()

    def __enter__(self) -> OverWatch:
        return self

    def __exit__(self, *_error: object) -> None:
        self._inotify.close()

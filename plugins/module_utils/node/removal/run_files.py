# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts leave below /run/vtorque beside their guests: run directories, links of shells, words, half a file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import time

from ...errors import VTorqueError
from ...state import shell_link
from ...system import files
from ...system.clock import Deadline
from ...system.process.process_id import ProcessId
from ...time_budget import BARE_KEYS_S
from ..bare.loading import load_bare_host
from ..state.directories import GONE, entries
from ..state.settings import NodeSettings
from ..state.start_lock import STONE_KEPT_S
from ..telemetry import node_figures, textfile

LOCK_KEPT_S = 86_400.0
"""An empty file that nobody holds does no harm for a day."""
WRITING_S = 3600.0
"""No file of ours takes that long to write: whoever has the writer's number by then is another process."""
_PLAYBOOK = re.compile(r"ansible-local-([0-9]+)[a-z0-9_]{8}")
_SHELL = re.compile(r"([0-9]{1,10})\.([0-9]{1,20})")


def run_keys(settings: NodeSettings) -> tuple[str, ...]:
    """The names of all run directories."""
    return tuple(path.name for path in entries(settings.run_dir / "jobs") if path.is_dir() and not path.is_symlink())


def living_shell(settings: NodeSettings, key: str) -> ProcessId | None:
    """The process that is, or becomes, the shell of this start's job, when it lives."""
    for link in shell_link.links_to(settings.run_dir / "jobs" / key, settings.run_dir):
        shell = _process(link.name)
        if shell is not None and _lives(shell):
            return shell
    return None


def tidy(settings: NodeSettings) -> tuple[str, ...]:
    """Take away what speaks of nothing any more, whosever it was.

    Returns:
        What was removed, as words.
    """
    node_figures.write_node(settings)
    return (
        *textfile.remove_stale(settings),
        *_dangling_links(settings),
        *_half_files(settings),
        *_playbooks(settings),
        *_old_stones(settings),
        *_old_locks(settings),
        *_authorized_keys(settings),
    )


def _dangling_links(settings: NodeSettings) -> list[str]:
    """Links of a process that is gone to a directory that is gone."""
    removed = []
    for link in entries(settings.run_dir / "shells"):
        shell = _process(link.name)
        with contextlib.suppress(OSError):  # gone meanwhile; of whom nobody can say that they are, their link stays
            if shell is None or not link.is_symlink() or _lives(shell):
                continue
            if not (settings.run_dir / "jobs" / link.readlink().name).exists():
                link.unlink()
                removed.append(f"shell link {link.name}")
    return removed


def _half_files(settings: NodeSettings) -> list[str]:
    """Files that `system.files.write` and `state.shell_link.point` began and a kill cut short: `.<name>.<pid>`."""
    recently = time.time() - STONE_KEPT_S
    places = [settings.run_dir, settings.run_dir / "shells", *entries(settings.run_dir / "jobs")]
    places += entries(settings.bare_dir)
    # thousands of records may lie there; what was not touched since then was looked at before
    places += [path for path in entries(settings.state_dir / "records") if _changed(path) > recently]
    removed = []
    for path in (path for place in places for path in entries(place)):
        half = files.HALF.fullmatch(path.name)
        if half and not path.is_dir() and not _writes_still(int(half[1]), path):
            with contextlib.suppress(OSError):  # a disk that takes nothing keeps no start from being swept
                path.unlink(missing_ok=True)
                removed.append(f"half a file {path.name}")
    return removed


def _playbooks(settings: NodeSettings) -> list[str]:
    """Ansible's own directories, where it was killed; a name is its process number and eight letters and digits."""
    removed = []
    for path in entries(settings.run_dir / "ansible"):
        found = _PLAYBOOK.fullmatch(path.name)
        if found and path.is_dir() and not _writes_still(int(found[1]), path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(f"temporary files {path.name}")
    return removed


def _writes_still(pid: int, path: pathlib.Path) -> bool:
    try:
        ProcessId.of(pid)
    except GONE:
        return False
    except OSError:  # nobody could look: it may be at it
        return True
    return time.time() - _changed(path) < WRITING_S


def _old_stones(settings: NodeSettings) -> list[str]:
    old = time.time() - STONE_KEPT_S
    removed = []
    for stone in entries(settings.run_dir / "tombstones"):
        if _changed(stone) < old:
            stone.unlink(missing_ok=True)
            removed.append(f"tombstone {stone.name}")
    return removed


def _old_locks(settings: NodeSettings) -> list[str]:
    """Lock files that nobody wanted for a day; who finds their lock taken away meanwhile makes it again (`locks`)."""
    old = time.time() - LOCK_KEPT_S
    removed = []
    for path in entries(settings.run_dir / "locks"):
        if _changed(path) >= old:
            continue
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed.append(f"lock file {path.name}")
            finally:
                os.close(fd)
    return removed


def _authorized_keys(settings: NodeSettings) -> tuple[str, ...]:
    """Keys by which sshd lets users in for whom no job is here any more."""
    if not settings.authorized_keys_dir.is_dir():
        return ()
    removed: tuple[str, ...] = ()
    with contextlib.suppress(VTorqueError):  # the next sweep looks again
        removed = load_bare_host().tidy(settings, Deadline.after(BARE_KEYS_S))
    return removed


def _process(name: str) -> ProcessId | None:
    found = _SHELL.fullmatch(name)
    return ProcessId(int(found[1]), int(found[2])) if found else None


def _lives(process: ProcessId) -> bool:
    """Return whether it lives.

    Raises:
        OSError: nobody could look, which is no "no".
    """
    try:
        return ProcessId.of(process.pid) == process
    except GONE:
        return False


def _changed(path: pathlib.Path) -> float:
    """When it was changed, in seconds since the epoch; now for what has just gone."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return time.time()

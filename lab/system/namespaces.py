# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel separates: namespaces and mounts, as far as Python 3.11 does not offer them itself."""

from __future__ import annotations

import ctypes
import os
import pathlib

# linux/sched.h and linux/mount.h; os.unshare comes with Python 3.12
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def join_network(name: str) -> None:
    """Go into a network namespace that `ip netns` knows by this name."""
    with (pathlib.Path("/run/netns") / name).open("rb") as namespace:
        _check(_libc.setns(namespace.fileno(), CLONE_NEWNET), "setns")


def unshare(
    *, mounts: bool = False, cgroup: bool = False, uts: bool = False, ipc: bool = False, pid: bool = False
) -> None:
    """Leave the namespaces of these kinds for new ones; a new one for processes holds children only."""
    flags = (
        mounts * CLONE_NEWNS | cgroup * CLONE_NEWCGROUP | uts * CLONE_NEWUTS | ipc * CLONE_NEWIPC | pid * CLONE_NEWPID
    )
    _check(_libc.unshare(flags), "unshare")


def mount(
    source: str | pathlib.Path | None, target: str | pathlib.Path, kind: str | None, flags: int, options: str = ""
) -> None:
    """mount(2).

    Raises:
        OSError: the kernel refused; names what and where.
    """

    def text(value: str | pathlib.Path | None) -> bytes | None:
        return None if value is None else os.fsencode(value)

    _check(
        _libc.mount(text(source), text(target), text(kind), flags, text(options)), f"mount {kind or source} {target}"
    )


def _check(result: int, what: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")

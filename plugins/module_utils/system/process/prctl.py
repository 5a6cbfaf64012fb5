# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process sets of itself by prctl(2), for which Python has no function.

`ctypes` is loaded by the first call only: most programs that import this module never come to one.
"""

from __future__ import annotations

import os
import typing as t

from ...slow_libraries import load_library

# linux/prctl.h, linux/seccomp.h
_SET_PDEATHSIG, _GET_PDEATHSIG = 1, 2
_SET_KEEPCAPS = 8
_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
_CAP_AMBIENT, _CAP_AMBIENT_RAISE = 47, 2
_SCHED_CORE, _SCHED_CORE_GET, _SCHED_CORE_CREATE, _ALL_THREADS = 62, 0, 1, 1


def _call(option: int, *arguments: t.Any) -> None:
    ctypes = load_library("ctypes")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *arguments, *(0,) * (4 - len(arguments))) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _read(option: int) -> int:
    ctypes = load_library("ctypes")
    number = ctypes.c_int()
    _call(option, ctypes.byref(number))
    return int(number.value)


def death_signal() -> int:
    """Return the signal that this process gets when its parent ends; 0: none."""
    return _read(_GET_PDEATHSIG)


def set_death_signal(number: int) -> None:
    """Get a signal when the parent's thread ends; 0: none.  A change of ids takes it back, and a child has none."""
    _call(_SET_PDEATHSIG, int(number))


def is_subreaper() -> bool:
    """Return whether what descends from this process and loses its parent becomes a child of this one."""
    return bool(_read(_GET_CHILD_SUBREAPER))


def set_subreaper(wanted: bool) -> None:
    """Let it become one, or not."""
    _call(_SET_CHILD_SUBREAPER, int(wanted))


def keep_capabilities() -> None:
    """Keep the permitted capabilities over the next change of ids.

    Raises:
        OSError: the kernel refuses that.
    """
    _call(_SET_KEEPCAPS, 1)


def raise_ambient(capability: int) -> None:
    """Hand a capability on to the program that this process becomes.

    Args:
        capability: its number (linux/capability.h); permitted and inheritable.

    Raises:
        OSError: the kernel refuses that.
    """
    _call(_CAP_AMBIENT, _CAP_AMBIENT_RAISE, capability)


def filter_calls(program: bytes) -> None:
    """Have the kernel judge this process's calls by a program from now on.

    Args:
        program: a `struct sock_fprog` (linux/filter.h); what it points at must outlive this call.

    Raises:
        OSError: the kernel refuses that.
    """
    _call(_SET_SECCOMP, _SECCOMP_MODE_FILTER, program)


def has_core_scheduling() -> bool:
    """Return whether the kernel can keep strangers off the threads of a core (CONFIG_SCHED_CORE), where it has any.

    libvirt asks the same, and its daemon does not start where qemu.conf wants it and the kernel cannot
    (virProcessSchedCoreAvailable).
    """
    ctypes = load_library("ctypes")
    cookie = ctypes.c_ulonglong()
    try:
        _call(_SCHED_CORE, _SCHED_CORE_GET, 0, 0, ctypes.byref(cookie))
    except OSError:  # EINVAL: the kernel has none; ENODEV: the processor has one thread a core
        return False
    return True


def separate_threads(pid: int) -> None:
    """Let no thread of another process run on a core on which one of this process runs (core-scheduling.rst).

    Args:
        pid: of a process; threads that it begins later belong to it, too.

    Raises:
        OSError: it has ended, or the kernel has no core scheduling (`has_core_scheduling`).
    """
    _call(_SCHED_CORE, _SCHED_CORE_CREATE, pid, _ALL_THREADS, 0)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proof that each thread of a guest runs where it must, from /proc; a thread that does not is moved there.

libvirt places qemu's own threads.  It does not place what the kernel makes for a guest: `vhost-<pid>` (a child of
kthreadd until 6.3, a thread of qemu since 6.4), `kvm-nx-lpage-recovery-<pid>` (until 6.13 a kernel thread, then one of
qemu's, in the group of the first vCPU), and `kvm-pit/<pid>` (a kernel thread that may run anywhere).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import typing as t

from ...errors import NodeFault
from ...frozen import frozen
from ..system import cpus
from .pins import Pins

PROC = pathlib.Path("/proc")
KTHREADD = 2
EVERY = -1
ROUNDS = 8
"""A thread that begins while the others are moved is found in the next round; programs that start begin several."""
_VCPU = re.compile(r"CPU ([0-9]{1,5})/(KVM|TCG)")
"""As qemu calls its threads where libvirt starts it (debug-threads=on)."""
_ALL_VCPUS = "ALL CPUs/TCG"
"""One thread for all of them: emulation of a processor with a stricter order of memory than the host's."""
OF_KERNEL = (b"vhost-", b"kvm-")
"""How names of threads begin that the kernel makes for a guest."""
_CUT_OFF = "kvm-nx-lpage-re"
"""Kernels before 5.17 cut off a name after 15 characters: then the control group must tell whose it is."""
Move = t.Callable[[int, t.Iterable[int]], None]


@frozen
class Thread:
    """One thread.

    Attributes:
        number: of the thread, as the kernel counts it.
        name: as the kernel has it.
        vcpu: which vCPU of the guest it is; EVERY: all of them; None: none.
        allowed: the cores on which it may run.
    """

    number: int
    name: str
    vcpu: int | None
    allowed: cpus.Cores


def place_threads(
    guest: str,
    qemu: int,
    servers: t.Iterable[int],
    pins: Pins,
    *,
    exactly: bool = False,
    move: Move = os.sched_setaffinity,
    proc: pathlib.Path = PROC,
) -> tuple[str, ...]:
    """Prove that the threads of a guest are where they must be; move those that are not.

    Args:
        guest: its name.
        qemu: number of its process.
        servers: numbers of the processes that serve it.
        pins: where its threads must be.
        exactly: threads that may run on some of their cores alone may run on all of them afterwards, as far as their
            control groups reach.
        move: lets a thread run on these cores and no others.
        proc: where the kernel shows them.

    Returns:
        The names of the threads that were moved.

    Raises:
        NodeFault: a vCPU has no thread, or a thread is elsewhere and cannot be moved.
    """
    servers = tuple(servers)
    moved: list[str] = []
    for last in (False,) * (ROUNDS - 1) + (True,):
        fits = _is_exactly if exactly and not moved else _is_within
        found = read_threads(qemu, servers, proc)
        there = {thread.vcpu for thread in found}
        alone = any(thread.vcpu == EVERY for thread in found)
        if missing := [vcpu for vcpu in range(len(pins.vcpus)) if vcpu not in there and not alone]:
            why = f"vCPU {missing[0]} has no thread of its own in process {qemu}"
            raise NodeFault(f"the threads of guest {guest}", why, "are its threads without names (debug-threads)?")
        astray = [(thread, wanted) for thread in found if not fits(thread, wanted := _place_of(thread, pins))]
        if not astray:
            return tuple(moved)
        if last:
            thread, wanted = astray[0]
            why = (
                f"{thread.name} ({thread.number}) may run on {cpus.format_cores(thread.allowed)}, and its place is "
                f"{cpus.format_cores(wanted)}: it cannot be moved"
            )
            raise NodeFault(f"the threads of guest {guest}", why, "does something else on this node place threads?")
        for thread, wanted in astray:
            _move(thread, qemu, wanted, move, proc)
            moved.append(thread.name)
    return tuple(moved)


def read_kernel_threads(qemu: int, proc: pathlib.Path = PROC) -> tuple[int, ...]:
    """Read the numbers of the threads that the kernel has made for a guest and that are none of its qemu's."""
    return tuple(thread.number for thread in _of_kernel(qemu, proc))


def read_threads(qemu: int, servers: t.Iterable[int] = (), proc: pathlib.Path = PROC) -> tuple[Thread, ...]:
    """Read the threads of a guest: of its qemu, of what serves it, and those that the kernel made for it."""
    own = [thread for one in (qemu, *servers) for thread in _of_process(one, one == qemu, proc)]
    return (*own, *_of_kernel(qemu, proc))


def _of_process(number: int, is_qemu: bool, proc: pathlib.Path) -> t.Iterator[Thread]:
    with contextlib.suppress(FileNotFoundError):  # it ended meanwhile, which others find out
        for task in sorted((proc / str(number) / "task").iterdir(), key=lambda path: int(path.name)):
            facts = _read_status(task / "status")
            if facts:
                name, _parent, allowed = facts
                vcpu = _VCPU.fullmatch(name) if is_qemu else None
                every = EVERY if is_qemu and name == _ALL_VCPUS else None
                yield Thread(int(task.name), name, int(vcpu[1]) if vcpu else every, allowed)


def _of_kernel(qemu: int, proc: pathlib.Path) -> t.Iterator[Thread]:
    names = {f"vhost-{qemu}", f"kvm-pit/{qemu}", f"kvm-nx-lpage-recovery-{qemu}"}
    for path in proc.glob("[0-9]*"):
        # a start waits for this, and a node may have thousands of processes: few of them are read as a whole
        if not _read_name(path).startswith(OF_KERNEL):
            continue
        facts = _read_status(path / "status")
        # any process may call itself so; none becomes a child of kthreadd
        if facts and facts[1] == KTHREADD:
            name, _parent, allowed = facts
            if name in names or (name == _CUT_OFF and _groups(path) == _groups(proc / str(qemu))):
                yield Thread(int(path.name), name, None, allowed)


def _read_name(process: pathlib.Path) -> bytes:
    """The name of a process; b"": it has ended."""
    try:
        fd = os.open(process / "comm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 64)
    except ProcessLookupError:
        return b""
    finally:
        os.close(fd)


def _read_status(file: pathlib.Path) -> tuple[str, int, cpus.Cores] | None:
    """Name, parent and cores of a thread; None: it has ended."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    facts = {key: value.strip() for key, _colon, value in (line.partition(":") for line in lines)}
    try:
        return facts["Name"], int(facts["PPid"]), cpus.read(facts["Cpus_allowed_list"])
    except (KeyError, ValueError):
        return None


def _place_of(thread: Thread, pins: Pins) -> cpus.Cores:
    if thread.vcpu == EVERY:
        return tuple(core for cores in pins.vcpus for core in cores)
    known = thread.vcpu is not None and thread.vcpu < len(pins.vcpus)
    return pins.vcpus[thread.vcpu] if known and thread.vcpu is not None else pins.others


def _is_within(thread: Thread, wanted: cpus.Cores) -> bool:
    return set(thread.allowed) <= set(wanted)


def _is_exactly(thread: Thread, wanted: cpus.Cores) -> bool:
    return set(thread.allowed) == set(wanted)


def _move(thread: Thread, qemu: int, wanted: cpus.Cores, move: Move, proc: pathlib.Path) -> None:
    """Move a thread, out of its control group where that does not reach so far; whether it worked is read later."""
    try:
        move(thread.number, wanted)
    except OSError:
        if thread.vcpu is None:
            _join_group(thread.number, proc / str(qemu), proc)
        with contextlib.suppress(OSError):
            move(thread.number, wanted)


def _groups(process: pathlib.Path) -> tuple[str, ...]:
    """The control groups of a process that have cores: the lines of the kernel's file."""
    try:
        lines = (process / "cgroup").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(line for line in lines if line.startswith("0::") or "cpuset" in line.split(":")[1].split(","))


def _join_group(thread: int, leader: pathlib.Path, proc: pathlib.Path) -> None:
    """Put a thread into the group in which qemu's first thread is: where it may be, all others but vCPUs may be."""
    for line in _groups(leader):
        for place in cpus.hierarchies(proc / "mounts"):
            for name in ("cgroup.threads", "tasks"):
                file = place / line.split(":", 2)[2].lstrip("/") / name
                with contextlib.suppress(OSError):
                    if file.exists():
                        file.write_text(str(thread), encoding="ascii")

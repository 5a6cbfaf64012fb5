# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cgroups of the lab's nodes, whichever of the two kinds the machine has."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time

from .state import State

ROOT = pathlib.Path("/sys/fs/cgroup")
LEFT_S, LOOK_S = 60.0, 0.02
"""For the kernel to be done with what has ended, and between two looks."""


@dataclasses.dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup file system.

    Attributes:
        place: its directory below /sys/fs/cgroup; "" for a machine with version 2 alone.
        kind: `cgroup` or `cgroup2`.
        options: what a mount of the same hierarchy must name (controllers of version 1).
    """

    place: str
    kind: str
    options: str


def hierarchies() -> tuple[Hierarchy, ...]:
    """What is mounted below /sys/fs/cgroup, in the order in which it must be mounted again."""
    lines = pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    named = {name for line in lines for name in line.split(":")[1].split(",") if name}
    found = []
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, kind, options = line.split()[:4]
        path = pathlib.Path(where)
        if kind in ("cgroup", "cgroup2") and path.is_relative_to(ROOT):
            place = str(path.relative_to(ROOT))
            controllers = ",".join(option for option in options.split(",") if option in named)
            found.append(Hierarchy("" if place == "." else place, kind, controllers if kind == "cgroup" else ""))
    return tuple(sorted(found, key=lambda h: h.place))


def join(name: str) -> None:
    """Make the cgroup `name` in every hierarchy, and move this process there."""
    for hierarchy in hierarchies():
        group = _make(ROOT / hierarchy.place, name)
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def weigh(name: str, times: int) -> None:
    """Give a cgroup of this lab's so many shares of the processors as another has by itself.

    Args:
        name: of the cgroup, which is there.
        times: how many.
    """
    for hierarchy in hierarchies():
        for file, one in (("cpu.shares", 1024), ("cpu.weight", 100)):
            place = ROOT / hierarchy.place / name / file
            if place.exists():
                place.write_text(str(one * times), encoding="ascii")


def _make(parent: pathlib.Path, name: str) -> pathlib.Path:
    group = parent / name
    group.mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):  # without them nobody can be moved there
        # the root of version 2 has none, and there nothing has to be said
        if (group / file).exists() and (parent / file).exists():
            (group / file).write_text((parent / file).read_text(encoding="ascii"), encoding="ascii")
    return group


def join_for(parent: int, name: str) -> None:
    """`join`, unless whoever began this process is gone: he or another has cleaned up, and nobody would see us there.

    Args:
        parent: the process that began this one.
        name: of the cgroup.

    Raises:
        SystemExit: he is gone.
    """
    _require(parent)
    join(name)
    _require(parent)


def _require(parent: int) -> None:
    if os.getppid() != parent:
        raise SystemExit("whoever began this is gone")


def make_machine() -> None:
    """In a node: libvirt's group for all guests, which systemd has where it runs (machine.slice).

    Of two guests that begin at once without it the second was seen to find no group of its own (libvirt 9.0).
    """
    for hierarchy in hierarchies():
        if hierarchy.kind == "cgroup" and hierarchy.options:
            _make(ROOT / hierarchy.place, "machine")


def delegate() -> None:
    """In a node of a version 2 machine: leave the group's root, so that libvirt may divide it among guests."""
    if not any(h.place == "" for h in hierarchies()):
        return
    (ROOT / "init").mkdir(exist_ok=True)
    (ROOT / "init/cgroup.procs").write_text("0", encoding="ascii")
    _hand_down(ROOT)


def delegate_to(name: str) -> None:
    """In a node of a version 2 machine: make a group whose groups have what the node has."""
    (ROOT / name).mkdir(exist_ok=True)
    _hand_down(ROOT / name)


def _hand_down(group: pathlib.Path) -> None:
    for controller in (group / "cgroup.controllers").read_text(encoding="ascii").split():
        # a controller that the machine keeps for itself is one that the node does without
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")


def present(state: State) -> list[pathlib.Path]:
    """The cgroups of this lab."""
    groups = []
    for hierarchy in hierarchies():
        groups += [path for path in (ROOT / hierarchy.place).iterdir() if path.is_dir() and state.owns(path.name)]
    return sorted(groups)


def thaw(state: State, node: str = "") -> None:
    """Let go on what a batch system has suspended in this lab, or on one of its nodes: version 1 lets it not end."""
    for group in _of(state, node):
        for file in group.rglob("freezer.state"):
            with contextlib.suppress(OSError):
                file.write_text("THAWED", encoding="ascii")


def _of(state: State, node: str) -> list[pathlib.Path]:
    return [group for group in present(state) if not node or group.name == state.name(node)]


def members(state: State, node: str = "") -> set[int]:
    """Every process in a cgroup of this lab, or of one of its nodes, nested ones too."""
    pids: set[int] = set()
    for group in _of(state, node):
        for file in group.rglob("cgroup.procs"):
            with contextlib.suppress(FileNotFoundError, OSError):
                pids.update(map(int, file.read_text(encoding="ascii").split()))
    return pids


def enter() -> None:
    """Move this process, which came into a node by `lab on`, to where the node's own processes are."""
    for hierarchy in hierarchies():
        root = ROOT / hierarchy.place
        # of a version 2 machine: see `delegate`
        group = root / "init" if (root / "init").is_dir() else root
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def remove(state: State, node: str = "") -> list[pathlib.Path]:
    """Remove the empty cgroups of this lab, or of one of its nodes, innermost first.

    The last process of a node takes the node's mounts with it, and the end of an overlay is written to the disk first:
    nobody sees the process any more, and on a busy machine its group is in use a while longer.

    Returns:
        Those that are still in use.
    """
    limit = time.monotonic() + LEFT_S
    while (busy := _removed(state, node)) and not members(state, node) and time.monotonic() < limit:
        time.sleep(LOOK_S)
    return busy


def _removed(state: State, node: str) -> list[pathlib.Path]:
    """One try; those that are still in use."""
    busy = []
    for group in _of(state, node):
        for inner in sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True):
            with contextlib.suppress(OSError):
                inner.rmdir()
        try:
            group.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            busy.append(group)
    return busy

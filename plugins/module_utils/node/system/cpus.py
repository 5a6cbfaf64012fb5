# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores: of this node, and of a job that the batch system has given some by a cpuset."""

from __future__ import annotations

import glob
import pathlib
import re
import typing as t

from ...errors import SiteFault

MOUNTS = pathlib.Path("/proc/mounts")
ONLINE = pathlib.Path("/sys/devices/system/cpu/online")
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
Cores = tuple[int, ...]


def of_mom(job_id: str, mounts: pathlib.Path = MOUNTS) -> Cores:
    """The cores that the MOM has given to a job on this node.

    TORQUE 6 makes `torque/<job id>` in the cpuset hierarchy of version 1, wherever that is mounted (trq_cgroups.c), and
    one of an earlier kind in /dev/cpuset, whose files have no prefix (cpuset.c).  Version 2 has the same names.

    Args:
        job_id: of the job.
        mounts: what is mounted, as the kernel says it.

    Returns:
        Numbers of cores; () where the MOM makes no cpusets.

    Raises:
        SiteFault: there is one, and it does not tell.
    """
    return next(_cores_of_groups((f"torque/{glob.escape(job_id)}",), mounts), ())


def of_groups(patterns: t.Sequence[str], mounts: pathlib.Path = MOUNTS) -> Cores:
    """The cores that a batch system has given to a job on this node.

    Args:
        patterns: where the job's group may be, below a hierarchy.
        mounts: what is mounted, as the kernel says it.

    Returns:
        Numbers of cores; () where there is no such group, or it has no cpuset.

    Raises:
        SiteFault: there is one, and it does not tell.
    """
    return next(_cores_of_groups(patterns, mounts), ())


def unassigned_cores(
    patterns: t.Sequence[str], reserved: int, count: int, mounts: pathlib.Path = MOUNTS, online: pathlib.Path = ONLINE
) -> Cores:
    """Cores of this node that no job has, for one whose own are not known yet.

    Args:
        patterns: where groups of jobs may be, below a hierarchy.
        reserved: how many are kept for the host, the first ones.
        count: how many are wanted.
        mounts: what is mounted, as the kernel says it.
        online: what the kernel says that there is.

    Returns:
        As many as are wanted, of those that are kept where no others are left; of all of them where none is free.

    Raises:
        SiteFault: a group does not tell, or nothing is left for guests.
    """
    given = {core for cores in _cores_of_groups(patterns, mounts) for core in cores}
    there, for_guests = read(online.read_text(encoding="ascii")), of_node(reserved, online)
    free = [core for core in (*for_guests, *there) if core not in given]
    return tuple(sorted(list(dict.fromkeys(free))[:count])) if free else for_guests


def _cores_of_groups(patterns: t.Sequence[str], mounts: pathlib.Path) -> t.Iterator[Cores]:
    """The cores of each group that is there and has a cpuset."""
    for group in (found for place in hierarchies(mounts) for pattern in patterns for found in place.glob(pattern)):
        if not group.is_dir():
            continue
        for name in ("cpuset.cpus", "cpus", "cpuset.cpus.effective"):
            try:
                if cores := read((group / name).read_text(encoding="ascii")):
                    yield cores
                    break
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, ValueError) as error:
                raise SiteFault(f"{group / name}", f"the job's cores are not known: {error}") from error


def hierarchies(mounts: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """Return where control groups with cores may be mounted.

    Args:
        mounts: what is mounted, as the kernel says it.
    """
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _source, where, kind, options, *_rest = line.split(" ")
        if kind in ("cpuset", "cgroup2") or (kind == "cgroup" and "cpuset" in options.split(",")):
            yield pathlib.Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), where))


def of_node(reserved: int, online: pathlib.Path = ONLINE) -> Cores:
    """This node's cores without those that are kept for the host, which are the first.

    Args:
        reserved: how many are kept.
        online: what the kernel says that there is.

    Raises:
        SiteFault: none is left.
    """
    cores = read(online.read_text(encoding="ascii"))
    if not cores[reserved:]:
        why = f"keeps all of this node's {len(cores)} for the host"
        raise SiteFault(f"host_os_core_count: {reserved}", why, "leave one for guests")
    return cores[reserved:]


def read(text: str) -> Cores:
    """The cores of a list as the kernel and libvirt write it.

    Args:
        text: `0-3,8`.

    Returns:
        Their numbers, in order, each once.

    Raises:
        ValueError: it is none.
    """
    cores: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        found = _RANGE.fullmatch(part)
        if not found:
            raise ValueError(f"{text.strip()[:80]!r} is no list of cores")
        cores.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(sorted(cores))


def format_cores(cores: t.Sequence[int]) -> str:
    """Return a list of cores as `read` reads it: `0-3,8`.

    Args:
        cores: numbers, in order.
    """
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)

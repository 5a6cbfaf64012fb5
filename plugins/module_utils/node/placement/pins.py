# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores the threads of each guest of a job have: by the user's map, or as `place.py` chooses."""

from __future__ import annotations

import typing as t

from ...errors import UserFault
from ...frozen import frozen
from ...wire.messages import AUTO_CORES, PREFER_CORES, GuestSpec
from ..system import cpus
from .place import Need, Rules, Spread, place
from .topology import Topology

KEY = "vcpu_pinning"


@frozen
class Pins:
    """On which cores of the node the threads of one guest run.

    Attributes:
        vcpus: of each vCPU, in their order.
        others: of all other threads of its qemu, and of what serves it.
    """

    vcpus: tuple[cpus.Cores, ...]
    others: cpus.Cores

    @property
    def cores(self) -> cpus.Cores:
        """All of them, ascending."""
        return tuple(sorted({core for cores in (*self.vcpus, self.others) for core in cores}))


def assign(
    specs: t.Sequence[GuestSpec], topology: Topology, job_cores: cpus.Cores, taken: t.Collection[int], reserved: int
) -> tuple[Pins, ...]:
    """Give the guests of a job their cores.

    Args:
        specs: all of the job's on this node; they agree on whether the user has a map.
        topology: of the node.
        job_cores: the job's on this node, ascending: positions of a map count in them.
        taken: those of them that guests of other jobs have.
        reserved: how many of the job's cores no vCPU may have to itself: the host's share.

    Returns:
        One for each of the specs.

    Raises:
        UserFault: the job's cores are too few; the user's map names others, or takes the host's share.
    """
    free = tuple(core for core in job_cores if core not in taken)
    if specs[0].vcpu_cores not in (AUTO_CORES, PREFER_CORES):
        return _by_map(specs, job_cores, taken, reserved)
    needs = [Need(spec.vcpus, spec.ram_mib) for spec in specs]
    spare = len(free) - sum(need.vcpus for need in needs)
    # a site that reserves nothing gets a core for qemu's own threads where there is one
    spread = t.cast(Spread, specs[0].numa)
    found = place(topology, free, needs, Rules(host_threads=reserved or min(1, max(0, spare)), spread=spread))
    others = found.host or tuple(sorted(core for guest in found.guests for core in guest.cores))
    return tuple(Pins(tuple((core,) for core in guest.cores), others) for guest in found.guests)


def _by_map(
    specs: t.Sequence[GuestSpec], job_cores: cpus.Cores, taken: t.Collection[int], reserved: int
) -> tuple[Pins, ...]:
    users: dict[int, str] = {}
    found = []
    for spec in specs:
        lists = [_positions(text) for text in spec.vcpu_cores.split(";")]
        if len(lists) != spec.vcpus:
            raise _unfit(f"it names {len(lists)} vCPUs of guest {spec.index}, which has {spec.vcpus}")
        own = []
        for vcpu, positions in enumerate(lists):
            cores = _cores_at(positions, job_cores, taken, f"vCPU {vcpu} of guest {spec.index}")
            for position, core in zip(positions, cores, strict=True):
                who = f"vCPU {vcpu} of guest {spec.index}"
                if core in users:
                    raise _unfit(f"core {position} is given to {users[core]} and to {who}")
                users[core] = who
            own.append(tuple(sorted(cores)))
        found.append(tuple(own))
    rest = tuple(core for core in job_cores if core not in users and core not in taken)
    if len(job_cores) - len(users) < reserved:
        raise _unfit(
            f"vCPUs get {len(users)} of the job's {len(job_cores)} cores, and {reserved} are kept for the host"
        )
    pins = []
    for spec, of_vcpus in zip(specs, found, strict=True):
        others = rest or tuple(sorted(users))
        if spec.other_cores:
            others = _cores_at(_positions(spec.other_cores), job_cores, taken, "the emulator")
            if both := sorted(users.keys() & set(others)):
                raise _unfit(f"core {job_cores.index(both[0])} is given to {users[both[0]]} and to the emulator")
        pins.append(Pins(of_vcpus, tuple(sorted(others))))
    return tuple(pins)


def _positions(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _cores_at(positions: t.Sequence[int], job_cores: cpus.Cores, taken: t.Collection[int], who: str) -> tuple[int, ...]:
    """The cores at these positions of the job's list."""
    if max(positions) >= len(job_cores):
        have = f"the job has {len(job_cores)} cores on this node, 0 to {len(job_cores) - 1}"
        raise _unfit(f"core {max(positions)} is given to {who}, and {have}")
    cores = tuple(job_cores[position] for position in positions)
    if held := [position for position, core in zip(positions, cores, strict=True) if core in taken]:
        raise _unfit(f"core {held[0]} is given to {who}, and a guest of another job has it")
    return cores


def _unfit(why: str) -> UserFault:
    return UserFault(f"{KEY}: the map", why, "see the chapter on pinning in the user manual")

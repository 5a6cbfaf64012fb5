# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores the threads of each guest of a job have: by the user's map, or as `place.py` chooses.

A job may have cores for virtual I/O (IOcm): there run all threads of its guests that are no vCPU's.  They are the job's
own, and none of them is a vCPU's that has a core of its own.
"""

from __future__ import annotations

import typing as t

from ...errors import UserFault
from ...frozen import frozen
from ...wire.messages import AUTO_CORES, PREFER_CORES, GuestSpec
from ..system import cpus
from .place import Need, Rules, Spread, place
from .topology import Topology

KEY, IO_KEY = "vcpu_pinning", "iocm"


@frozen
class Pins:
    """On which cores of the node the threads of one guest run.

    Attributes:
        vcpus: of each vCPU, in their order.
        others: of all other threads of its qemu, and of what serves it.
        io_least: how many of `others`, the first ones, these threads have in any case; the rest they get under load.
            0: they have all of `others`, whatever the load is.
    """

    vcpus: tuple[cpus.Cores, ...]
    others: cpus.Cores
    io_least: int = 0

    @property
    def cores(self) -> cpus.Cores:
        """All of them, ascending."""
        return tuple(sorted({core for cores in (*self.vcpus, self.others) for core in cores}))

    @property
    def io(self) -> cpus.Cores:
        """The cores for virtual I/O, in the order in which they are taken under load; (): it has none."""
        return self.others if self.io_least else ()

    def with_io(self, count: int) -> Pins:
        """Return where the threads run while so many of the cores for virtual I/O are in use.

        Args:
            count: how many.
        """
        if not self.io_least:
            return self
        used = self.others[:count]
        # vCPUs that share cores leave those of I/O; one that has a core of its own is on none of them
        vcpus = tuple(tuple(core for core in cores if core not in used) for cores in self.vcpus)
        return Pins(vcpus, used, self.io_least)


@frozen
class CoreShare:
    """What guests of a job can have of a node's cores.

    Attributes:
        topology: of the node.
        job_cores: the job's on this node, ascending: positions of a map count in them.
        taken: those of them that guests of other jobs have.
        reserved: how many of the job's cores no vCPU may have to itself: the host's share.
        near: the cell of the node's network card, for virtual I/O; None: it is not known.
        near_devices: of each guest the cell of its devices, None where it is not known; (): no guest has devices.
    """

    topology: Topology
    job_cores: cpus.Cores
    taken: t.Collection[int]
    reserved: int
    near: int | None = None
    near_devices: tuple[int | None, ...] = ()

    @property
    def free(self) -> cpus.Cores:
        """The job's cores that no other job's guests have."""
        return tuple(core for core in self.job_cores if core not in self.taken)


def assign(specs: t.Sequence[GuestSpec], share: CoreShare) -> tuple[Pins, ...]:
    """Give the guests of a job their cores.

    Cores for virtual I/O are those that vCPUs and the host leave, as many as the job may have under load.

    Args:
        specs: all of the job's on this node; they agree on whether the user has a map.
        share: the job's.

    Returns:
        One for each of the specs.

    Raises:
        UserFault: the job's cores are too few; the user's map names others, or takes the host's share.
    """
    free, reserved = share.free, share.reserved
    if specs[0].vcpu_cores not in (AUTO_CORES, PREFER_CORES):
        pins = _by_map(specs, share.job_cores, share.taken, reserved)
        return _with_io_of_map(specs, pins, free, reserved) if specs[0].io_max else pins
    near_devices = share.near_devices or (None,) * len(specs)
    needs = [Need(spec.vcpus, spec.ram_mib, cell) for spec, cell in zip(specs, near_devices, strict=True)]
    spare = len(free) - sum(need.vcpus for need in needs)
    spread = t.cast(Spread, specs[0].numa)
    if specs[0].io_max:
        _check_io(specs, len(free), reserved, spare - reserved)
        io = min(specs[0].io_max, spare - reserved)
        found = place(
            share.topology, free, needs, Rules(host_threads=reserved, io_threads=io, spread=spread, near=share.near)
        )
        return tuple(Pins(tuple((core,) for core in guest.cores), found.io, specs[0].io_min) for guest in found.guests)
    # a site that reserves nothing gets a core for qemu's own threads where there is one
    found = place(share.topology, free, needs, Rules(host_threads=reserved or min(1, max(0, spare)), spread=spread))
    others = found.host or tuple(sorted(core for guest in found.guests for core in guest.cores))
    return tuple(Pins(tuple((core,) for core in guest.cores), others) for guest in found.guests)


def assign_shared(specs: t.Sequence[GuestSpec], share: CoreShare) -> tuple[Pins, ...]:
    """Give guests whose vCPUs share cores some for virtual I/O; under load vCPUs leave more of theirs to it.

    Args:
        specs: as of `assign`, with all others; they ask for such cores.
        share: the job's.

    Returns:
        One for each of the specs.

    Raises:
        UserFault: the job's cores are too few.
    """
    free, reserved = share.free, share.reserved
    most = len(free) - reserved - 1
    _check_io(specs, len(free), reserved, most, vcpus=1)
    rules = Rules(host_threads=reserved, io_threads=min(specs[0].io_max, most), near=share.near)
    found = place(share.topology, free, (), rules)
    io = found.io
    shared = tuple(core for core in free if core not in found.host and core not in io[: specs[0].io_min])
    return tuple(Pins((shared,) * spec.vcpus, io, spec.io_min) for spec in specs)


def _check_io(specs: t.Sequence[GuestSpec], cores: int, reserved: int, left: int, vcpus: int = 0) -> None:
    """Refuse a job whose share is too small for the cores for virtual I/O that it wants in any case."""
    if left < specs[0].io_min:
        wanted = vcpus or sum(spec.vcpus for spec in specs)
        why = (
            f"virtual I/O wants {specs[0].io_min} of the job's {cores} cores on this node, besides {wanted} for vCPUs "
            f"and {reserved} for the host"
        )
        raise UserFault(
            f"{IO_KEY}: the guests of this job", why, "ask for more processors, or a smaller iocm_min_cores"
        )


def _with_io_of_map(
    specs: t.Sequence[GuestSpec], pins: t.Sequence[Pins], free: cpus.Cores, reserved: int
) -> tuple[Pins, ...]:
    """The cores of a map, and of those that it leaves the ones for virtual I/O: its `emulator:` line if it has one."""
    used = {core for one in pins for cores in one.vcpus for core in cores}
    if specs[0].other_cores:
        rest = pins[0].others
        _check_io(specs, len(free), 0, len(rest))
    else:
        rest = tuple(core for core in free if core not in used)[reserved:]
        _check_io(specs, len(free), reserved, len(rest))
    return tuple(Pins(one.vcpus, rest[: specs[0].io_max], specs[0].io_min) for one in pins)


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

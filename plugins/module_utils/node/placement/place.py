# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give each guest of a job cores of its own, in as few cells as hold it: a pure function of what the node has.

Two jobs on one node need nobody who remembers: the batch system gives them cores that are not the same, and a guest is
placed within those of its job alone.
"""

from __future__ import annotations

import itertools
import typing as t

from ...errors import UserFault
from ...frozen import frozen
from ..system import cpus
from .topology import DISTANCE_HERE, DISTANCE_THERE, Cell, Core, Topology

Spread = t.Literal["auto", "1", "off"]
"""Of the key `numa`: as few cells as hold a guest, one or none, or cells that nobody looks at."""
MOST_CELLS_TRIED = 12
"""Above it, sets of cells are grown from the nearest ones instead of tried one by one: 12 have 4095 of them."""


@frozen
class Need:
    """What one guest needs.

    Attributes:
        vcpus: how many.
        memory_mib: of the guest.
        near: the cell of its devices, which is tried first; None: it has none, or their cell is not known.
    """

    vcpus: int
    memory_mib: int
    near: int | None = None


@frozen
class Rules:
    """How guests are placed.

    Attributes:
        host_threads: how many processors are left to the host, to qemu's own threads and to what serves the guests.
        io_threads: how many are left to virtual I/O besides.
        one_thread: whether a physical core gets one vCPU, and its siblings stay idle.
        spread: over how many cells a guest may stand.
        near: the cell whose device all guests use, tried first for those without a cell of their own; None: none is.
    """

    host_threads: int = 1
    io_threads: int = 0
    one_thread: bool = False
    spread: Spread = "auto"
    near: int | None = None


@frozen
class GuestCell:
    """A cell of a guest.

    Attributes:
        host_cell: whose memory it has.
        vcpus: of the guest, in it.
        memory_mib: of the guest, in it.
    """

    host_cell: int
    vcpus: tuple[int, ...]
    memory_mib: int


@frozen
class GuestPlace:
    """Where one guest stands.

    Attributes:
        cores: of each of its vCPUs, in their order.
        cells: of it, in the order in which the guest counts them.
        threads: how many vCPUs stand on each physical core; 1 unless that is true of all of its cores.
    """

    cores: cpus.Cores
    cells: tuple[GuestCell, ...]
    threads: int


@frozen
class Placement:
    """Where the guests of a job stand on a node.

    Attributes:
        guests: in the order of the needs.
        host: processors for the host, qemu's own threads and what serves the guests.
        io: processors for virtual I/O.
    """

    guests: tuple[GuestPlace, ...]
    host: cpus.Cores
    io: cpus.Cores


def place(topology: Topology, job_cores: t.Iterable[int], needs: t.Sequence[Need], rules: Rules) -> Placement:
    """Place the guests of a job.

    Args:
        topology: of the node.
        job_cores: the processors that the batch system gave to the job on this node.
        needs: of the guests, in the order of their slots.
        rules: how.

    Raises:
        UserFault: the job's processors are too few, or not where they would have to be.
    """
    free = _Free(topology, frozenset(job_cores))
    wanted = sum(need.vcpus for need in needs)
    host = free.take_aside(rules.host_threads, wanted + rules.io_threads, None)
    io = free.take_aside(rules.io_threads, wanted, rules.near)
    apart = _cells_apart(free, needs, rules) if rules.spread != "off" else None
    guests = []
    for rank, need in enumerate(needs):
        within = free.cells() if apart is None else [cell for cell in free.cells() if cell.number == apart[rank]]
        guests.append(_place_guest(free, rank, need, rules, within))
    return Placement(tuple(guests), host, io)


def _cells_apart(free: _Free, needs: t.Sequence[Need], rules: Rules) -> list[int] | None:
    """Return a cell for each of several guests, which none of the others has; None: one, or not all find one."""
    if len(needs) < 2:
        return None
    chosen: list[int] = []
    for need in needs:
        room = {cell.number: free.count(cell, one_thread=rules.one_thread) for cell in free.cells()}
        fitting = [number for number, have in room.items() if number not in chosen and have >= need.vcpus]
        if not fitting:
            return None
        near = _near(need, rules)
        chosen.append(min(fitting, key=lambda number: (number != near, room[number], number)))
    return chosen


def _near(need: Need, rules: Rules) -> int | None:
    return rules.near if need.near is None else need.near


class _Free:
    """The processors of a job that nobody has yet."""

    def __init__(self, topology: Topology, job_cores: frozenset[int]) -> None:
        if unknown := job_cores - topology.threads:
            why = f"this node has no processor {min(unknown)}"
            raise UserFault("the cores of this job", why, "is it switched off? The batch system counts it")
        self._cells = {cell.number: cell for cell in topology.cells}
        self._job = job_cores
        self._left = set(job_cores)

    def cells(self) -> list[Cell]:
        """Return the cells in which processors are left."""
        return [cell for cell in self._cells.values() if self.count(cell, one_thread=False)]

    def cores(self, cell: Cell) -> list[tuple[Core, cpus.Cores]]:
        """The cores of a cell of which something is left, and what that is."""
        found = ((core, tuple(thread for thread in core.threads if thread in self._left)) for core in cell.cores)
        return [(core, threads) for core, threads in found if threads]

    def count(self, cell: Cell, *, one_thread: bool) -> int:
        """How many vCPUs a cell can take."""
        return sum(self._room(threads, core, one_thread=one_thread) for core, threads in self.cores(cell))

    def _room(self, threads: cpus.Cores, core: Core, *, one_thread: bool) -> int:
        if not one_thread:
            return len(threads)
        # a sibling that serves another guest, or is the host's, would share the core with it
        return int(len(threads) == len(self._job.intersection(core.threads)))

    def take_aside(self, number: int, needed: int, near: int | None) -> cpus.Cores:
        """Take processors that are no guest's: whole cores where there is enough, the first of each cell in turn.

        Args:
            number: how many at least.
            needed: how many must be left.
            near: the cell that is asked first; None: each in turn.
        """
        if not number:
            return ()
        if len(self._left) < number + needed:
            raise _too_few(number + needed, len(self._left))
        taken: list[int] = []
        while len(taken) < number:
            core = self._next_aside(taken, near)
            spare = len(self._left) - needed
            part = core if len(core) <= spare else core[: number - len(taken)]
            self._left.difference_update(part)
            taken.extend(part)
        return tuple(sorted(taken))

    def _next_aside(self, taken: t.Sequence[int], near: int | None) -> cpus.Cores:
        """What is left of the core that gives next."""

        def order(cell: Cell) -> tuple[bool, int, int]:
            given = sum(thread in taken for core in cell.cores for thread in core.threads)
            return cell.number != near, 0 if near == cell.number else given, cell.number

        cell = min(self.cells(), key=order)
        return self.cores(cell)[0][1]

    def take(self, cell: Cell, vcpus: int, *, one_thread: bool) -> cpus.Cores:
        """Take the processors of vCPUs in one cell: of as few caches as hold them, whole cores before parts of one."""
        groups: dict[int, list[cpus.Cores]] = {}
        for core, threads in self.cores(cell):
            room = self._room(threads, core, one_thread=one_thread)
            if room:
                groups.setdefault(core.cache, []).append(threads[:room] if one_thread else threads)
        taken: list[int] = []
        while len(taken) < vcpus:
            left = vcpus - len(taken)
            sizes = {cache: sum(map(len, cores)) for cache, cores in groups.items()}
            # the least that holds what is left, else the largest
            best = min(sizes, key=lambda one: (sizes[one] < left, abs(sizes[one] - left), one))
            taken.extend(_from_cache(groups.pop(best), left))
        # siblings are no longer free for who wants whole cores: `_room` sees that they are not
        self._left.difference_update(taken)
        return tuple(taken)


def _from_cache(cores: t.Sequence[cpus.Cores], most: int) -> list[int]:
    """Return what is taken of the cores that share a cache: whole ones first, the fullest before the others."""
    taken: list[int] = []
    rest = sorted(cores, key=lambda threads: (-len(threads), threads))
    while rest and len(taken) < most:
        left = most - len(taken)
        threads = next((threads for threads in rest if len(threads) <= left), rest[-1])
        rest.remove(threads)
        taken.extend(threads[:left])
    return taken


def _place_guest(free: _Free, rank: int, need: Need, rules: Rules, cells: t.Sequence[Cell]) -> GuestPlace:
    room = {cell.number: free.count(cell, one_thread=rules.one_thread) for cell in cells}
    if sum(room.values()) < need.vcpus:
        raise _too_few(need.vcpus, sum(room.values()), rank)
    chosen = _choose_cells(cells, room, need.vcpus, _near(need, rules))
    if rules.spread == "1" and len(chosen) > 1:
        most = max(room.values())
        what = f"numa=1: guest {rank + 1} of the job"
        raise UserFault(
            what, f"it has {need.vcpus} vCPUs, and no NUMA cell has more than {most} left for it", "numa=auto"
        )
    shares = _share(need.vcpus, [room[cell.number] for cell in chosen])
    taken = [free.take(cell, share, one_thread=rules.one_thread) for cell, share in zip(chosen, shares, strict=True)]
    memory = divide_memory(need.memory_mib, shares)
    first = itertools.accumulate(shares, initial=0)
    guest_cells = tuple(
        GuestCell(cell.number, tuple(range(begin, begin + share)), mib)
        for cell, begin, share, mib in zip(chosen, first, shares, memory, strict=False)
    )
    cores = tuple(itertools.chain.from_iterable(taken))
    threads = _threads_per_core(chosen, taken)
    return GuestPlace(cores, () if rules.spread == "off" else guest_cells, threads)


def _choose_cells(cells: t.Sequence[Cell], room: t.Mapping[int, int], vcpus: int, near: int | None) -> list[Cell]:
    """Choose the fewest cells that hold a guest: the near one if there is one, then close to each other, then full."""
    cells = sorted(cells, key=lambda cell: (cell.number != near, cell.number))

    def order(some: tuple[Cell, ...]) -> tuple[bool, int, int, list[int]]:
        apart = sum(_distance(one, other) for one, other in itertools.combinations(some, 2))
        numbers = [cell.number for cell in some]
        return near is not None and near not in numbers, apart, sum(room[number] for number in numbers), numbers

    if len(cells) > MOST_CELLS_TRIED:
        return _grow(cells, room, vcpus)
    sets = itertools.chain.from_iterable(itertools.combinations(cells, count) for count in range(1, len(cells) + 1))
    fitting = [some for some in sets if sum(room[cell.number] for cell in some) >= vcpus]
    best = min((some for some in fitting if len(some) == len(fitting[0])), key=order)
    return list(best)


def _grow(cells: t.Sequence[Cell], room: t.Mapping[int, int], vcpus: int) -> list[Cell]:
    enough = [cell for cell in cells if room[cell.number] >= vcpus]
    if enough:
        return [min(enough, key=lambda cell: room[cell.number])]
    chosen = [max(cells, key=lambda cell: room[cell.number])]
    while sum(room[cell.number] for cell in chosen) < vcpus:
        others = [cell for cell in cells if cell not in chosen]
        chosen.append(min(others, key=lambda cell: (_distance(chosen[0], cell), -room[cell.number], cell.number)))
    return sorted(chosen, key=lambda cell: cell.number)


def _distance(one: Cell, other: Cell) -> int:
    default = DISTANCE_HERE if one.number == other.number else DISTANCE_THERE
    return one.distances.get(other.number, default)


def _share(vcpus: int, room: t.Sequence[int]) -> list[int]:
    """Divide vCPUs over cells: alike if there is room for it, else what does not fit goes where there is some."""
    shares = [0] * len(room)
    while (left := vcpus - sum(shares)) > 0:
        open_cells = [index for index, most in enumerate(room) if shares[index] < most]
        each = max(1, left // len(open_cells))
        for index in open_cells:
            more = min(each, room[index] - shares[index], vcpus - sum(shares))
            shares[index] += more
    return shares


def divide_memory(memory_mib: int, shares: t.Sequence[int], page_mib: int = 1) -> list[int]:
    """Divide memory as the vCPUs are, to the page: nothing is lost by rounding.

    Args:
        memory_mib: a multiple of a page.
        shares: vCPUs of each cell.
        page_mib: what is not divided.
    """
    total, ends = sum(shares), itertools.accumulate(shares)
    marks = [0, *(memory_mib // page_mib * end // total * page_mib for end in ends)]
    return [after - before for before, after in itertools.pairwise(marks)]


def _threads_per_core(cells: t.Sequence[Cell], taken: t.Sequence[cpus.Cores]) -> int:
    """How many vCPUs stand on each physical core; 1 where that differs."""
    counts = set()
    for cell, threads in zip(cells, taken, strict=True):
        for core in cell.cores:
            counts.add(len(set(core.threads).intersection(threads)))
    counts.discard(0)
    alike = len(counts) == 1
    number = counts.pop() if alike else 1
    # siblings are neighbours in the guest only if no vCPU is between them
    return number if all(len(threads) % number == 0 for threads in taken) else 1


def _too_few(needed: int, left: int, rank: int | None = None) -> UserFault:
    who = "the guests of this job" if rank is None else f"guest {rank + 1} of the job"
    why = f"need {needed} processors of their own, and the job has {left} left for them on this node"
    return UserFault(f"vcpu_pinning: {who}", why, "ask for more processors, fewer vCPUs, or vcpu_pinning=false")

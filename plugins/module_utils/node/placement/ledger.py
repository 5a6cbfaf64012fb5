# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that this node has promised to guests: no MiB twice, neither of a cell nor of a pool of huge pages.

A pure function of what the node has and of what it has promised.  Pages of a pool are part of the node's memory: what
is set apart in a pool is nobody's ordinary memory, and a guest of huge pages takes none but the pool's.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...errors import SiteFault, UserFault, VTorqueError
from ...frozen import frozen

PoolId = tuple[int, int]
"""The cell, and the size of its pages in KiB."""
_NAMES = {2048: "2M", 1048576: "1G"}


@frozen
class Pool:
    """Pages of one size that one cell has set apart.

    Attributes:
        total: how many there are.
        free: of these, those that nobody has.
    """

    total: int
    free: int


@frozen
class Memory:
    """What a node has.

    Attributes:
        total_mib: all of it.
        reserved_mib: the host's and the hypervisor's.
        cells: MiB of each cell, pools included.
        pools: of huge pages.
        spoken_for: pages in all cells of which the kernel has promised to somebody that they will be there, by KiB.
    """

    total_mib: int
    reserved_mib: int
    cells: t.Mapping[int, int]
    pools: t.Mapping[PoolId, Pool]
    spoken_for: t.Mapping[int, int]


@frozen
class Promise:
    """Memory of one guest.

    Attributes:
        ordinary_mib: that is in whatever cell the kernel takes.
        cells: MiB of ordinary memory that each cell must have.
        pages: huge pages that each pool must have.
        taken: whether the guest has the pages already, so that they are no longer free.
    """

    ordinary_mib: int = 0
    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    cells: t.Mapping[int, int] = dataclasses.field(default_factory=dict)
    pages: t.Mapping[PoolId, int] = dataclasses.field(default_factory=dict)
    taken: bool = False


def find_missing_pages(wanted: t.Sequence[Promise], others: t.Iterable[Promise], memory: Memory) -> dict[PoolId, int]:
    """Return how many pages each pool lacks for these guests.

    Args:
        wanted: of the guests of one start.
        others: of all others.
        memory: of the node.
    """
    coming: dict[PoolId, int] = {}
    for promise in others:
        # a guest that is about to start takes what it was promised, whatever of it is still free at this moment
        for pool, count in ({} if promise.taken else promise.pages).items():
            coming[pool] = coming.get(pool, 0) + count
    missing = {}
    for pool, count in _sum_pages(wanted).items():
        have = memory.pools.get(pool, Pool(0, 0)).free - coming.get(pool, 0) - memory.spoken_for.get(pool[1], 0)
        if count > have:
            missing[pool] = count - max(0, have)
    return missing


def check(
    wanted: t.Sequence[Promise], others: t.Sequence[Promise], memory: Memory, raised: t.Mapping[PoolId, int]
) -> None:
    """Check that the node has what these guests need besides what it has promised already.

    Args:
        wanted: of the guests of one start.
        others: of all others.
        memory: of the node, before its pools are raised.
        raised: by how many pages each pool is to be raised.

    Raises:
        UserFault: it never has so much.
        SiteFault: other guests have it.
    """
    pools = _pools_mib(memory, raised)
    for cell in sorted({cell for promise in wanted for cell in promise.cells} | {cell for cell, _kib in raised}):
        most = memory.cells.get(cell, 0) - pools.get(cell, 0)
        own = sum(promise.cells.get(cell, 0) for promise in wanted)
        of_others = sum(promise.cells.get(cell, 0) for promise in others)
        if own + of_others > most:
            huge = f"{pools[cell]} of its {memory.cells.get(cell, 0)} MiB are in huge pages" if pools.get(cell) else ""
            what = f"{own} MiB of ordinary memory in NUMA cell {cell}"
            if not own:
                what = f"huge pages in NUMA cell {cell}"
            why = f"{most - of_others if own else max(0, most)} MiB are free there for them" if own else huge
            raise _refusal(what, "; ".join(filter(None, (why, huge if own else ""))), of_others)
    most = memory.total_mib - memory.reserved_mib - sum(pools.values())
    own, of_others = sum_ordinary(wanted), sum_ordinary(others)
    if own + of_others > most:
        why = f"{max(0, most - of_others)} MiB are free, {sum(pools.values())} are in huge pages"
        raise _refusal(f"{own} MiB of ordinary memory", why, of_others)


def short_of(pool: PoolId, wanted: int, have: int, others: t.Iterable[Promise], why: str = "") -> VTorqueError:
    """Return the refusal of a start for whose guests a pool has too few pages.

    Args:
        pool: which.
        wanted: pages.
        have: of these, those that are free.
        others: promises to other guests.
        why: the pool was not raised.
    """
    cell, kib = pool
    taken = sum(promise.pages.get(pool, 0) for promise in others)
    text = f"{wanted} are wanted, {max(0, have)} are free" + (f"; {why}" if why else "")
    return _refusal(f"pages of {page_name(kib)} in NUMA cell {cell}", text, taken)


def page_name(kib: int) -> str:
    """Return what users call pages of a size."""
    return _NAMES.get(kib, f"{kib}K")


def _refusal(what: str, why: str, others: int) -> VTorqueError:
    if others:
        return SiteFault(what, f"{why}; guests of other jobs have the rest", "the job can run when they have ended")
    return UserFault(what, why, "ask for less, or see hugepages and numa in the user manual")


def sum_ordinary(promises: t.Iterable[Promise]) -> int:
    """Return how much ordinary memory was promised, in whatever cell: MiB.

    Args:
        promises: to guests.
    """
    return sum(promise.ordinary_mib + sum(promise.cells.values()) for promise in promises)


def _sum_pages(promises: t.Iterable[Promise]) -> dict[PoolId, int]:
    found: dict[PoolId, int] = {}
    for promise in promises:
        for pool, count in promise.pages.items():
            found[pool] = found.get(pool, 0) + count
    return found


def _pools_mib(memory: Memory, raised: t.Mapping[PoolId, int]) -> dict[int, int]:
    """MiB of each cell that are in its pools."""
    found: dict[int, int] = {}
    for cell, kib in {*memory.pools, *raised}:
        count = memory.pools.get((cell, kib), Pool(0, 0)).total + raised.get((cell, kib), 0)
        found[cell] = found.get(cell, 0) + count * kib // 1024
    return found

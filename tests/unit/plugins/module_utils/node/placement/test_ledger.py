# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that a node has promised: whatever comes and goes, no MiB is promised twice."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.ledger import (
    Memory,
    Pool,
    PoolId,
    Promise,
    check,
    find_missing_pages,
)
from hypothesis import given
from hypothesis import strategies as st

CELL_MIB = 1000
KIB = 2048


def memory(pools: dict[PoolId, Pool] | None = None, spoken_for: int = 0) -> Memory:
    return Memory(2 * CELL_MIB, 100, {0: CELL_MIB, 1: CELL_MIB}, pools or {}, {KIB: spoken_for})


def pages(count: int, cell: int = 0, *, taken: bool = False) -> Promise:
    return Promise(pages={(cell, KIB): count}, taken=taken)


@pytest.mark.parametrize(
    ("free", "others", "spoken_for", "missing"),
    [
        (50, [], 0, {}),
        (30, [], 0, {(0, KIB): 10}),
        (50, [pages(30)], 0, {(0, KIB): 20}),
        (50, [pages(30, taken=True)], 0, {}),
        (50, [pages(30, 1)], 0, {}),
        (50, [], 15, {(0, KIB): 5}),
        (10, [pages(30)], 0, {(0, KIB): 40}),
    ],
)
def test_missing_pages_are_those_that_are_neither_free_nor_promised(
    free: int, others: list[Promise], spoken_for: int, missing: dict[PoolId, int]
) -> None:
    pools = {(0, KIB): Pool(100, free), (1, KIB): Pool(100, 100)}
    assert find_missing_pages([pages(40)], others, memory(pools, spoken_for)) == missing


def test_memory_of_a_cell_is_refused_with_the_cell_and_what_is_free() -> None:
    pools = {(1, KIB): Pool(200, 200)}
    check([Promise(cells={1: 600})], [], memory(pools), {})
    with pytest.raises(UserFault, match=r"601 MiB of ordinary memory in NUMA cell 1: 600 MiB are free .* 400 of its"):
        check([Promise(cells={1: 601})], [], memory(pools), {})
    with pytest.raises(SiteFault, match=r"500 MiB are free there for them.*guests of other jobs"):
        check([Promise(cells={1: 501})], [Promise(cells={1: 100})], memory(pools), {})


def test_memory_of_the_node_is_what_is_beside_its_pools() -> None:
    pools = {(0, KIB): Pool(300, 0)}
    check([Promise(1300)], [], memory(pools), {})
    with pytest.raises(UserFault, match="1301 MiB of ordinary memory: 1300 MiB are free, 600 are in huge pages"):
        check([Promise(1301)], [], memory(pools), {})
    with pytest.raises(SiteFault, match="guests of other jobs"):
        check([Promise(1000)], [Promise(301)], memory(pools), {})


def test_pages_that_would_take_the_memory_of_others_are_not_raised() -> None:
    with pytest.raises(SiteFault, match="huge pages in NUMA cell 0"):
        check([pages(400)], [Promise(cells={0: 300})], memory({(0, KIB): Pool(0, 0)}), {(0, KIB): 400})
    with pytest.raises(SiteFault, match="ordinary memory"):
        check([pages(400)], [Promise(1101)], memory({(0, KIB): Pool(0, 0)}), {(0, KIB): 400})


GUESTS = st.one_of(
    st.builds(Promise, st.integers(1, 1500)),
    st.builds(lambda cell, mib: Promise(cells={cell: mib}), st.integers(0, 1), st.integers(1, 900)),
    st.builds(lambda one, other: Promise(cells={0: one, 1: other}), st.integers(1, 900), st.integers(1, 900)),
    st.builds(pages, st.integers(1, 450), st.integers(0, 1)),
)


@given(
    st.dictionaries(st.integers(0, 1), st.integers(0, 400)),
    st.lists(st.tuples(GUESTS, st.sampled_from(["comes", "starts", "ends"])), max_size=30),
)
def test_no_mib_is_promised_twice_whatever_comes_and_goes(
    at_boot: dict[int, int], events: list[tuple[Promise, str]]
) -> None:
    """Jobs with and without huge pages and cells side by side, as the node counts them."""
    total = {(cell, KIB): at_boot.get(cell, 0) for cell in (0, 1)}
    guests: list[tuple[Promise, dict[PoolId, int]]] = []
    for wanted, what in events:
        if what == "comes":
            have = {pool: 0 for pool in total}
            for promise, _raised in guests:
                for pool, count in promise.pages.items():
                    have[pool] += count if promise.taken else 0
            node = memory({pool: Pool(count, count - have[pool]) for pool, count in total.items()})
            others = [promise for promise, _raised in guests]
            try:
                missing = find_missing_pages([wanted], others, node)
                check([wanted], others, node, missing)
            except VTorqueError:
                continue
            for pool, count in missing.items():
                total[pool] += count
            guests.append((wanted, missing))
        elif what == "starts":
            guests = [(Promise(p.ordinary_mib, p.cells, p.pages, True), raised) for p, raised in guests]
        elif guests:
            _promise, raised = guests.pop(0)
            for pool, count in raised.items():
                total[pool] -= count
        assert_promises_kept(total, [promise for promise, _raised in guests])


def assert_promises_kept(total: dict[PoolId, int], guests: list[Promise]) -> None:
    """Each guest can have all it was promised at the same time as all others."""
    pools = {cell: total[cell, KIB] * 2 for cell in (0, 1)}
    for cell in (0, 1):
        assert sum(promise.pages.get((cell, KIB), 0) for promise in guests) <= total[cell, KIB]
        if any(promise.cells.get(cell) for promise in guests):
            assert sum(promise.cells.get(cell, 0) for promise in guests) + pools[cell] <= CELL_MIB
    ordinary = sum(promise.ordinary_mib + sum(promise.cells.values()) for promise in guests)
    if ordinary:
        assert ordinary + sum(pools.values()) <= 2 * CELL_MIB - 100

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores guests get: by examples, and by random nodes that no placement may break."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.place import (
    GuestCell,
    Need,
    Placement,
    Rules,
    place,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.topology import Cell, Core, Topology
from hypothesis import given
from hypothesis import strategies as st

SEVERAL = [(2, 4, 2, 1), (1, 2, 1, 1), (4, 3, 2, 3), (2, 8, 1, 2), (14, 2, 1, 1)]
"""Cells, cores of each, threads of each core, cores that share a cache."""


def node(cells: int, cores: int, threads: int, cache: int = 1) -> Topology:
    """A node as most are numbered: first threads of all cores, then their siblings."""
    total = cells * cores
    return Topology(
        tuple(
            Cell(
                cell,
                tuple(
                    Core(tuple(cell * cores + core + total * thread for thread in range(threads)), cell, core // cache)
                    for core in range(cores)
                ),
                8192,
                {4: 2097152},
                {other: 10 if other == cell else 21 for other in range(cells)},
            )
            for cell in range(cells)
        )
    )


def everywhere(topology: Topology, *needs: Need, rules: Rules | None = None) -> Placement:
    return place(topology, topology.threads, needs, rules or Rules())


def test_place_gives_siblings_to_neighbours_and_keeps_the_first_core_for_the_host() -> None:
    found = everywhere(node(1, 4, 2), Need(6, 6144))
    assert found.host == (0, 4)
    assert found.guests[0].cores == (1, 5, 2, 6, 3, 7)
    assert found.guests[0].threads == 2
    assert found.guests[0].cells == (GuestCell(0, (0, 1, 2, 3, 4, 5), 6144),)


def test_place_with_no_core_to_spare_takes_one_thread_for_the_host() -> None:
    found = everywhere(node(1, 2, 2), Need(3, 1024))
    assert found.host == (0,)
    assert sorted(found.guests[0].cores) == [1, 2, 3]
    assert found.guests[0].threads == 1


def test_place_with_one_vcpu_on_each_core_leaves_siblings_idle() -> None:
    found = everywhere(node(1, 4, 2), Need(3, 1024), rules=Rules(one_thread=True))
    assert found.guests[0].cores == (1, 2, 3)
    assert found.guests[0].threads == 1
    with pytest.raises(UserFault, match="need 4 processors of their own"):
        everywhere(node(1, 4, 2), Need(4, 1024), rules=Rules(one_thread=True))


def test_place_of_guests_that_fit_gives_each_a_cell() -> None:
    found = everywhere(node(2, 4, 1), Need(3, 1000), Need(3, 1000), rules=Rules(host_threads=2))
    assert [[cell.host_cell for cell in guest.cells] for guest in found.guests] == [[0], [1]]
    assert found.host == (0, 4)


def test_place_of_a_guest_that_needs_two_cells_divides_it_alike_and_memory_to_the_mib() -> None:
    found = everywhere(node(2, 4, 1), Need(6, 4097), rules=Rules(host_threads=2))
    first, second = found.guests[0].cells
    assert (first.vcpus, second.vcpus) == ((0, 1, 2), (3, 4, 5))
    assert (first.memory_mib, second.memory_mib) == (2048, 2049)
    assert found.guests[0].cores == (1, 2, 3, 5, 6, 7)


def test_place_in_one_cell_alone_is_refused_with_what_fits() -> None:
    with pytest.raises(UserFault, match="no NUMA cell has more than 4 left") as caught:
        everywhere(node(2, 4, 1), Need(6, 4096), rules=Rules(spread="1"))
    assert caught.value.hint == "numa=auto"


def test_place_without_cells_tells_none() -> None:
    assert everywhere(node(2, 4, 1), Need(6, 4096), rules=Rules(spread="off")).guests[0].cells == ()


def test_place_near_a_device_takes_its_cell_first() -> None:
    found = everywhere(node(2, 4, 1), Need(2, 1024), rules=Rules(near=1, io_threads=1))
    assert [cell.host_cell for cell in found.guests[0].cells] == [1]
    assert found.io == (4,)


def test_place_gives_each_guest_the_cell_of_its_own_device() -> None:
    found = everywhere(node(2, 4, 1), Need(2, 1024, near=1), Need(2, 1024, near=0), rules=Rules(host_threads=0))
    assert [[cell.host_cell for cell in guest.cells] for guest in found.guests] == [[1], [0]]


def test_place_of_a_guest_that_its_devices_cell_cannot_hold_is_elsewhere() -> None:
    topology = node(2, 4, 1)
    found = place(topology, (0, 1, 2, 4), [Need(3, 1024, near=1)], Rules(host_threads=0))
    assert [cell.host_cell for cell in found.guests[0].cells] == [0]


def test_place_keeps_a_guest_on_one_cache_where_one_holds_it() -> None:
    found = everywhere(node(1, 8, 1, cache=4), Need(4, 1024), rules=Rules(host_threads=1))
    assert found.guests[0].cores == (4, 5, 6, 7)


def test_place_prefers_cells_that_are_close() -> None:
    far = {0: {0: 10, 1: 40, 2: 40, 3: 20}, 1: {0: 40, 1: 10, 2: 20, 3: 40}}
    cells = node(4, 2, 1).cells
    topology = Topology(
        tuple(
            Cell(cell.number, cell.cores, cell.memory_mib, cell.pages, far.get(cell.number, cell.distances))
            for cell in cells
        )
    )
    found = everywhere(topology, Need(3, 1024), rules=Rules(host_threads=0))
    assert [cell.host_cell for cell in found.guests[0].cells] == [0, 3]


def test_place_on_a_core_that_the_node_has_not_is_refused() -> None:
    with pytest.raises(UserFault, match="this node has no processor 99"):
        place(node(1, 2, 1), (0, 99), [Need(1, 512)], Rules())


def test_place_with_too_few_cores_says_how_many_are_needed() -> None:
    with pytest.raises(UserFault, match="need 5 processors of their own, and the job has 4 left"):
        everywhere(node(1, 4, 1), Need(4, 512))


@given(
    shape=st.sampled_from(SEVERAL),
    vcpus=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    memory_mib=st.integers(256, 9999),
    host=st.integers(0, 3),
    io=st.integers(0, 2),
    one_thread=st.booleans(),
    near=st.none() | st.integers(0, 3),
    data=st.data(),
)
def test_place_keeps_its_promises_on_any_node(
    shape: tuple[int, int, int, int], vcpus: list[int], memory_mib: int, host: int, io: int, one_thread: bool,
    near: int | None, data: st.DataObject,
) -> None:  # fmt: skip
    topology = node(*shape)
    job = data.draw(st.sets(st.sampled_from(sorted(topology.threads)), min_size=1))
    rules = Rules(host, io, one_thread, near=near)
    needs = [Need(number, memory_mib) for number in vcpus]
    try:
        found = place(topology, job, needs, rules)
    except UserFault:
        # one thread of each core may not be enough where the processors are
        assert one_thread or len(job) < sum(vcpus) + host + io
        return
    taken = [*found.host, *found.io, *(core for guest in found.guests for core in guest.cores)]
    assert len(taken) == len(set(taken))
    assert job.issuperset(taken)
    assert len(found.host) >= host
    assert len(found.io) >= io
    cores = [core for cell in topology.cells for core in cell.cores]
    of_cell = {thread: cell.number for cell in topology.cells for core in cell.cores for thread in core.threads}
    for guest, need in zip(found.guests, needs, strict=True):
        assert len(guest.cores) == need.vcpus
        assert sum(cell.memory_mib for cell in guest.cells) == memory_mib
        assert [vcpu for cell in guest.cells for vcpu in cell.vcpus] == list(range(need.vcpus))
        for cell in guest.cells:
            assert {of_cell[guest.cores[vcpu]] for vcpu in cell.vcpus} == {cell.host_cell}
        if guest.threads > 1:
            groups = [guest.cores[i : i + guest.threads] for i in range(0, need.vcpus, guest.threads)]
            assert all(any(set(group) <= set(core.threads) for core in cores) for group in groups)
        if one_thread:
            assert all(
                len(set(core.threads).intersection(taken) - set(found.host) - set(found.io)) <= 1 for core in cores
            )

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest shows of the cores it stands on: by examples, and on random nodes."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.cells import Shape, mirror
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.place import (
    GuestCell,
    Need,
    Rules,
    place,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.topology import Core, Topology
from hypothesis import given
from hypothesis import strategies as st

from .test_place import node


def pins(*vcpus: int, others: tuple[int, ...] = (0,)) -> Pins:
    return Pins(tuple((core,) for core in vcpus), others)


def changed(topology: Topology, cell: int, **changes: t.Any) -> Topology:
    cells = [dataclasses.replace(one, **changes) if one.number == cell else one for one in topology.cells]
    return Topology(tuple(cells))


def test_mirror_of_two_cells_shows_sockets_distances_and_memory_in_proportion() -> None:
    shape = mirror(pins(1, 2, 3, 4), node(2, 4, 1), 4096, "auto")
    assert shape.cells == (GuestCell(0, (0, 1, 2), 3072), GuestCell(1, (3,), 1024))
    assert shape.distances == ((10, 21), (21, 10))
    assert (shape.sockets, shape.cores, shape.threads) == (1, 4, 1)  # sockets of three and of one cannot be had
    alike = mirror(pins(2, 3, 4, 5), node(2, 4, 1), 4096, "auto")
    assert (alike.sockets, alike.cores, alike.threads, alike.dedicated) == (2, 2, 1, True)
    assert alike.host_cells == "0-1"


def test_mirror_of_siblings_shows_threads() -> None:
    shape = mirror(pins(1, 5, 2, 6), node(1, 4, 2), 64, "auto")
    assert (shape.sockets, shape.cores, shape.threads) == (1, 2, 2)
    assert mirror(pins(1, 2, 5, 6), node(1, 4, 2), 64, "auto").threads == 1
    assert mirror(pins(1, 5, 2), node(1, 4, 2), 64, "auto").threads == 1


def test_mirror_of_one_cell_has_no_distances() -> None:
    shape = mirror(pins(1, 2), node(2, 4, 1), 64, "1")
    assert (shape.cells, shape.distances) == ((GuestCell(0, (0, 1), 64),), ())


def test_mirror_within_one_cell_of_cores_in_two_is_refused() -> None:
    with pytest.raises(UserFault, match=r"numa=1: .* stands on the NUMA cells 0, 1"):
        mirror(pins(1, 4), node(2, 4, 1), 64, "1")


def test_mirror_without_cells_shows_none_and_still_says_that_cores_are_its_own() -> None:
    shape = mirror(pins(1, 4), node(2, 4, 1), 64, "off", 2)
    assert (shape.cells, shape.page_kib, shape.dedicated) == ((), 0, True)


@pytest.mark.parametrize(
    "shared",
    [Pins(((1, 2), (3,)), (0,)), Pins(((1,), (2,)), (0, 1))],
    ids=["a vCPU with two cores", "other threads on a vCPU's core"],
)
def test_mirror_of_cores_that_are_shared_is_not_dedicated(shared: Pins) -> None:
    assert not mirror(shared, node(1, 4, 1), 64, "auto").dedicated


def test_mirror_of_a_vcpu_on_cores_of_two_cells_has_no_cells() -> None:
    assert mirror(Pins(((1, 4), (2,)), (0,)), node(2, 4, 1), 64, "auto").cells == ()


def test_mirror_takes_memory_of_the_nearest_cell_that_has_some() -> None:
    shape = mirror(pins(1, 4), changed(node(3, 4, 1), 0, memory_mib=0, distances={0: 10, 1: 31, 2: 12}), 64, "auto")
    assert [cell.host_cell for cell in shape.cells] == [2, 1]


def test_mirror_of_a_node_whose_firmware_says_odd_distances_keeps_to_what_libvirt_takes() -> None:
    shape = mirror(pins(1, 4), changed(node(2, 4, 1), 0, distances={0: 10, 1: 255}), 64, "auto")
    assert shape.distances == ((10, 254), (21, 10))
    assert mirror(pins(1, 4), changed(node(2, 4, 1), 0, distances={1: 10}), 64, "auto").distances[0] == (10, 11)


def test_mirror_in_pages_divides_no_page() -> None:
    shape = mirror(pins(1, 2, 3, 4), node(2, 4, 1), 66, "auto", 2)
    assert [cell.memory_mib for cell in shape.cells] == [48, 18]
    assert shape.page_kib == 2048
    with pytest.raises(UserFault, match="1024 MiB are not one page of 1024 MiB for each of its 2 NUMA cells"):
        mirror(pins(1, 4), node(2, 4, 1), 1024, "auto", 1024)


def test_mirror_of_a_core_that_the_node_has_not_is_refused() -> None:
    with pytest.raises(UserFault, match="no processor 99"):
        mirror(pins(99), node(1, 4, 1), 64, "auto")


@given(
    cells=st.integers(1, 4),
    cores=st.integers(1, 6),
    threads=st.integers(1, 2),
    vcpus=st.integers(1, 12),
    pages=st.sampled_from([1, 2]),
    data=st.data(),
)
def test_mirror_keeps_its_promises_on_any_node(
    cells: int, cores: int, threads: int, vcpus: int, pages: int, data: st.DataObject
) -> None:
    topology = node(cells, cores, threads)
    job = data.draw(st.sets(st.sampled_from(sorted(topology.threads)), min_size=1))
    ram = 2 * data.draw(st.integers(200, 5000))
    try:
        found = place(topology, job, [Need(vcpus, ram)], Rules(spread="auto"))
    except UserFault:
        return
    shape = mirror(Pins(tuple((core,) for core in found.guests[0].cores), found.host), topology, ram, "auto", pages)
    assert shape.sockets * shape.cores * shape.threads == vcpus
    assert sorted(vcpu for cell in shape.cells for vcpu in cell.vcpus) == list(range(vcpus))
    assert sum(cell.memory_mib for cell in shape.cells) == ram
    assert sum(shape.memory_by_cell.values()) == ram
    assert_siblings(shape, found.guests[0].cores, topology)
    for cell in shape.cells:
        assert cell.memory_mib % pages == 0
        assert abs(cell.memory_mib - ram * len(cell.vcpus) / vcpus) < 2 * pages


def assert_siblings(shape: Shape, cores: tuple[int, ...], topology: Topology) -> None:
    """Threads of a core of the guest's are threads of one core of the node's."""
    homes: dict[int, Core] = {thread: core for cell in topology.cells for core in cell.cores for thread in core.threads}
    for first in range(0, len(cores), shape.threads):
        assert len({homes[core] for core in cores[first : first + shape.threads]}) == 1

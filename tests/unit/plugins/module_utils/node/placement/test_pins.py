# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores guests get: of the job's, by the node's choice or the user's map, and none twice."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import (
    CoreShare,
    Pins,
    assign,
    assign_shared,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, from_dict, to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import GuestSpec
from hypothesis import given
from hypothesis import strategies as st

from ..conftest import spec
from .test_place import node

EIGHT = node(1, 8, 1)


def guests(*vcpu_cores: str, vcpus: int = 2, other: str = "") -> tuple[GuestSpec, ...]:
    return tuple(
        dataclasses.replace(spec(index), index=index, vcpus=vcpus, vcpu_cores=text, other_cores=other)
        for index, text in enumerate(vcpu_cores)
    )


def assigned(*vcpu_cores: str, cores: t.Sequence[int] = range(8), reserved: int = 1, **more: t.Any) -> tuple[Pins, ...]:
    taken = more.pop("taken", ())
    return assign(guests(*vcpu_cores, **more), CoreShare(EIGHT, tuple(cores), taken, reserved))


def test_assign_gives_each_vcpu_a_core_and_other_threads_the_hosts_share() -> None:
    assert assigned("auto", "auto") == (Pins(((1,), (2,)), (0,)), Pins(((3,), (4,)), (0,)))


def test_assign_where_the_site_reserves_nothing_takes_a_core_for_other_threads_only_where_one_is_left() -> None:
    assert assigned("auto", cores=(2, 3, 5), reserved=0) == (Pins(((3,), (5,)), (2,)),)
    assert assigned("auto", cores=(2, 3), reserved=0) == (Pins(((2,), (3,)), (2, 3)),)


def test_assign_leaves_alone_what_other_guests_have() -> None:
    assert assigned("auto", taken=(0, 2)) == (Pins(((3,), (4,)), (1,)),)
    with pytest.raises(UserFault, match="need 3 processors of their own, and the job has 2 left"):
        assigned("auto", taken=range(6))


def test_assign_by_a_map_counts_in_the_jobs_own_list() -> None:
    assert assigned("1;2,3", cores=(1, 4, 5, 7)) == (Pins(((4,), (5, 7)), (1,)),)
    assert assigned("0;1", "3;2", other="4", cores=range(1, 8)) == (
        Pins(((1,), (2,)), (5,)), Pins(((4,), (3,)), (5,)),
    )  # fmt: skip


def test_assign_by_a_map_of_all_cores_lets_other_threads_share_them() -> None:
    assert assigned("0;1", cores=(2, 3), reserved=0) == (Pins(((2,), (3,)), (2, 3)),)


@pytest.mark.parametrize(
    ("texts", "more", "why"),
    [
        (["0"], {}, "names 1 vCPUs of guest 0, which has 2"),
        (["0;8"], {}, "core 8 is given to vCPU 1 of guest 0, and the job has 8 cores on this node, 0 to 7"),
        (["1;1"], {}, "core 1 is given to vCPU 0 of guest 0 and to vCPU 1 of guest 0"),
        (["1;2", "3;1"], {}, "core 1 is given to vCPU 0 of guest 0 and to vCPU 1 of guest 1"),
        (["1;2"], {"other": "0,2"}, "core 2 is given to vCPU 1 of guest 0 and to the emulator"),
        (["1;2"], {"other": "9"}, "core 9 is given to the emulator"),
        (["1;2"], {"taken": (2,)}, "core 2 is given to vCPU 1 of guest 0, and a guest of another job has it"),
        (["0;1"], {"cores": (2, 3)}, "vCPUs get 2 of the job's 2 cores, and 1 are kept for the host"),
    ],
)
def test_assign_by_a_map_that_does_not_fit_is_the_users_fault(
    texts: list[str], more: dict[str, t.Any], why: str
) -> None:
    with pytest.raises(UserFault, match=why):
        assigned(*texts, **more)


@given(
    cells=st.integers(1, 2),
    cores=st.integers(1, 4),
    threads=st.integers(1, 2),
    count=st.integers(1, 3),
    vcpus=st.integers(1, 4),
    reserved=st.integers(0, 2),
    data=st.data(),
)
def test_assign_never_gives_a_core_twice_nor_one_that_is_not_the_jobs(
    cells: int, cores: int, threads: int, count: int, vcpus: int, reserved: int, data: st.DataObject
) -> None:  # fmt: skip
    topology = node(cells, cores, threads)
    job = sorted(data.draw(st.sets(st.sampled_from(sorted(topology.threads)), min_size=1)))
    taken = data.draw(st.sets(st.sampled_from(job), max_size=2))
    try:
        found = assign(guests(*["auto"] * count, vcpus=vcpus), CoreShare(topology, tuple(job), taken, reserved))
    except UserFault:
        assert len(job) - len(taken) < count * vcpus + reserved
        return
    given_away = [core for pins in found for own in pins.vcpus for core in own]
    assert len(given_away) == len(set(given_away)) == count * vcpus
    others = {core for pins in found for core in pins.others}
    assert {*given_away, *others} <= {*job} - taken
    if reserved or len(job) - len(taken) > count * vcpus:
        assert others.isdisjoint(given_away)


@pytest.mark.parametrize("text", ["auto ", "0;", ";0", "0,,1", "0-3", "<vcpupin/>", "0;1\n", "12345", "AUTO"])
def test_guest_spec_with_another_form_of_cores_is_not_read(text: str) -> None:
    data = to_dict(dataclasses.replace(spec(), vcpu_cores=text))
    with pytest.raises(FormError, match="vcpu_cores"):
        from_dict(GuestSpec, {**data, "host_key": to_dict(spec().host_key)})


# cores for virtual I/O


def io_guests(vcpu_cores: str, least: int = 1, most: int = 4, count: int = 1, **more: t.Any) -> tuple[GuestSpec, ...]:
    made = guests(*(vcpu_cores,) * count, **more)
    return tuple(dataclasses.replace(one, io_min=least, io_max=most, io_required=True) for one in made)


@pytest.mark.parametrize(
    ("cores", "reserved", "pins"),
    [
        (range(8), 1, Pins(((5,), (6,)), (1, 2, 3, 4), 1)),
        (range(4), 1, Pins(((2,), (3,)), (1,), 1)),
        (range(5), 1, Pins(((3,), (4,)), (1, 2), 1)),
        (range(3), 0, Pins(((1,), (2,)), (0,), 1)),
    ],
    ids=["all that it may have", "the least", "what is left", "none for the host"],
)
def test_assign_gives_virtual_io_cores_that_are_no_vcpus(cores: range, reserved: int, pins: Pins) -> None:
    assert assign(io_guests("auto"), CoreShare(EIGHT, tuple(cores), (), reserved)) == (pins,)
    assert not set(pins.io) & {core for own in pins.vcpus for core in own}


def test_assign_of_several_guests_gives_all_of_them_the_same_cores_for_virtual_io() -> None:
    found = assign(io_guests("auto", most=2, count=2), CoreShare(EIGHT, tuple(range(8)), (), 1))
    assert found == (Pins(((3,), (4,)), (1, 2), 1), Pins(((5,), (6,)), (1, 2), 1))


def test_assign_takes_none_of_another_jobs_cores_for_virtual_io() -> None:
    (pins,) = assign(io_guests("auto"), CoreShare(EIGHT, tuple(range(8)), (1, 2, 3), 1))
    assert pins == Pins(((6,), (7,)), (4, 5), 1)


def test_assign_takes_cores_for_virtual_io_near_the_card() -> None:
    two = node(2, 4, 1)
    (pins,) = assign(io_guests("auto", most=2), CoreShare(two, tuple(range(8)), (), 1, near=1))
    (cell,) = (cell for cell in two.cells if cell.number == 1)
    assert set(pins.io) <= {core for one in cell.cores for core in one.threads}


@pytest.mark.parametrize(
    ("cores", "least", "why"),
    [
        (3, 1, "virtual I/O wants 1 of the job's 3 cores on this node, besides 2 for vCPUs and 1 for the host"),
        (8, 6, "virtual I/O wants 6 of the job's 8 cores"),
    ],
)
def test_assign_where_the_share_is_too_small_for_virtual_io_is_the_users_fault(
    cores: int, least: int, why: str
) -> None:
    with pytest.raises(UserFault, match=why):
        assign(io_guests("auto", least, most=8), CoreShare(EIGHT, tuple(range(cores)), (), 1))


def test_assign_by_a_map_gives_virtual_io_what_the_map_leaves_or_its_line() -> None:
    assert assign(io_guests("1;2", most=3), CoreShare(EIGHT, tuple(range(8)), (), 1)) == (
        Pins(((1,), (2,)), (3, 4, 5), 1),
    )
    with_line = io_guests("1;2", most=3, other="6,7")
    assert assign(with_line, CoreShare(EIGHT, tuple(range(8)), (), 1)) == (Pins(((1,), (2,)), (6, 7), 1),)
    with pytest.raises(UserFault, match="virtual I/O wants 3"):
        assign(io_guests("1;2", least=3, other="6,7"), CoreShare(EIGHT, tuple(range(8)), (), 1))


def test_assign_shared_lets_vcpus_share_what_virtual_io_does_not_use() -> None:
    (pins,) = assign_shared(io_guests("", most=3), CoreShare(EIGHT, tuple(range(6)), (), 1))
    assert pins == Pins(((2, 3, 4, 5),) * 2, (1, 2, 3), 1)
    assert pins.with_io(1) == Pins(((2, 3, 4, 5),) * 2, (1,), 1)
    assert pins.with_io(3) == Pins(((4, 5),) * 2, (1, 2, 3), 1)


def test_assign_shared_leaves_vcpus_a_core_in_any_case() -> None:
    (pins,) = assign_shared(io_guests("", most=9), CoreShare(EIGHT, (4, 5, 6), (), 0))
    assert [pins.with_io(count).vcpus for count in (1, 2, 9)] == [((5, 6),) * 2, ((6,),) * 2, ((6,),) * 2]
    with pytest.raises(UserFault, match="virtual I/O wants 2 of the job's 2 cores"):
        assign_shared(io_guests("", least=2), CoreShare(EIGHT, (4, 5), (), 0))


def test_with_io_of_other_guests_is_themselves() -> None:
    pins = Pins(((1,), (2,)), (0, 3))
    assert (pins.io, pins.with_io(1)) == ((), pins)


@given(cores=st.integers(1, 16), reserved=st.integers(0, 3), least=st.integers(1, 6), more=st.integers(0, 6))
def test_cores_for_virtual_io_are_within_their_bounds_and_never_a_vcpus_own(
    cores: int, reserved: int, least: int, more: int
) -> None:
    asked = io_guests("auto", least, least + more, vcpus=2)
    place = node(1, 16, 1)
    for function in (assign, assign_shared):
        try:
            (pins,) = function(asked, CoreShare(place, tuple(range(cores)), (), reserved))
        except UserFault:
            assert cores < reserved + least + 2
            continue
        assert least <= len(pins.io) <= least + more
        assert set(pins.cores) <= set(range(cores))
        for count in range(least, len(pins.io) + 1):
            now = pins.with_io(count)
            assert all(now.vcpus)
            assert not set(now.others) & {core for own in now.vcpus for core in own}

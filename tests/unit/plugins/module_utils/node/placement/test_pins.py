# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores guests get: of the job's, by the node's choice or the user's map, and none twice."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins, assign
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
    return assign(guests(*vcpu_cores, **more), EIGHT, tuple(cores), taken, reserved)


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
        found = assign(guests(*["auto"] * count, vcpus=vcpus), topology, tuple(job), taken, reserved)
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

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's map of vCPUs: what it says, and what is refused of it, line by line."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import vcpu_map
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.vcpu_map import MapErrors, check, read
from hypothesis import given
from hypothesis import strategies as st

GOOD = b"""# where my vCPUs run
0 0: 1
0 1 : 2, 4-5   # three cores
1\t0:3

1 1: 6
emulator: 0
"""


def faults(content: bytes) -> list[str]:
    with pytest.raises(MapErrors) as caught:
        read(content, "/home/alice/map")
    return [str(fault) for fault in caught.value.faults]


def test_read_of_a_map_gives_the_cores_of_each_vcpu_as_data() -> None:
    found = read(GOOD, "map")
    assert [found.cores_of(guest, 2) for guest in (0, 1)] == ["1;2,4,5", "3;6"]
    assert (found.other_cores, found.used, found.highest) == ("0", 6, 6)
    check(found, "map", 2, 2)


def test_read_without_guests_means_the_first_one() -> None:
    found = read(b"0: 3\n1: 2", "map")
    assert (found.cores_of(0, 2), found.other_cores, found.highest) == ("3;2", "", 3)
    check(found, "map", 1, 2)
    assert vcpu_map.describe(found) == (
        "vCPU 0 on 3, vCPU 1 on 2; other threads on what is left; cores count in the job's, 0 first"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no vCPU"),
        (b"# nothing\n\n", "holds no vCPU"),
        (b"<vcpupin vcpu='0' cpuset='1'/>", "line 1: .*XML is not read here: 'VCPU: CORES'"),
        (b"0: 1\n0: <!-- 2 -->", "line 2: .*no list of cores"),
        (b"0: 1'/><emulatorpin cpuset='0", "line 1: .*no list of cores"),
        (b"0: 1\n0: 2", "line 2: vCPU 0 of guest 0 stands in line 1 already"),
        (b"0: 1\n0 0: 2", "line 2: vCPU 0 of guest 0 stands in line 1 already"),
        (b"0: 1\n1: 1", "line 2: core 1 is given away in line 1 already"),
        (b"0: 1,1", "line 1: core 1 is given away here already"),
        (b"0: 1\nemulator: 0-1", "line 2: core 1 is given away in line 1 already"),
        (b"emulator: 0\nemulator: 1\n0: 2", "line 2: emulator stands in line 1 already"),
        (b"0:", "line 1: '' is no list of cores"),
        (b"0: 1,", "line 1: '1,' is no list of cores"),
        (b"0: -1", "no list of cores"),
        (b"0: 4096", "no list of cores from 0 to 4095"),
        (b"0: 99999999999999999999", "no list of cores"),
        (b"0: 3-1", "between 1 and 256 cores are due"),
        (b"0: 0-4095", "between 1 and 256 cores are due"),
        (b"0: 0-4095" + b",0-4095" * 8000, "between 1 and 256 cores are due"),
        (b"99999999: 1", "no guest or vCPU has such a number"),
        (b"io: 1", "is due"),
        (b"node cn1", "is due"),
        (b"0 0 0: 1", "is due"),
        (b"0: 1\n\xff", "line 2: holds what is no ASCII"),
        (b"0: \xc2\xb2", "line 1: holds what is no ASCII"),
        (b"0: 1\n" * 4096, "4097 lines, at most 4096 are read"),
        (b"#" * (1 << 20), "longer than 64 KiB"),
    ],
)  # fmt: skip
def test_read_of_what_is_no_map_is_refused_with_its_line(content: bytes, message: str) -> None:
    with pytest.raises(MapErrors, match=message) as caught:
        read(content, "/home/alice/map")
    assert str(caught.value).startswith("vcpu_pinning /home/alice/map: ")
    assert len(str(caught.value)) < 1000


def test_read_names_all_that_is_wrong_at_once() -> None:
    assert len(faults(b"0: x\n1: 1\n1: 2\nio: 1\n")) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0: 1\n", "vCPU 1 of guest 0 is missing"),
        (b"0: 1\n1: 2\n2: 3\n", "line 3: there is no vCPU 2: each guest has 2, from 0"),
        (b"0: 1\n1: 2\n1 0: 3\n", "line 3: there is no guest 1: each node has 1, from 0"),
    ],
)
def test_check_of_a_map_of_other_guests_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(MapErrors, match=message):
        check(read(content, "map"), "map", 1, 2)


@given(st.binary(max_size=200) | st.text("0123456789:,- #emulator<>\n", max_size=200).map(str.encode))
def test_read_of_anything_gives_a_map_without_doubles_or_a_refusal(content: bytes) -> None:
    try:
        found = read(content, "map")
    except MapErrors:
        return
    given_away = [core for cores in found.vcpus.values() for core in cores] + list(found.emulator)
    assert given_away
    assert len(given_away) == len(set(given_away))
    assert max(given_away) == found.highest <= vcpu_map.HIGHEST

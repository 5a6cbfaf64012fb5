# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of cores, a cpuset of the MOM's wherever it lies, and the node's cores without the host's."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import cpus
from hypothesis import given
from hypothesis import strategies as st

JOB = "72[1].head"


@given(st.sets(st.integers(0, 300)))
def test_cpu_list_is_read_as_it_was_written(some: set[int]) -> None:
    assert cpus.read(cpus.format_cores(tuple(sorted(some)))) == tuple(sorted(some))


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("\n", ()), ("2,0-1,1", (0, 1, 2))]
)
def test_lists_as_the_kernel_writes_them(text: str, expected: tuple[int, ...]) -> None:
    assert cpus.read(text) == expected


@pytest.mark.parametrize("text", ["all", "0-", "-1", "0;1", "1,,2", "٣"])
def test_text_that_is_no_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of cores"):
        cpus.read(text)


@pytest.mark.parametrize(
    ("mount", "files"),
    [
        ("cgroup {} cgroup rw,relatime,cpuset 0 0", {"cpuset.cpus": "1-2\n"}),
        ("cgroup {} cgroup rw,relatime,cpuset,noprefix 0 0", {"cpus": "1-2\n"}),
        ("none {} cpuset rw,relatime 0 0", {"cpus": "1-2\n"}),
        ("cgroup2 {} cgroup2 rw 0 0", {"cpuset.cpus": "1-2\n", "cpuset.cpus.effective": "1-2\n"}),
        ("cgroup2 {} cgroup2 rw 0 0", {"cpuset.cpus": "\n", "cpuset.cpus.effective": "1-2\n"}),
    ],
    ids=["version 1", "without a prefix", "of old", "version 2", "inherited"],
)
def test_cpuset_of_the_mom_is_found(tmp_path: pathlib.Path, mount: str, files: dict[str, str]) -> None:
    place = tmp_path / "a place"
    group = place / "torque" / JOB
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / name).write_text(text)
    mounts = tmp_path / "mounts"
    written = str(place).replace(" ", "\\040")
    mounts.write_text(f"proc /proc proc rw 0 0\ncgroup /x cgroup rw,memory 0 0\n{mount.format(written)}\n")
    assert cpus.of_mom(JOB, mounts) == (1, 2)
    assert cpus.of_mom("72[2].head", mounts) == ()
    assert cpus.of_mom("72", mounts) == ()


def test_cpuset_that_does_not_tell_is_an_error(tmp_path: pathlib.Path) -> None:
    group = tmp_path / "torque" / JOB
    group.mkdir(parents=True)
    (group / "cpuset.cpus").write_text("nonsense\n")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup {tmp_path} cgroup rw,cpuset 0 0\n")
    with pytest.raises(SiteFault, match="cores are not known"):
        cpus.of_mom(JOB, mounts)


@pytest.mark.parametrize(("stored", "left"), [(0, (0, 1, 4)), (1, (1, 4)), (2, (4,))])
def test_hosts_cores_are_the_first(tmp_path: pathlib.Path, stored: int, left: tuple[int, ...]) -> None:
    online = tmp_path / "online"
    online.write_text("0-1,4\n")
    assert cpus.of_node(stored, online) == left


def test_host_that_keeps_all_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    online = tmp_path / "online"
    online.write_text("0-1\n")
    with pytest.raises(SiteFault, match=r"host_os_core_count: 2.*keeps all of this node's 2"):
        cpus.of_node(2, online)


def test_cores_of_this_machine_are_found() -> None:
    assert set(os.sched_getaffinity(0)) <= set(cpus.of_node(0))


@pytest.fixture
def groups(tmp_path: pathlib.Path) -> pathlib.Path:
    """What is mounted: a hierarchy with the groups of two jobs, and one without cpusets."""
    for name, text in {"slurm_n1/uid_7/job_4": "2-3\n", "slurm_n1/uid_8/job_41": "0\n"}.items():
        (tmp_path / name / "step_0").mkdir(parents=True)
        (tmp_path / name / "cpuset.cpus").write_text(text)
    (tmp_path / "mounts").write_text(f"cgroup {tmp_path}/none cgroup rw,cpuset 0 0\ncgroup {tmp_path} cgroup2 rw 0 0\n")
    return tmp_path / "mounts"


@pytest.mark.parametrize(
    ("pattern", "cores"),
    [("slurm*/uid_*/job_4", (2, 3)), ("slurm*/uid_*/job_41", (0,)), ("slurm*/uid_*/job_1", ()), ("slurm*/uid_7", ())],
)
def test_group_of_a_job_is_found_by_its_pattern(groups: pathlib.Path, pattern: str, cores: tuple[int, ...]) -> None:
    assert cpus.of_groups(("other/*", pattern), groups) == cores


@pytest.mark.parametrize(
    ("reserved", "count", "cores"),
    [(0, 1, (1,)), (0, 3, (1, 4, 5)), (2, 1, (4,)), (2, 3, (1, 4, 5)), (2, 9, (1, 4, 5))],
)
def test_cores_that_no_job_has_are_for_who_has_none_yet(
    groups: pathlib.Path, tmp_path: pathlib.Path, reserved: int, count: int, cores: tuple[int, ...]
) -> None:
    (tmp_path / "online").write_text("0-5\n")
    assert cpus.unassigned_cores(("slurm*/uid_*/job_*",), reserved, count, groups, tmp_path / "online") == cores


def test_where_jobs_have_all_cores_guests_boot_on_any(groups: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "online").write_text("0,2-3\n")
    assert cpus.unassigned_cores(("slurm*/uid_*/job_*",), 1, 1, groups, tmp_path / "online") == (2, 3)

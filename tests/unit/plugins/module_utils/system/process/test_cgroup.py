# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hook leaves the cgroups of its job, and no others."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import cgroup

JOB = "72[1].head"
V1 = "34 29 0:31 / {0}/{1} rw,nosuid shared:9 - cgroup cgroup rw,{1}\n"


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> pathlib.Path:
    """What /proc/self says, and hierarchies of which it speaks."""
    for controller in ("memory", "cpuset"):
        (tmp_path / controller / "torque" / JOB).mkdir(parents=True)
    for name, text in (("cpuset.cpus", "0-7"), ("cpuset.mems", "0")):
        (tmp_path / "cpuset" / name).write_text(f"{text}\n")
    place = tmp_path / "proc"
    place.mkdir()
    mounts = "25 1 0:22 / /proc rw - proc proc rw\n" + "".join(
        V1.format(tmp_path, name) for name in ("memory", "cpuset")
    )
    (place / "mountinfo").write_text(mounts)
    return place


def groups(proc: pathlib.Path, *lines: str) -> None:
    (proc / "cgroup").write_text("".join(f"{line}\n" for line in lines))


def joined(place: pathlib.Path) -> bool:
    return (place / "cgroup.procs").read_text() == str(os.getpid())


def test_a_hook_in_the_jobs_cgroups_goes_beside_them(proc: pathlib.Path, tmp_path: pathlib.Path) -> None:
    groups(proc, f"4:memory:/torque/{JOB}", f"3:cpuset:/torque/{JOB}/R0.t1", "1:name=systemd:/system.slice/pbs.service")
    # as the kernel makes them
    (tmp_path / "cpuset/vtorque").mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cpuset/vtorque" / name).write_text("\n")
    assert cgroup.leave_job(JOB, str(proc)) == ""
    assert joined(tmp_path / "memory/vtorque")
    assert joined(tmp_path / "cpuset/vtorque")
    assert (tmp_path / "cpuset/vtorque/cpuset.cpus").read_text() == "0-7"


def test_cgroup_that_a_site_set_for_hooks_stays(proc: pathlib.Path, tmp_path: pathlib.Path) -> None:
    groups(proc, f"3:cpuset:/torque/{JOB}")
    (tmp_path / "cpuset/vtorque").mkdir()
    (tmp_path / "cpuset/vtorque/cpuset.cpus").write_text("3\n")
    assert cgroup.leave_job(JOB, str(proc)) == ""
    assert (tmp_path / "cpuset/vtorque/cpuset.cpus").read_text() == "3\n"


@pytest.mark.parametrize("path", ["/", "/system.slice/pbs_mom.service", f"/torque/{JOB}0", "/torque/72", "/torque"])
def test_hook_elsewhere_stays(proc: pathlib.Path, tmp_path: pathlib.Path, path: str) -> None:
    groups(proc, f"4:memory:{path}", "0::/")
    (proc / "mountinfo").unlink()  # is not even asked
    assert cgroup.leave_job(JOB, str(proc)) == ""
    assert not (tmp_path / "memory/vtorque").exists()


def test_version_2_and_a_mom_below_a_unit(proc: pathlib.Path, tmp_path: pathlib.Path) -> None:
    unit = tmp_path / "unified/system.slice/mom.service"
    (unit / "torque" / JOB).mkdir(parents=True)
    with (proc / "mountinfo").open("a") as stream:
        stream.write(f"40 29 0:35 / {tmp_path}/unified rw - cgroup2 cgroup2 rw,nsdelegate\n")
    groups(proc, f"0::/system.slice/mom.service/torque/{JOB}")
    assert cgroup.leave_job(JOB, str(proc)) == ""
    assert joined(unit / "vtorque")


def test_several_controllers_in_one_hierarchy(proc: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "cpu,cpuacct/torque").mkdir(parents=True)
    with (proc / "mountinfo").open("a") as stream:
        stream.write(V1.format(tmp_path, "cpu,cpuacct"))
    groups(proc, f"5:cpuacct,cpu:/torque/{JOB}")
    assert cgroup.leave_job(JOB, str(proc)) == ""
    assert joined(tmp_path / "cpu,cpuacct/vtorque")


def test_failed_move_is_reported_and_the_others_are_made(proc: pathlib.Path, tmp_path: pathlib.Path) -> None:
    groups(proc, f"3:cpuset:/torque/{JOB}", f"4:memory:/torque/{JOB}", f"9:pids:/torque/{JOB}")
    (tmp_path / "cpuset/vtorque/cgroup.procs").mkdir(parents=True)
    output = cgroup.leave_job(JOB, str(proc))
    assert f"{tmp_path}/cpuset/vtorque: Is a directory" in output
    assert "pids is mounted nowhere" in output
    assert joined(tmp_path / "memory/vtorque")


def test_system_without_cgroups(tmp_path: pathlib.Path) -> None:
    assert "No such file" in cgroup.leave_job(JOB, str(tmp_path))

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration and the key of a lab's Slurm; no lab is needed for that."""

from __future__ import annotations

import pathlib

import pytest

from lab.slurm import configuration, key
from lab.system.state import State

HARDWARE = "CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000"


def test_configuration_of_a_machine_with_little_memory_lets_a_job_on_each_core() -> None:
    text = configuration.slurm_conf(("fe", "cn1"), HARDWARE, pathlib.Path("/run/x"), {})
    assert "DefMemPerCPU=500\n" in text
    assert f"NodeName=DEFAULT {HARDWARE} State=UNKNOWN\nNodeName=cn1 Features=vtorque,fast\n" in text
    assert "rolog=" not in text


def test_configuration_names_the_programs_of_the_product_that_are_there() -> None:
    text = configuration.slurm_conf(("fe", "cn1"), HARDWARE, pathlib.Path("/run/x"), configuration.PROGRAMS)
    assert "\nProlog=/etc/vtorque/slurm/prolog\nEpilog=/etc/vtorque/slurm/epilog\n" in text


@pytest.mark.parametrize(
    ("unified", "plugin"), [(False, "CgroupPlugin=cgroup/v1"), (True, "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes")]
)
def test_configuration_of_cgroups_is_that_of_the_machine_s_version(unified: bool, plugin: str) -> None:
    text = configuration.cgroup_conf(unified=unified)
    assert text.startswith(plugin)
    assert "ConstrainCores=yes\n" in text
    # 22.05 knows no such key, and does not start
    assert "EnableControllers" not in text


def test_every_lab_has_a_key_of_its_own_that_root_alone_reads(tmp_path: pathlib.Path) -> None:
    seen = set()
    for name in ("one", "two"):
        state = State(tmp_path / name)
        for node in ("fe", "cn1"):
            (state.node(node) / "keys").mkdir(parents=True)
        key.make(state, ("fe", "cn1"))
        paths = [state.node(node) / "keys" / key.NAME for node in ("fe", "cn1")]
        assert [path.stat().st_mode & 0o777 for path in paths] == [0o600, 0o600]
        seen.add(tuple(path.read_bytes() for path in paths))
    assert all(fe == cn1 and len(fe) == key.KEY_BYTES for fe, cn1 in seen)
    assert len(seen) == 2

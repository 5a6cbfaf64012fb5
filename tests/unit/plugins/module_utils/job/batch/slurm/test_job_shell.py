# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job's shell under Slurm: which start it is of, its script, its variables."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import registry
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import job_shell
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.environment import guest_variables
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyGuest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm"
ENVIRONMENT = dict(line.split(b"=", 1) for line in (FIXTURES / "environment.txt").read_bytes().splitlines())
V1 = """\
9:name=systemd:/
6:freezer:/slurm_cn1/uid_1001/job_{number}/step_batch
4:memory:/slurm_cn1/uid_1001/job_{number}/step_batch/task_0
0::/
"""
V2 = "0::/system.slice/cn1_slurmstepd.scope/job_{number}/step_batch/user/task_0\n"


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Root's directory, and a place for what the kernel says of our cgroups."""
    shell_link.point(shell_link.of_job("4.lab"), tmp_path / "jobs/4.lab.2", tmp_path)
    link_of = shell_link.link_of
    monkeypatch.setattr(job_shell.shell_link, "link_of", lambda shell: link_of(shell, tmp_path))
    monkeypatch.setattr(job_shell, "CGROUP", tmp_path / "cgroup")
    return tmp_path


@pytest.mark.parametrize("form", [V1, V2])
def test_shell_in_the_cgroup_of_a_job_finds_roots_record(place: pathlib.Path, form: str) -> None:
    (place / "cgroup").write_text(form.format(number=4))
    own = job_shell.own_job(ENVIRONMENT)
    assert own is not None
    assert (own.job_id, own.run_directory, own.process) == ("4.lab", "4.lab.2", None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        V1.format(number=5),
        "0::/\n",
        "0::/user.slice/job_4/x\n",
        "0::/user.slice/user-1001.slice/user@1001.service/slurm/uid_1001/job_4/step_batch\n",
        "0::/user.slice/user-1001.slice/user@1001.service/slurmstepd.scope/job_4/step_batch\n",
        V1.format(number=4) + V2.format(number=5),
    ],
)
def test_variable_of_a_user_opens_no_record_of_another_job(place: pathlib.Path, text: str) -> None:
    (place / "cgroup").write_text(text)
    assert job_shell.own_job(ENVIRONMENT) is None


def test_job_without_roots_record_runs_nothing(place: pathlib.Path) -> None:
    (place / "cgroup").write_text(V1.format(number=7))
    assert job_shell.own_job({**ENVIRONMENT, b"SLURM_JOB_ID": b"7"}) is None


@pytest.mark.parametrize(
    ("content", "script"),
    [
        (b"#!/opt/vtorque/bin/vtorque-shell\n#!/usr/bin/perl -w\nexit 3;\n", b"#!/usr/bin/perl -w\nexit 3;\n"),
        (b"#!/opt/vtorque/bin/vtorque-shell\n#SBATCH -n2\nexit 3\n", b"#!/bin/sh\n#SBATCH -n2\nexit 3\n"),
        (b"#!/bin/bash\nexit 3\n", b"#!/bin/bash\nexit 3\n"),
    ],
)
def test_script_is_the_users_own_from_his_interpreter_line_on(
    tmp_path: pathlib.Path, content: bytes, script: bytes
) -> None:
    (tmp_path / "slurm_script").write_bytes(content)
    found = job_shell.read_script([str(tmp_path / "slurm_script"), "a b", "c"])
    assert (found.content, found.arguments, found.by_login_shell) == (script, (b"a b", b"c"), False)


@pytest.mark.parametrize("arguments", [[], ["relative"], ["/nowhere/slurm_script"], ["/"]])
def test_call_without_a_script_runs_nothing(arguments: list[str]) -> None:
    with pytest.raises(VTorqueError, match="nothing was run"):
        job_shell.read_script(arguments)


def test_launchers_of_mpi_are_kept_from_srun() -> None:
    found = job_shell.launcher_variables(ENVIRONMENT)
    assert found[b"OMPI_MCA_plm"] == found[b"OMPI_MCA_ras"] == b"^slurm"
    assert found[b"HYDRA_HOST_FILE"] == b"/var/spool/torque/aux/4.lab"
    theirs: dict[bytes, t.Any] = {**ENVIRONMENT, b"HYDRA_LAUNCHER": b"fork"}
    assert b"HYDRA_BOOTSTRAP" not in job_shell.launcher_variables(theirs)


def test_file_of_hosts_is_that_of_the_job_whatever_its_user_had_in_the_environment() -> None:
    own = job_shell.launcher_variables(ENVIRONMENT)[b"VTORQUE_HOSTS"]
    theirs = {**ENVIRONMENT, b"VTORQUE_HOSTS": b"/home/alice/hosts"}
    assert job_shell.launcher_variables(theirs)[b"VTORQUE_HOSTS"] == own


def test_host_file_is_where_guests_have_it_whatever_torque_home_says() -> None:
    """A guest writes it into `aux` of its settings' directory (templates/guest/join.sh.j2)."""
    policy = Policy(batch_system="slurm", torque_home="/opt/torque")
    home = settings_of(policy, "n1").torque_home
    assert job_shell.launcher_variables(ENVIRONMENT)[b"HYDRA_HOST_FILE"].decode() == f"{home}/aux/4.lab"
    assert job_shell.script_path(policy, "x.SC") == f"{home}/mom_priv/jobs/x.SC"
    assert settings_of(Policy(torque_home="/opt/torque"), "n1").torque_home == pathlib.Path("/opt/torque")


def test_counts_are_those_of_the_guests() -> None:
    assert job_shell.counts(processors=6, hosts=3, first=2)[b"SLURM_JOB_CPUS_PER_NODE"] == b"2(x3)"
    assert job_shell.counts(processors=2, hosts=1, first=2)[b"SLURM_JOB_CPUS_PER_NODE"] == b"2"
    assert b"SLURM_JOB_CPUS_PER_NODE" not in job_shell.counts(processors=5, hosts=2, first=2)
    mixed = job_shell.counts(processors=9, hosts=5, first=2, each=(2, 2, 1, 1, 3))
    assert mixed[b"SLURM_JOB_CPUS_PER_NODE"] == b"2(x2),1(x2),3"


def test_hosts_are_the_guests_by_their_names() -> None:
    found = job_shell.counts(processors=4, hosts=2, first=2, names=["vcn1-0", "vcn2-0"])
    assert found[b"SLURM_JOB_NODELIST"] == found[b"SLURM_NODELIST"] == b"vcn1-0,vcn2-0"
    assert found[b"SLURMD_NODENAME"] == b"vcn1-0"


def test_variables_of_a_guest_do_not_name_the_node() -> None:
    guests = (ReadyGuest(0, "vg1-1", "cn1", "192.0.2.1", vcpus=1),)
    found = guest_variables(registry.open_shell("slurm"), ENVIRONMENT, guests)
    assert b"cn1" in ENVIRONMENT.values()
    assert {name: value for name, value in found.items() if b"cn1" in value} == {}


@pytest.mark.parametrize(("asked", "seen"), [(b"3", b"2"), (b"2", None), (b"1", None), (b"x", None)])
def test_processors_of_a_task_are_no_more_than_a_guest_has(asked: bytes, seen: bytes | None) -> None:
    """What vsbatch asks for holds the host's processor, too."""
    found = job_shell.launcher_variables({**ENVIRONMENT, b"SLURM_CPUS_ON_NODE": b"2", b"SLURM_CPUS_PER_TASK": asked})
    assert found.get(b"SLURM_CPUS_PER_TASK") == seen


def test_job_starts_under_the_name_that_guests_have_for_its_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmd starts it in the path without links, which it tells in SLURM_SUBMIT_DIR too."""
    (tmp_path / "srv/alice").mkdir(parents=True)
    (tmp_path / "workspace").symlink_to("srv")
    monkeypatch.chdir(tmp_path / "srv/alice")
    here, named = bytes(tmp_path / "srv/alice"), str(tmp_path / "workspace/alice")
    assert job_shell.start_directory(ENVIRONMENT, named) == named.encode()
    renamed = job_shell.rename_directories({**ENVIRONMENT, b"SLURM_SUBMIT_DIR": here}, named.encode())
    assert renamed == {b"SLURM_SUBMIT_DIR": named.encode()}
    for other in ("", "/nowhere", "/tmp", "/a\0b"):  # slurmd goes to /tmp where there is no such directory
        assert job_shell.start_directory(ENVIRONMENT, other) == here
    assert job_shell.rename_directories({**ENVIRONMENT, b"SLURM_SUBMIT_DIR": b"/tmp"}, named.encode()) == {}


@pytest.mark.parametrize(
    ("tasks", "ntasks", "hosts", "seen"),
    [
        (b"2(x3)", b"6", b"2", {b"SLURM_TASKS_PER_NODE": b"2(x2)", b"SLURM_NTASKS": b"4"}),
        (b"1(x2)", None, b"1", {b"SLURM_TASKS_PER_NODE": b"1"}),
        (b"2(x2),1", b"5", b"3", {}),
        (b"1", b"1", b"2", {}),
        (b"x", b"1", b"1", {}),
    ],
)
def test_tasks_are_counted_on_the_nodes_in_use(
    tasks: bytes, ntasks: bytes | None, hosts: bytes, seen: dict[bytes, bytes]
) -> None:
    """Slurm counts those of spare nodes, too."""
    variables = {b"SLURM_TASKS_PER_NODE": tasks, b"SLURM_JOB_NUM_NODES": hosts}
    variables |= {b"SLURM_NTASKS": ntasks} if ntasks else {}
    found = job_shell.launcher_variables(variables)
    assert {name: found[name] for name in found if name.startswith(b"SLURM_")} == seen

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the job's environment reaches its guest, and what MPI's launchers are told there."""

from __future__ import annotations

import dataclasses
import functools
import types

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import job_shell as slurm_shell
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import job_shell
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import environment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.environment import changes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.environment import (
    guest_variables as variables_of_a_guest,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyGuest

NODE_FILE = b"/var/spool/torque/aux//11.th"
JOB = {b"PBS_JOBID": b"11.th", b"PBS_ENVIRONMENT": b"PBS_BATCH", b"PBS_NODEFILE": NODE_FILE}
HOST_FILES = (
    b"OMPI_MCA_orte_default_hostfile",
    b"PRTE_MCA_prte_default_hostfile",
    b"HYDRA_HOST_FILE",
    b"I_MPI_HYDRA_HOST_FILE",
)


guest_variables = functools.partial(variables_of_a_guest, job_shell)


@pytest.mark.parametrize("name", HOST_FILES)
def test_every_launcher_finds_the_jobs_node_file(name: bytes) -> None:
    assert guest_variables(JOB, ())[name] == NODE_FILE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"OMPI_MCA_plm", b"^tm"),
        (b"OMPI_MCA_ras", b"^tm"),
        (b"PRTE_MCA_plm", b"^tm"),
        (b"PRTE_MCA_ras", b"^tm"),
        (b"PRTE_MCA_plm_ssh_agent", b"ssh"),
        (b"HYDRA_BOOTSTRAP", b"ssh"),
        (b"I_MPI_HYDRA_BOOTSTRAP", b"ssh"),
    ],
)
def test_no_launcher_looks_for_a_mom(name: bytes, value: bytes) -> None:
    assert guest_variables(JOB, ())[name] == value


@pytest.mark.parametrize("batch", [job_shell, slurm_shell])
def test_host_that_is_named_once_has_one_slot(batch: types.ModuleType) -> None:
    """Open MPI 5.0.7 would start as many processes as the host has cores; a bare host need not give them all."""
    found = variables_of_a_guest(batch, {**JOB, b"SLURM_JOB_ID": b"11"}, ())
    assert found[b"PRTE_MCA_prte_set_default_slots"] == b"1"


@pytest.mark.parametrize(
    ("theirs", "untold"),
    [
        (b"OMPI_MCA_plm", (b"PRTE_MCA_plm",)),
        (b"OMPI_MCA_ras", (b"PRTE_MCA_ras",)),
        (b"OMPI_MCA_plm_rsh_agent", (b"PRTE_MCA_plm_ssh_agent",)),
        (b"OMPI_MCA_orte_default_hostfile", (b"PRTE_MCA_prte_default_hostfile",)),
        (b"OMPI_MCA_prte_set_default_slots", (b"PRTE_MCA_prte_set_default_slots",)),
        (b"HYDRA_LAUNCHER", (b"HYDRA_BOOTSTRAP",)),
        (b"HYDRA_BOOTSTRAP", ()),
        (b"HYDRA_HOST_FILE", (b"I_MPI_HYDRA_HOST_FILE",)),
        (b"I_MPI_HYDRA_HOST_FILE", ()),
    ],
)
def test_variable_of_the_user_is_not_replaced_under_other_names(theirs: bytes, untold: tuple[bytes, ...]) -> None:
    found = guest_variables({**JOB, theirs: b"mine"}, ())
    assert found[theirs] == b"mine"
    assert not [name for name in untold if name in found]


def test_variable_that_is_set_and_empty_is_set() -> None:
    assert guest_variables({**JOB, b"OMPI_MCA_plm": b""}, ())[b"OMPI_MCA_plm"] == b""


def test_without_a_node_file_no_launcher_is_sent_to_one() -> None:
    found = guest_variables({b"PBS_JOBID": b"11.th"}, ())
    assert not [name for name in HOST_FILES if name in found]
    assert found[b"OMPI_MCA_plm"] == b"^tm"


def test_paths_of_the_node_stay_there_and_the_rest_arrives_as_it_is() -> None:
    found = guest_variables({**JOB, b"TMPDIR": b"/scratch/11", b"ODD": b"it's \xff\n", b"-u": b"x"}, ())
    assert found[b"ODD"] == b"it's \xff\n"
    assert not {b"TMPDIR", b"-u"} & set(found)


def test_changed_variables_are_named_in_the_log() -> None:
    job = {**JOB, b"TMPDIR": b"/scratch/11", b"DISPLAY": b"localhost:50.0", b"-u": b"x", b"PBS_NP": b"7", b"A": b"1",
           b"HOME": b"/home/alice", b"SHELL": b"/opt/vtorque/bin/vtorque-shell"}  # fmt: skip
    guest = guest_variables(job, (ReadyGuest(0, "v1-1", "n1", "10.0.0.1", vcpus=3),))
    assert changes(job_shell, job, guest) == (
        "dropped, as they name what only the node has: TMPDIR DISPLAY; dropped, as env(1) would take them for options: "
        "-u; replaced, as they count the guests: PBS_NP"
    )
    assert (
        changes(job_shell, {**JOB, b"DISPLAY": b"localhost:50.0"}, guest, x11=True)
        == "replaced by the guest's own: DISPLAY"
    )
    assert changes(job_shell, JOB, guest) == ""


def test_counts_describe_two_guests_of_three_processors_on_each_of_two_nodes() -> None:
    guests = [
        ReadyGuest(rank, f"v{node}-{n}", node, "10.0.0.1", vcpus=3)
        for rank, (node, n) in enumerate((node, n) for node in ("n1", "n2") for n in (1, 2))
    ]
    found = guest_variables({**JOB, b"PBS_NP": b"14", b"PBS_NUM_NODES": b"2", b"PBS_NUM_PPN": b"7"}, guests)
    assert [found[name] for name in (b"PBS_NP", b"PBS_NUM_NODES", b"PBS_NUM_PPN")] == [b"12", b"4", b"3"]


def test_region_is_told_with_the_guests_that_share_it() -> None:
    first = ReadyGuest(0, "v1-1", "n1", "10.0.0.1", vcpus=3, shared_mib=2)
    others = (
        ReadyGuest(1, "v1-2", "n1", "10.0.0.2", shared_mib=2),
        ReadyGuest(2, "v2-1", "n2", "10.0.0.3", shared_mib=2),
    )
    found = guest_variables({**JOB, b"VTORQUE_SHM": b"/etc/passwd"}, (first, *others))
    assert found[b"VTORQUE_SHM"] == b"/dev/vtorque-shm"
    assert found[b"VTORQUE_SHM_SIZE"] == b"2097152"
    assert found[b"VTORQUE_SHM_PEERS"] == b"v1-1 v1-2"
    without = guest_variables({**JOB, b"VTORQUE_SHM": b"/x"}, (dataclasses.replace(first, shared_mib=0),))
    assert not {name for name in without if name.startswith(b"VTORQUE_SHM")}


def test_gpus_of_the_guest_are_counted_from_0_whatever_the_job_says() -> None:
    job = {**JOB, b"CUDA_VISIBLE_DEVICES": b"2,3", b"PBS_GPUFILE": b"/etc/passwd"}
    guest = ReadyGuest(0, "v1-1", "n1", "10.0.0.1", vcpus=3, gpus=2)
    found = guest_variables(job, (guest,))
    assert found[b"CUDA_VISIBLE_DEVICES"] == b"0,1"
    assert found[b"PBS_GPUFILE"] == JOB[b"PBS_NODEFILE"] + b"gpu"
    without = guest_variables(job, (dataclasses.replace(guest, gpus=0),))
    assert not {b"CUDA_VISIBLE_DEVICES", b"PBS_GPUFILE"} & set(without)
    assert "dropped, as they name what only the node has: CUDA_VISIBLE_DEVICES PBS_GPUFILE" in changes(
        job_shell, job, without
    )


def test_job_with_rdma_may_lock_the_memory_of_its_guest_whatever_the_node_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verbs lock what they register, and the node's limit protects the node alone."""
    monkeypatch.setattr(environment.resource, "getrlimit", lambda _which: (65536, 65536))
    assert b"l=64:64" in environment.limits_here().split()
    assert b"l=unlimited:unlimited" in environment.limits_here(locked=True).split()
    assert b"n=65536:65536" in environment.limits_here(locked=True).split()


def test_addresses_on_further_networks_are_those_of_the_first_guest() -> None:
    first = ReadyGuest(0, "v1-1", "n1", "10.0.0.1", vcpus=3, networks="fast=10.9.1.1")
    second = ReadyGuest(1, "v2-1", "n2", "10.0.0.2", vcpus=3, networks="fast=10.9.2.1")
    found = guest_variables({**JOB, b"VTORQUE_NETWORKS": b"slow=1.2.3.4"}, (first, second))
    assert found[b"VTORQUE_NETWORKS"] == b"fast=10.9.1.1"
    without = guest_variables({**JOB, b"VTORQUE_NETWORKS": b"x"}, (dataclasses.replace(first, networks=""),))
    assert b"VTORQUE_NETWORKS" not in without

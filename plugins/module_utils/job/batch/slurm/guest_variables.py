# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables of a job are Slurm's, and what launchers of MPI need to start over ssh instead of by srun.

In a guest are no srun that could reach slurmd and no key of munge: Open MPI 4.1 ends where it takes SLURM_JOB_ID for
the promise of an srun, and Hydra 4.0 where it cannot execute one (measured).
"""

from __future__ import annotations

import typing as t

from ..shared.launchers import HOSTS, SLOT_A_NAME, LauncherVariable

GUEST_PROGRAMS: tuple[str, ...] = ("batch/slurm/guest/srun.sh", "batch/slurm/guest/scontrol.sh")
"""What guests of Slurm's jobs have in PATH, from templates/batch/slurm/guest: Slurm's own need the cluster's key."""
GUEST_VARIABLES: t.Mapping[str, str] = {
    "SLURM_JOB_ID": "{number}",
    "SLURM_CLUSTER_NAME": "{cluster}",
    "VTORQUE_HOSTS": "{node_file}",
}
GUEST_SCRIPTS = "mom_priv/jobs"
"""As Torque's, which guests have had from the beginning."""
NODE_PATHS: tuple[bytes, ...] = (
    b"TMPDIR",
    b"SLURM_CONF",
    b"SLURM_SPOOLDIR",
    b"SLURM_SRUN_COMM_HOST",
    b"SLURM_SRUN_COMM_PORT",
    b"SLURM_STEP_LAUNCHER_PORT",
    b"SLURM_TASK_PID",
    b"SLURM_TOPOLOGY_ADDR",
    b"SLURM_TOPOLOGY_ADDR_PATTERN",
    b"SLURM_WORKING_CLUSTER",
    b"DISPLAY",
    b"XAUTHORITY",
    b"XDG_RUNTIME_DIR",
    b"DBUS_SESSION_BUS_ADDRESS",
    b"SSH_AUTH_SOCK",
)
"""Variables that name paths, sockets, ports or processes of the node or of the front end (sbatch hands all on)."""
GUEST_HOME = "/var/spool/torque"
"""A guest's directory for such files, whatever `torque_home` says: Slurm has none, and no shell of a job knows it."""
HOST_FILE = f"{GUEST_HOME}/aux/".encode()
"""Where guests have a file with a host's name for each slot, by the job's id (templates/guest/join.sh.j2)."""

LAUNCHERS = (
    LauncherVariable(b"VTORQUE_HOSTS", HOSTS, "the guests' srun (templates/batch/slurm/guest/srun.sh)", always=True),
    LauncherVariable(b"OMPI_MCA_plm", b"^slurm", "Open MPI 4: orte/mca/plm/slurm calls srun, and outranks rsh"),
    LauncherVariable(b"OMPI_MCA_ras", b"^slurm", "Open MPI 4: orte/mca/ras/slurm reads SLURM_NODELIST, the hosts"),
    LauncherVariable(b"OMPI_MCA_orte_default_hostfile", HOSTS, "Open MPI 4: orte_hosts(7)"),
    LauncherVariable(b"PRTE_MCA_plm", b"^slurm", "Open MPI 5: PRRTE's plm/slurm", (b"OMPI_MCA_plm",)),
    LauncherVariable(b"PRTE_MCA_ras", b"^slurm", "Open MPI 5: PRRTE's ras/slurm", (b"OMPI_MCA_ras",)),
    LauncherVariable(
        b"PRTE_MCA_prte_default_hostfile",
        HOSTS,
        "Open MPI 5: PRRTE's src/runtime/prte_mca_params.c",
        (b"OMPI_MCA_prte_default_hostfile", b"OMPI_MCA_orte_default_hostfile"),
    ),
    SLOT_A_NAME,
    LauncherVariable(b"HYDRA_BOOTSTRAP", b"ssh", "MPICH, MVAPICH: the README of Hydra", (b"HYDRA_LAUNCHER",)),
    LauncherVariable(b"HYDRA_HOST_FILE", HOSTS, "MPICH, MVAPICH: the README of Hydra"),
    LauncherVariable(b"I_MPI_HYDRA_BOOTSTRAP", b"ssh", "Intel MPI: its developer reference, Hydra environment"),
    LauncherVariable(
        b"I_MPI_HYDRA_HOST_FILE",
        HOSTS,
        "Intel MPI: its developer reference, Hydra environment variables",
        (b"HYDRA_HOST_FILE",),
    ),
)

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What launchers of MPI must hear in a guest whose batch system has a TM interface: no MOM is in there.

The hosts stand in the job's node file, and ssh reaches them: a launcher that knows the interface takes the job's
variables for the promise of a MOM on this host.
"""

from __future__ import annotations

import typing as t

from . import launchers
from .launchers import HOSTS, SLOT_A_NAME, LauncherVariable

LAUNCHERS = (
    LauncherVariable(
        b"OMPI_MCA_plm",
        b"^tm",
        "Open MPI 4: orte/mca/plm/tm starts daemons by a MOM and, where it was built, outranks rsh (which means ssh). "
        "'rsh' would name no component of Open MPI 5, which takes this for its own PRTE_MCA_plm",
    ),
    LauncherVariable(
        b"OMPI_MCA_ras",
        b"^tm",
        "Open MPI 4: orte/mca/ras/tm reads the node file of a MOM's own directory, and wins over a default host file",
    ),
    LauncherVariable(
        b"OMPI_MCA_orte_default_hostfile", HOSTS, "Open MPI 4: orte_hosts(7); a host is named once for each slot"
    ),
    LauncherVariable(
        b"PRTE_MCA_plm",
        b"^tm",
        "Open MPI 5: PRRTE's plm/tm; its schizo/ompi also reads OMPI_MCA_plm, and overwrites nothing",
        (b"OMPI_MCA_plm",),
    ),
    LauncherVariable(b"PRTE_MCA_ras", b"^tm", "Open MPI 5: PRRTE's ras/tm, as above", (b"OMPI_MCA_ras",)),
    LauncherVariable(
        b"PRTE_MCA_plm_ssh_agent",
        b"ssh",
        "PRRTE's plm/ssh: in a job of PBS it takes pbs_tmrsh, unless an agent was named",
        (b"OMPI_MCA_plm_ssh_agent", b"OMPI_MCA_plm_rsh_agent", b"PRTE_MCA_plm_rsh_agent"),
    ),
    LauncherVariable(
        b"PRTE_MCA_prte_default_hostfile",
        HOSTS,
        "Open MPI 5: PRRTE's src/runtime/prte_mca_params.c",
        (b"OMPI_MCA_prte_default_hostfile", b"OMPI_MCA_orte_default_hostfile"),
    ),
    SLOT_A_NAME,
    LauncherVariable(
        b"HYDRA_BOOTSTRAP",
        b"ssh",
        "MPICH, MVAPICH: the README of Hydra; built with tm it starts its proxies by a MOM",
        (b"HYDRA_LAUNCHER",),
    ),
    LauncherVariable(
        b"HYDRA_HOST_FILE", HOSTS, "MPICH, MVAPICH: the README of Hydra; hosts that are given are not asked of PBS"
    ),
    LauncherVariable(
        b"I_MPI_HYDRA_BOOTSTRAP",
        b"ssh",
        "Intel MPI: its developer reference, Hydra environment variables; without it 2021.19 runs /usr/bin/pbsdsh",
    ),
    LauncherVariable(
        b"I_MPI_HYDRA_HOST_FILE",
        HOSTS,
        "Intel MPI: its developer reference, Hydra environment variables; the other name is its former one",
        (b"HYDRA_HOST_FILE",),
    ),
)


def launcher_variables(variables: t.Mapping[bytes, bytes], node_file: bytes) -> dict[bytes, bytes]:
    """Return what MPI's launchers are told besides the job's environment.

    Args:
        variables: the job's; what it has set, under whichever of the names, is left to it.
        node_file: its path in the guest; empty: there is none.
    """
    return launchers.launcher_variables(LAUNCHERS, variables, node_file)

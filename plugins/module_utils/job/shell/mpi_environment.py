# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What MPI's launchers are told in a guest: no MOM is here, the hosts stand in the job's node file, ssh reaches them.

A launcher that knows Torque takes PBS_ENVIRONMENT and PBS_JOBID for the promise of a MOM on this host.
"""

from __future__ import annotations

import typing as t

from ...frozen import frozen

NODE_FILE = b"$PBS_NODEFILE"
"""Stands for the path in that variable."""


@frozen
class Told:
    """One variable.

    Attributes:
        name: of the variable.
        value: what it says, or `NODE_FILE`.
        source: where it is said that the launcher reads it, and what it would do without.
        aliases: other names for the same; who has set one of them has said what he wants.
    """

    name: bytes
    value: bytes
    source: str
    aliases: tuple[bytes, ...] = ()


TABLE = (
    Told(
        b"OMPI_MCA_plm",
        b"^tm",
        "Open MPI 4: orte/mca/plm/tm starts daemons by a MOM and, where it was built, outranks rsh (which means ssh). "
        "'rsh' would name no component of Open MPI 5, which takes this for its own PRTE_MCA_plm",
    ),
    Told(
        b"OMPI_MCA_ras",
        b"^tm",
        "Open MPI 4: orte/mca/ras/tm reads the node file of a MOM's own directory, and wins over a default host file",
    ),
    Told(b"OMPI_MCA_orte_default_hostfile", NODE_FILE, "Open MPI 4: orte_hosts(7); a host is named once for each slot"),
    Told(
        b"PRTE_MCA_plm",
        b"^tm",
        "Open MPI 5: PRRTE's plm/tm; its schizo/ompi also reads OMPI_MCA_plm, and overwrites nothing",
        (b"OMPI_MCA_plm",),
    ),
    Told(b"PRTE_MCA_ras", b"^tm", "Open MPI 5: PRRTE's ras/tm, as above", (b"OMPI_MCA_ras",)),
    Told(
        b"PRTE_MCA_plm_ssh_agent",
        b"ssh",
        "PRRTE's plm/ssh: in a job of PBS it takes pbs_tmrsh, unless an agent was named",
        (b"OMPI_MCA_plm_ssh_agent", b"OMPI_MCA_plm_rsh_agent", b"PRTE_MCA_plm_rsh_agent"),
    ),
    Told(
        b"PRTE_MCA_prte_default_hostfile",
        NODE_FILE,
        "Open MPI 5: PRRTE's src/runtime/prte_mca_params.c",
        (b"OMPI_MCA_prte_default_hostfile", b"OMPI_MCA_orte_default_hostfile"),
    ),
    Told(
        b"HYDRA_BOOTSTRAP",
        b"ssh",
        "MPICH, MVAPICH: the README of Hydra; built with tm it starts its proxies by a MOM",
        (b"HYDRA_LAUNCHER",),
    ),
    Told(
        b"HYDRA_HOST_FILE", NODE_FILE, "MPICH, MVAPICH: the README of Hydra; hosts that are given are not asked of PBS"
    ),
    Told(
        b"I_MPI_HYDRA_BOOTSTRAP",
        b"ssh",
        "Intel MPI: its developer reference, Hydra environment variables; without it 2021.19 runs /usr/bin/pbsdsh",
    ),
    Told(
        b"I_MPI_HYDRA_HOST_FILE",
        NODE_FILE,
        "Intel MPI: its developer reference, Hydra environment variables; the other name is its former one",
        (b"HYDRA_HOST_FILE",),
    ),
)


def mpi_variables(job: t.Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What the launchers are told besides what the job's environment says.

    Args:
        job: the job's environment; what it has set, under whichever of the names, is left to it.
    """
    node_file = job.get(b"PBS_NODEFILE", b"")
    found: dict[bytes, bytes] = {}
    for launcher in TABLE:
        value = node_file if launcher.value == NODE_FILE else launcher.value
        if value and not any(name in job for name in (launcher.name, *launcher.aliases)):
            found[launcher.name] = value
    return found

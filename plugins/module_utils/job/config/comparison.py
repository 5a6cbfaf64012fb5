# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host is configured as another one: digests of parameters are compared, so that no value has to travel."""

from __future__ import annotations

import hashlib
import json
import typing as t

from .parameters import PARAMETERS, Policy

LENGTH = 12
EACH_ITS_OWN = frozenset({"node_number"})
"""No two nodes have it alike."""
MACHINES = frozenset(
    {
        "allow_emulation",
        "arch_default",
        "bridge",
        "cache_max",
        "cache_rate",
        "dhcp_leases_file",
        "host_os_core_count",
        "host_os_ram_mb",
        "hypervisor_default",
        "libvirt_uri",
        "max_vms_per_node",
        "pbs_qsub_on_fe",
        "pbs_qsub_on_nodes",
        "slurm_bin",
        "ramdisk_dir",
        "template_dir",
        "torque_home",
        "vm_img_dir",
    }
)
"""What a site may have reason to set otherwise for a group of machines."""


def digests(policy: Policy) -> dict[str, str]:
    """A word for each parameter that hosts can have in common.

    Args:
        policy: as one host has it.
    """
    return {
        name: hashlib.sha256(json.dumps(getattr(policy, name)).encode()).hexdigest()[:LENGTH]
        for name in PARAMETERS
        if name not in EACH_ITS_OWN
    }


class Differences(t.NamedTuple):
    """Names of parameters that two hosts have otherwise.

    Attributes:
        site: those that decide about jobs, and must be the same everywhere.
        machine: those that may follow from the machine.
    """

    site: tuple[str, ...]
    machine: tuple[str, ...]


def differing(ours: t.Mapping[str, str], theirs: t.Mapping[str, str]) -> Differences:
    """What two hosts have otherwise.

    Args:
        ours: digests of one host.
        theirs: of the other; a parameter that only one of them knows differs.
    """
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return Differences(
        tuple(name for name in names if name not in MACHINES), tuple(name for name in names if name in MACHINES)
    )

# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a request needs of a node, and whether a node of the site can give it."""

from __future__ import annotations

import typing as t

from ...text import format_mib
from ..config.parameters import Policy
from ..request.demand import Demand, NodeSize
from ..request.value_types import KeyFault
from . import numa
from .resolve import SITE_DEFAULT, ResolvedRequest
from .vcpu_map import VcpuMap

if t.TYPE_CHECKING:
    from ..batch.registry import Terms


def demand(resolved: ResolvedRequest, policy: Policy, pinning: VcpuMap | None = None) -> Demand:
    """The sum over one node: its guests, the region that they share, the host's share, the cores for virtual I/O.

    Args:
        resolved: the request.
        policy: holds the host's share.
        pinning: the user's map, whose cores must be there besides the host's.

    Returns:
        Cores and MiB of memory, and how they come about.
    """
    guests, vcpus, ram = (resolved.figure(key) for key in ("vms_per_node", "vcpus", "ram"))
    host_cores, host_mib = policy.host_os_core_count, policy.host_os_ram_mb
    iocm, bound = numa.io_demand(resolved.values, resolved.origins, SITE_DEFAULT)
    times = f"{guests} x " if guests > 1 else ""
    cores_sum = f"{times}{count_of(vcpus, 'vcpu')} + {count_of(host_cores, 'core')} for the host"
    if iocm:
        cores_sum += f" + {count_of(iocm, 'core')} for virtual I/O ({bound})"
    cores = guests * vcpus + host_cores + iocm
    if pinning and (mapped := max(pinning.highest + 1, pinning.used + host_cores) + iocm) > cores:
        cores, cores_sum = mapped, f"{count_of(mapped, 'core')} for the map of vcpu_pinning and the host"
        cores_sum += f", {iocm} of them for virtual I/O ({bound})" if iocm else ""
    region = resolved.figure("unclot_shmem") if resolved.values["unclot"] is True else 0
    shared = f" + {format_mib(region)} that they share" if region else ""
    mem_sum = f"{times}{format_mib(ram)} of ram{shared} + {format_mib(host_mib)} for the host"
    return Demand(cores, guests * ram + region + host_mib, cores_sum, mem_sum, resolved.figure("spare"))


def count_of(number: int, what: str) -> str:
    """Return a number of things, for people.

    Args:
        number: how many.
        what: one of them.
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def too_big(need: Demand, sizes: t.Sequence[NodeSize], terms: Terms) -> tuple[KeyFault, ...]:
    """What no node of the site can give, with the sum; empty when some node can, or when nothing is known of any.

    Args:
        need: what is needed on each node.
        sizes: of all nodes.
        terms: of the batch system.

    Returns:
        One objection for processors, one for memory.
    """
    if not sizes or any(size.cores >= need.cores and _mem_fits(need, size) for size in sizes):
        return ()
    most_cores = max(size.cores for size in sizes)
    most_mem = max(size.mem_mib for size in sizes)
    faults = []
    if most_cores < need.cores:
        message = f"{need.cores_sum}: more than any node of this site has ({most_cores})"
        faults.append(KeyFault(terms.SLOTS, str(need.cores), message))
    if not any(_mem_fits(need, size) for size in sizes):
        message = f"{need.mem_sum}: more than any node of this site has ({format_mib(most_mem)})"
        faults.append(KeyFault(terms.MEMORY, format_mib(need.mem_mib), message))
    if not faults:
        message = f"{need.cores_sum}, with {need.mem_sum}: no node of this site has both"
        faults.append(KeyFault(terms.SLOTS, str(need.cores), message))
    return tuple(faults)


def _mem_fits(need: Demand, size: NodeSize) -> bool:
    return not size.mem_mib or size.mem_mib >= need.mem_mib

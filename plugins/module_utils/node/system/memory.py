# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of guests on this node: what qemu needs besides, what must be there, and what none may exceed.

libvirt advises against hard limits, because nobody knows what qemu needs.  The limit here is what the job has
requested.  It is set when the guest runs: in the XML libvirt uses it as the limit of locked memory too, which a libvirt
in a container may not raise (9.0).
"""

from __future__ import annotations

import contextlib
import pathlib
import resource
import typing as t

from ...effects import leaves_nothing
from ...wire.messages import GuestSpec

BASE_MIB, VCPU_MIB, SHARE_OF_RAM = 256, 8, 64
"""What a qemu takes for itself: its code and devices, for each virtual processor, and page tables.  Other products of
this kind reckon with a little less (KubeVirt: 8 MiB a processor, 1/512 of the memory, some 200 MiB)."""
EMULATION_MIB = 1024
"""Software emulation keeps what it has translated, at most so much (qemu: DEFAULT_CODE_GEN_BUFFER_SIZE)."""


SERVER_MIB = 1024
"""What a virtiofsd or qemu-nbd may keep for itself: a bound for a guest's root, who has it open files without end.
What it shares with the guest is the guest's (RLIMIT_DATA counts private memory alone, setrlimit(2))."""


STACK_MIB = 8
"""What any of its threads may have for a stack, as any service's."""


def bound_server() -> None:
    """Hold this process, which is about to serve a guest, to `SERVER_MIB`."""
    wanted = SERVER_MIB << 20
    with contextlib.suppress(ValueError, OSError):  # who was given less keeps that
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, wanted))
    with contextlib.suppress(ValueError, OSError):
        # a MOM's may be for Fortran; it is the size of each thread's (pthread_create(3)), which counts as a whole
        resource.setrlimit(resource.RLIMIT_STACK, (STACK_MIB << 20, STACK_MIB << 20))


def overhead_mib(spec: GuestSpec) -> int:
    """What qemu may need besides a guest's memory, in MiB."""
    return BASE_MIB + VCPU_MIB * spec.vcpus + spec.ram_mib // SHARE_OF_RAM


@leaves_nothing
def limit_mib(spec: GuestSpec, host_ram_mib: int, huge: bool = False) -> int:
    """What the qemu of a guest may have in all, in MiB.

    The job has asked for its guests' memory and the host's share, out of which their overhead is paid.  Huge pages are
    counted nowhere in the control group of memory (hugetlb has one of its own).

    Args:
        spec: the guest.
        host_ram_mib: the host's share.
        huge: whether its memory is of huge pages.
    """
    emulated = EMULATION_MIB if spec.hypervisor == "qemu" else 0
    return (0 if huge else spec.ram_mib) + max(host_ram_mib, overhead_mib(spec)) + emulated


@leaves_nothing
def region_mib(specs: t.Iterable[GuestSpec]) -> int:
    """Return the size of the region that the guests of a start share on a node, in MiB; 0: they have none.

    Args:
        specs: all of a job's on the node.
    """
    return max((spec.shared_mib for spec in specs), default=0)


def reserved_memory(specs: t.Sequence[GuestSpec], host_ram_mib: int) -> tuple[int, str]:
    """How much of a node's memory guests may not have: the host's share, out of which qemu's is paid, or that.

    Args:
        specs: all of a job's on the node.
        host_ram_mib: the host's share.

    Returns:
        MiB, and for whom.
    """
    overhead = sum(map(overhead_mib, specs))
    return (overhead, "the hypervisor") if overhead > host_ram_mib else (host_ram_mib, "the host")


MEMINFO = pathlib.Path("/proc/meminfo")


def node_mib(meminfo: pathlib.Path = MEMINFO) -> int:
    """This node's memory in MiB."""
    return _figure_mib("MemTotal", meminfo)


def available_mib(meminfo: pathlib.Path = MEMINFO) -> int:
    """Return how much of it programs could still have now, in MiB, by the kernel's estimate."""
    return _figure_mib("MemAvailable", meminfo)


def _figure_mib(name: str, meminfo: pathlib.Path) -> int:
    facts = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
    return int(facts[name].split()[0]) // 1024

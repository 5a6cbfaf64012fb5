# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job's guests would be placed on a node, as far as this host remembers what nodes have (`topologies.py`).

The same function places guests when the job starts.  What runs on the node by then, and which cores and devices the
batch system gives, nobody knows yet: the node is taken as if nothing else were on it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.errors import UserFault
from ...module_utils.job.admission import numa
from ...module_utils.job.admission.request_devices import read_wishes
from ...module_utils.job.admission.resolve import SITE_DEFAULT
from ...module_utils.job.admission.submission import Submission
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.request.host_expressions import host_matches
from ...module_utils.job.request.keys import PINNING
from ...module_utils.node.placement.pins import CoreShare, Pins, assign, assign_shared
from ...module_utils.node.placement.topology import Cell, Core, Topology
from ...module_utils.node.system import cpus
from ...module_utils.state import topologies
from ...module_utils.state.layout import STATE_DIR
from ...module_utils.text import format_mib
from ...module_utils.wire.messages import AUTO_CORES, PREFER_CORES, GuestSpec, KeyPair
from ...module_utils.wire.node_topology import NO_CELL, QUARANTINE, UNUSABLE, NodeTopology, numbers
from ...module_utils.wire.pci import PciClass, classes_on

__all__ = ["STATE_DIR", "GuestPreview", "Preview", "preview"]
_NO_KEY = KeyPair("", "")


@dataclasses.dataclass(frozen=True, slots=True)
class GuestPreview:
    """What a guest of the node would have.

    Attributes:
        vcpu_cores: the cores of each vCPU, in their order; (): all share `other_cores`.
        other_cores: those of all other threads.
        io_least: how many of those, the first ones, virtual I/O has in any case, and the rest under load; 0: it has
            none of its own.
        cells: of the host, in which its vCPUs are.
        memory: how much, and in what pages, in words.
        devices: the host's devices, each in words.
    """

    vcpu_cores: tuple[str, ...]
    other_cores: str
    cells: tuple[int, ...]
    memory: str
    devices: tuple[str, ...]
    io_least: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Preview:
    """The guests of a job on the first of its nodes, as they would be.

    Attributes:
        node: on which.
        made: when the node was last asked what it has, in seconds since the epoch.
        guests: of the node, in the order of their ranks; () where they could not be placed.
        problem: why they could not, or why vCPUs have no cores of their own; "": nothing.
    """

    node: str
    made: float
    guests: tuple[GuestPreview, ...]
    problem: str = ""


def preview(submission: Submission, policy: Policy) -> Preview | None:
    """Return where the guests of a job would be on the first node that is large enough.

    Args:
        submission: of the job.
        policy: the site's.

    Returns:
        None: this host remembers nothing of such a node.
    """
    node = _first_that_fits(submission)
    if node is None:
        return None
    topology = _topology_of(node)
    resolved = submission.resolved
    whole = policy.pbs_exclusive_node_alloc
    # which of them the batch system gives is not known: the first
    job_cores = tuple(sorted(topology.threads))[: None if whole else submission.need.cores]
    shared = job_cores[policy.host_os_core_count :] if whole else job_cores
    count = resolved.figure("vms_per_node")
    pins: tuple[Pins, ...] = ()
    problem = ""
    devices, lack = _choose_devices(submission, policy, node)
    if specs := _placed(submission, policy, node.node):
        near = tuple(next((one.cell for one in own if one.cell != NO_CELL), None) for own in devices)
        share = CoreShare(topology, job_cores, (), policy.host_os_core_count, near_devices=near)
        try:
            pins, problem = _assign(specs, share)
        except UserFault as fault:
            return Preview(node.node, node.made, (), str(fault))
    if submission.resolved.values[numa.IO] is True and not host_matches(policy.iocm_nodes, node.node):
        problem = "; ".join(filter(None, (problem, f"{node.node} has no cores for virtual I/O (iocm_nodes)")))
    guests = []
    for index in range(count):
        own = pins[index] if pins else Pins((), shared)
        cells = _cells(topology, {core for cores in own.vcpus for core in cores} or shared)
        vcpus, others = tuple(map(cpus.format_cores, own.vcpus)), cpus.format_cores(own.others)
        memory = _memory(submission, node, cells)
        guests.append(GuestPreview(vcpus, others, cells, memory, _describe(devices[index]), own.io_least))
    return Preview(node.node, node.made, tuple(guests), "; ".join(filter(None, (problem, lack))))


def _first_that_fits(submission: Submission) -> NodeTopology | None:
    """The first node of those that are large enough of which something is remembered."""
    need = submission.need
    fitting = [
        size.name
        for size in submission.sizes
        if size.cores >= need.cores and (not size.mem_mib or size.mem_mib >= need.mem_mib)
    ]
    # a batch system that has names of partitions for sizes leaves the choice to what nodes said themselves
    for name in (*dict.fromkeys(fitting), *topologies.list_nodes(STATE_DIR)):
        found = topologies.read_topology(name, STATE_DIR)
        if found is not None and _holds(found, need.cores, need.mem_mib):
            return found
    return None


def _holds(node: NodeTopology, cores: int, mem_mib: int) -> bool:
    threads = sum(len(numbers(core.threads)) for cell in node.cells for core in cell.cores)
    return threads >= cores and sum(cell.memory_mib for cell in node.cells) >= mem_mib


def _topology_of(node: NodeTopology) -> Topology:
    """What a node has, as placement reads it."""
    return Topology(
        tuple(
            Cell(
                cell.number,
                tuple(Core(numbers(core.threads), core.socket, core.cache) for core in cell.cores),
                cell.memory_mib,
                {pages.kib: pages.total for pages in cell.pages},
                {int(other): int(far) for other, far in (pair.split(":") for pair in cell.distances.split())},
            )
            for cell in node.cells
        )
    )


def _assign(specs: tuple[GuestSpec, ...], share: CoreShare) -> tuple[tuple[Pins, ...], str]:
    """The cores of guests, and what of them nobody asked for and does not fit, or ""; as a node decides it."""
    first = specs[0]
    try:
        if not first.vcpu_cores:
            return assign_shared(specs, share), ""
        return assign(specs, share), ""
    except UserFault as fault:
        if first.io_max and not first.io_required:
            less = tuple(dataclasses.replace(spec, io_min=0, io_max=0) for spec in specs)
            pins, problem = _assign(less, share) if first.vcpu_cores else ((), "")
            return pins, "; ".join(filter(None, (f"no cores for virtual I/O: {fault.why}", problem)))
        if first.vcpu_cores != PREFER_CORES:
            raise
        shared = assign_shared(specs, share) if first.io_max else ()
        return shared, f"vCPUs share cores: its guests {fault.why}"


def _placed(submission: Submission, policy: Policy, node: str) -> tuple[GuestSpec, ...]:
    """The guests as far as placement asks; (): they have no cores of their own, for nothing."""
    resolved, pinning = submission.resolved, submission.pinning
    io = numa.io_cores(resolved.values, asked=resolved.origins[numa.IO] != SITE_DEFAULT)
    if not host_matches(policy.iocm_nodes, node):
        io = numa.IoCores()
    pinned = bool(pinning) or resolved.values[PINNING] is True
    if not pinned and not io.most:
        return ()
    wanted = PREFER_CORES if resolved.origins[PINNING] == SITE_DEFAULT else AUTO_CORES
    vcpus = resolved.figure("vcpus")
    cells, pages = numa.for_wire(resolved.values, resolved.origins, SITE_DEFAULT)
    return tuple(
        GuestSpec(
            rank=index,
            index=index,
            image="",
            distro="",
            arch="",
            vcpus=vcpus,
            ram_mib=resolved.figure("ram"),
            hypervisor=resolved.text("hypervisor"),
            fs_type="",
            host_key=_NO_KEY,
            authorized_key="",
            vcpu_cores=pinning.cores_of(index, vcpus) if pinning else wanted if pinned else "",
            other_cores=pinning.other_cores if pinning else "",
            numa=cells,
            hugepages=pages,
            io_min=io.least,
            io_max=io.most,
            io_required=io.required,
        )
        for index in range(resolved.figure("vms_per_node"))
    )


def _memory(submission: Submission, node: NodeTopology, cells: t.Collection[int]) -> str:
    """How much memory a guest has, and in what pages; of huge ones also how many its cells have set apart."""
    resolved = submission.resolved
    pages = numa.for_wire(resolved.values, resolved.origins, SITE_DEFAULT)[1]
    ram = format_mib(resolved.figure("ram"))
    if pages == "none":
        return f"{ram} in ordinary pages"
    pools = [
        f"{one.total} of {format_mib(one.kib // 1024)} in cell {cell.number}"
        for cell in node.cells
        if cell.number in cells
        for one in cell.pages
        if one.total and pages in ("auto", format_mib(one.kib // 1024))
    ]
    return f"{ram} in huge pages ({pages}; set apart: {', '.join(pools) or 'none'})"


def _cells(topology: Topology, cores: t.Collection[int]) -> tuple[int, ...]:
    """The cells in which some cores are."""
    return tuple(
        cell.number for cell in topology.cells if any(set(core.threads).intersection(cores) for core in cell.cores)
    )


class _ChosenDevice(t.NamedTuple):
    """A device as a guest would have it, of this class and near this cell (`NO_CELL`: not known)."""

    pci_class: PciClass
    address: str
    cell: int


def _choose_devices(
    submission: Submission, policy: Policy, node: NodeTopology
) -> tuple[list[list[_ChosenDevice]], str]:
    """The devices of each guest, and in words which of them the node has not enough of."""
    count = submission.resolved.figure("vms_per_node")
    found: list[list[_ChosenDevice]] = [[] for _guest in range(count)]
    bad = {one.address for one in node.devices if one.state in (QUARANTINE, UNUSABLE)}
    near = {one.address: one.cell for one in node.devices}
    lacking: list[str] = []
    taken: set[str] = set()
    classes = classes_on(policy.pci_classes, node.node)
    for wish in read_wishes(submission.resolved.values["pci"]):
        pci_class = next((one for one in classes if wish.what in (one.name, *one.addresses)), None)
        wanted = () if pci_class is None else (wish.what,) if wish.is_address else pci_class.addresses
        for guest in found:
            free = [address for address in wanted if address not in bad and address not in taken][: wish.count]
            if pci_class is None or len(free) < wish.count:
                lacking.append(f"{node.node} has no {wish} left for each guest")
                continue
            taken.update(free)
            guest += [_ChosenDevice(pci_class, address, near.get(address, NO_CELL)) for address in free]
    return found, "; ".join(dict.fromkeys(lacking))


def _describe(devices: t.Iterable[_ChosenDevice]) -> tuple[str, ...]:
    return tuple(map(_describe_device, devices))


def _describe_device(device: _ChosenDevice) -> str:
    where = "" if device.cell == NO_CELL else f" in cell {device.cell}"
    # which one, its allocation says when the job starts
    resource = device.pci_class.resource
    given = f", or another that the batch system gives ({resource})" if resource else ""
    return f"{device.pci_class.name} {device.address}{where}{given}"

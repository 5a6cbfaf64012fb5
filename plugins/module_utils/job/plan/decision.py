# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root decides of a job from the batch server's word: what it gets, on which nodes, for whom, or why not."""

from __future__ import annotations

import re
import typing as t

from ...errors import SiteFault, UserFault
from ...text import format_mib
from ...wire.messages import HOST_NAME, Owner
from ...wire.pci import DeviceWish
from ..admission import mixed, osv, start_directory, vcpu_map
from ..admission.request_devices import rdma_for_wire, wishes_for_wire
from ..admission.resolve import Offers, ResolvedRequest, resolve
from ..admission.resources import demand
from ..batch.api import BatchJob
from ..batch.registry import Terms, open_node, open_terms
from ..batch.vm_job import VmJob, vm_job_of
from ..config.consistency import job_log_level
from ..config.parameters import Policy
from ..request.demand import Demand, parse_batch_memory
from ..request.keys import PINNING
from ..request.request import Request
from ..request.value_types import format_value

ASKS_BY_ITSELF = "vsub asks for enough by itself"


class JobDecision(t.NamedTuple):
    """What a job gets, on which of its nodes, for whom."""

    request: Request
    resolved: ResolvedRequest
    nodes: tuple[str, ...]
    vm_nodes: tuple[str, ...]
    spares: tuple[str, ...]
    owner: Owner
    pinning: vcpu_map.VcpuMap | None
    devices: tuple[DeviceWish, ...]
    rdma: str
    log_level: str

    @property
    def bare(self) -> bool:
        """Return whether some of its nodes stay bare."""
        return len(self.vm_nodes) + len(self.spares) < len(self.nodes)


def decide(
    job: BatchJob,
    policy: Policy,
    offers: Offers,
    node_file: str | None,
    find_owner: t.Callable[[str, str], Owner],
    pinning: vcpu_map.VcpuMap | None,
) -> JobDecision:
    """Read the request afresh, and compare it with what the batch server gave; see `make_plan`."""
    terms = open_terms(policy.batch_system)
    _check_job_type(job, terms)
    request = mixed.with_spare_count(_vm_job(job, terms).request, 0)
    resolved = resolve(request, policy, offers)
    nodes = _nodes(job)
    spares = _spares(resolved, nodes, terms)
    if node_file is not None:
        open_node(policy.batch_system).check_node_file(node_file, job.slot_hosts)
    vm_nodes = _vm_nodes(job, resolved, nodes[: len(nodes) - len(spares)], terms)
    if pinning:
        figures = resolved.figure("vms_per_node"), resolved.figure("vcpus")
        vcpu_map.check(pinning, resolved.text(PINNING), *figures)
    # each of the spare nodes may have the guests of any other
    _check_resources(job, (*vm_nodes, *spares), demand(resolved, policy, pinning), terms)
    owner = find_owner(_owner_name(job, terms), job.egroup)
    _check_start_directory(job, owner, policy, terms)
    devices = wishes_for_wire(resolved.values["pci"], policy)
    _check_devices(job, devices)
    rdma = rdma_for_wire(resolved.values["vrdma"], policy, (*vm_nodes, *spares))
    level = job_log_level(policy, request.log)
    return JobDecision(request, resolved, nodes, vm_nodes, spares, owner, pinning, devices, rdma, level)


def _check_job_type(job: BatchJob, terms: Terms) -> None:
    if job.jobtype:
        why = "a job type makes the batch system run other hooks than those that look after the guests"
        raise UserFault(
            f"{terms.JOB_TYPE} {format_value(job.jobtype)}", why, f"submit the job without {terms.JOB_TYPE}"
        )


def _vm_job(job: BatchJob, terms: Terms) -> VmJob:
    vm_job = vm_job_of(job)
    if vm_job is None:
        why = "it is marked as a VM job, and holds no request"
        remedy = f"submit the job with vsub, and leave {terms.REQUEST} as it is"
        raise UserFault(f"job {format_value(job.job_id)}", why, remedy)
    return vm_job


def _nodes(job: BatchJob) -> tuple[str, ...]:
    if not job.nodes:
        raise SiteFault(f"job {format_value(job.job_id)}", "the batch server names no node of it")
    for node in job.nodes:
        if not re.fullmatch(HOST_NAME, node):
            raise SiteFault(f"node {format_value(node)}", "not of the form of a host name")
    return job.nodes


def _check_devices(job: BatchJob, wishes: t.Sequence[DeviceWish]) -> None:
    """Refuse a job whose devices would be given to it and used by nobody."""
    devices = job.resource_list.get("devices")
    if devices and not wishes:
        why = "devices that the batch system gives to a job reach no guest by themselves"
        raise UserFault(format_value(devices), why, "submit the job with -vm pci=CLASS:N, or without them")


def _check_resources(job: BatchJob, vm_nodes: t.Sequence[str], need: Demand, terms: Terms) -> None:
    for node in vm_nodes:
        slots = job.slot_hosts.count(node)
        if slots < need.cores:
            why = f"the job has {slots} of the {need.cores} that its guests need on {node}: {need.cores_sum}"
            raise UserFault(f"{terms.SLOTS}={slots}", why, ASKS_BY_ITSELF)
    asked = job.resource_list.get("mem", "")
    if job.memory_uncounted:
        why = f"the batch system counts none in {format_value(job.queue)}, and may give it to other jobs too"
        raise SiteFault("memory of the job", why, "set it to count memory there: the administrator's manual has how")
    # that of the whole job; without any the scheduler would give the same memory to another job as well
    if (parse_batch_memory(asked) or 0) < need.mem_mib * len(vm_nodes):
        each = f", on each of {len(vm_nodes)} nodes" if len(vm_nodes) > 1 else ""
        why = f"its guests need {format_mib(need.mem_mib * len(vm_nodes))}: {need.mem_sum}{each}"
        raise UserFault(f"{terms.MEMORY}={format_value(asked)}" if asked else f"no {terms.MEMORY}", why, ASKS_BY_ITSELF)


def _vm_nodes(job: BatchJob, resolved: ResolvedRequest, nodes: tuple[str, ...], terms: Terms) -> tuple[str, ...]:
    """Return which of a job's nodes have guests."""
    if why := mixed.objection(resolved, len(nodes), terms):
        raise UserFault(f"nodes={resolved.figure(mixed.KEY)}", why, "submit the job with fewer VM nodes or more hosts")
    faults = (
        *osv.objections(resolved, len(nodes), terms),
        *osv.refused_options(resolved, terms, interactive=job.interactive),
    )
    if faults:
        first = faults[0]
        what = first.key if first.key.startswith("-") else f"{first.key}={first.value}"
        raise UserFault(what, first.message, "see the user manual on OSv")
    return nodes[: mixed.vm_hosts(resolved, len(nodes))]


def _spares(resolved: ResolvedRequest, nodes: tuple[str, ...], terms: Terms) -> tuple[str, ...]:
    """The job's last nodes, which have no guests until they take the place of another."""
    count = resolved.figure(mixed.SPARE)
    if why := mixed.spare_objection(count, len(nodes), terms):
        raise UserFault(f"spare={count}", why, "submit the job with vsub, which asks for them itself")
    return nodes[len(nodes) - count :]


def _check_start_directory(job: BatchJob, owner: Owner, policy: Policy, terms: Terms) -> None:
    """Where the server shows the job's variables; else the guest itself says that there is no such directory."""
    directory = open_node(policy.batch_system).start_directory(job)
    if directory and (why := start_directory.objection(directory, policy, owner.home)):
        raise UserFault(f"the start directory {format_value(directory)}", why, terms.OTHER_DIRECTORY)


def _owner_name(job: BatchJob, terms: Terms) -> str:
    if not job.euser:
        what = f"job {format_value(job.job_id)}"
        raise SiteFault(what, "neither the batch server nor our hook says as whom it runs", "see hooks in vmgr doctor")
    if job.euser != job.owner_user:
        why = f"it would run as {format_value(job.euser)}, and its owner is {format_value(job.owner_user)}"
        raise UserFault(f"job {format_value(job.job_id)}", why, terms.AS_OWNER)
    return job.euser

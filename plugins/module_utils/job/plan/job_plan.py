# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root makes of a job: its owner, its nodes, and the guests of each of them.

Everything here starts from the batch server's word.  The request in the job is read and decided again, as if nobody
had looked at it before; the node file is believed only where it says what the server says
(`NodeAdapter.check_node_file`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t

from ... import guest_saving
from ...effects import leaves_nothing
from ...errors import SiteFault, UserFault
from ...frozen import frozen
from ...state.layout import job_key
from ...text import format_mib
from ...wire.form import FormError, from_dict, to_dict
from ...wire.messages import (
    ABSOLUTE_PATH,
    AUTO_CORES,
    HOST_NAME,
    JOB_ID,
    PREFER_CORES,
    Additions,
    DeviceWish,
    GuestSpec,
    KeyPair,
    NodePart,
    Owner,
)
from ...wire.messages import VERSION as NODE_PART_VERSION
from ..admission import mixed, numa, osv, start_directory, vcpu_map
from ..admission.host_devices import rdma_for_wire, wishes_for_wire
from ..admission.resolve import SITE_DEFAULT, Offers, Resolved, checkpoint_minutes, resolve, survival_of
from ..admission.resources import demand
from ..batch.api import BatchJob
from ..batch.registry import Terms, open_node, open_terms
from ..batch.vm_job import VmJob, vm_job_of
from ..config.consistency import job_log_level
from ..config.parameters import Policy
from ..request.keys import IMAGE, PINNING
from ..request.request import Request
from ..request.sizes import Demand, mem_mib
from ..request.value_types import format_value
from .owner import owner_of
from .ssh_keys import make_key

VERSION = 1
MAX_JSON = 1 << 22
NO_ADDITIONS = Additions()
ASKS_BY_ITSELF = "vsub asks for enough by itself"


def _text(pattern: str) -> t.Any:
    return dataclasses.field(metadata={"pattern": pattern})  # pylint: disable=invalid-field-call


def _number(low: int, high: int) -> t.Any:
    return dataclasses.field(metadata={"low": low, "high": high})  # pylint: disable=invalid-field-call


@frozen
@leaves_nothing
class JobPlan:
    """One start of one job, decided.  Its JSON holds private keys: it is written for root alone.

    Attributes:
        job_key: with which the job's user enters the guests.
        node_parts: what each node is asked for, in the job's order of nodes.
        start: its number, as the server counts starts.
        mother_superior: the job's first node, as the server spells it.
        user_shell: the user's own `-S`, or "" for the login shell of passwd.
        directory: where the job was submitted or starts, as the batch server has it; "": it has none.
        additions: the user's own, to every guest; once here, and in `parts` for each node that has guests.
        survival: what the job's guests live through, for its record.
        inputs: the plan's identity: the digest of all that it was made of (`bridge/planning.py`).
    """

    owner: Owner
    job_key: KeyPair
    node_parts: tuple[NodePart, ...]
    version: int = _number(VERSION, VERSION)
    job_id: str = _text(JOB_ID)
    start: int = _number(0, 2**31)
    mother_superior: str = _text(HOST_NAME)
    user_shell: str = _text(f"({ABSOLUTE_PATH})?")
    directory: str = dataclasses.field(  # pylint: disable=invalid-field-call
        default="", metadata={"pattern": f"({ABSOLUTE_PATH})?"}
    )
    additions: Additions = NO_ADDITIONS
    survival: guest_saving.Survival = guest_saving.Survival()
    inputs: str = dataclasses.field(  # pylint: disable=invalid-field-call
        default="", metadata={"pattern": "([0-9a-f]{64})?"}
    )

    @property
    def bare(self) -> dict[str, int]:
        """The hosts that stay bare, in the job's order of nodes, and how often the job's node file names each."""
        return {part.node: part.bare_slots for part in self.node_parts if part.bare_slots}

    @property
    def parts(self) -> dict[str, NodePart]:
        """What each node is asked for, by the node's name."""
        return {
            part.node: dataclasses.replace(part, additions=self.additions) if part.guests else part
            for part in self.node_parts
        }

    @property
    def decision(self) -> str:
        """Return the SHA-256, in hexadecimal, of all that the plan decides.

        Two plans of a start that decide the same differ in what is made anew for each: keys.  The time that the nodes
        get is no part of it either, for it is told when they are asked; nor is what decided nothing of the inputs.
        """
        decided = to_dict(self)
        del decided["job_key"], decided["inputs"]
        for part in decided["node_parts"]:
            del part["timeout_s"]
            for guest in part["guests"]:
                del guest["host_key"], guest["authorized_key"]
        text = json.dumps(decided, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    def to_json(self) -> str:
        """The plan in one line, private keys included."""
        return json.dumps(to_dict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        """The plan that `to_json` wrote.

        Args:
            text: one JSON document, of at most 4 MiB.

        Returns:
            The plan.

        Raises:
            FormError: the text is not of the form of a plan, or its parts are not of one job.
        """
        if len(text) > MAX_JSON:
            raise FormError("JobPlan", f"{len(text)} characters, at most {MAX_JSON} are read")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormError("JobPlan", f"not JSON: {error}") from None
        plan = from_dict(cls, data)
        nodes = [part.node for part in plan.node_parts]
        if plan.mother_superior not in nodes or len(set(nodes)) != len(nodes):
            raise FormError("JobPlan.node_parts", "each node has one part, and the mother superior is one of them")
        if any(
            (part.job_id, part.start, part.owner) != (plan.job_id, plan.start, plan.owner) for part in plan.node_parts
        ):
            raise FormError("JobPlan.node_parts", "a part belongs to another job")
        if any(bool(part.bare_slots) == bool(part.guests) for part in plan.node_parts):
            raise FormError("JobPlan.node_parts", "a node has guests, or it stays bare")
        if any(part.additions.any for part in plan.node_parts):
            raise FormError("JobPlan.node_parts", "the additions to guests stand in the plan itself")
        if plan.mother_superior in plan.bare:
            raise FormError("JobPlan.node_parts", "the job script runs in a guest of the mother superior")
        return plan


def make_plan(
    job: BatchJob,
    policy: Policy,
    offers: Offers,
    *,
    node_file: str | None,
    timeout_s: float,
    find_owner: t.Callable[[str, str], Owner] | None = None,
    additions: Additions = NO_ADDITIONS,
    pinning: vcpu_map.VcpuMap | None = None,
    inputs: str = "",
) -> JobPlan:
    """Decide what a job that was just started gets.

    Args:
        job: the batch server's word.
        policy: the site's configuration, on the mother superior.
        offers: the images of the pool and what the nodes' libvirt offers.
        node_file: content of the file by which the batch system tells the job its nodes; None: there is none.
        timeout_s: seconds that a node has to answer, from the reading of its part.
        find_owner: from the names of user and group to the owner; `owner_of` unless they were looked up already.
        additions: the user's own to their guests, checked against the policy (`metadata.py`).
        pinning: the user's map of vCPUs; None: they have none.
        inputs: the digest of all that it is made of, by which it is taken over; "": nobody will.

    Returns:
        The plan, read back as the nodes will read it.

    Raises:
        UserFault: the job cannot have what it asks for, or tries what a VM job must not.
        SiteFault: the batch server's word has a gap, or the owner is not known on this node.
    """
    decided = _decide(job, policy, offers, node_file, find_owner or owner_of, pinning)
    key = make_key(_comment("job", job))
    plan = JobPlan(
        version=VERSION,
        job_id=job.job_id,
        start=job.start_count,
        mother_superior=decided.nodes[0],
        owner=decided.owner,
        user_shell=decided.resolved.shell,
        directory=job.init_work_dir if re.fullmatch(ABSOLUTE_PATH, job.init_work_dir) else "",
        job_key=key,
        additions=additions,
        survival=survival_of(
            decided.resolved, policy, offers, interactive=job.interactive, bare=decided.vm_nodes != decided.nodes
        ),
        inputs=inputs,
        node_parts=tuple(_node_part(job, decided, rank, timeout_s, key.public) for rank in range(len(decided.nodes))),
    )
    # dataclasses take anything: what the nodes would refuse to read is found here, before anything is made
    return JobPlan.from_json(plan.to_json())


class _Decided(t.NamedTuple):
    """What a job gets, on which of its nodes, for whom."""

    request: Request
    resolved: Resolved
    nodes: tuple[str, ...]
    vm_nodes: tuple[str, ...]
    owner: Owner
    pinning: vcpu_map.VcpuMap | None
    devices: tuple[DeviceWish, ...]
    rdma: str
    log_level: str


def _decide(
    job: BatchJob,
    policy: Policy,
    offers: Offers,
    node_file: str | None,
    find_owner: t.Callable[[str, str], Owner],
    pinning: vcpu_map.VcpuMap | None,
) -> _Decided:
    """Read the request afresh, and compare it with what the batch server gave; see `make_plan`."""
    terms = open_terms(policy.batch_system)
    _check_job_type(job, terms)
    request = _vm_job(job, terms).request
    resolved = resolve(request, policy, offers)
    nodes = _nodes(job)
    if node_file is not None:
        open_node(policy.batch_system).check_node_file(node_file, job.slot_hosts)
    vm_nodes = _vm_nodes(job, resolved, nodes, terms)
    if pinning:
        figures = resolved.figure("vms_per_node"), resolved.figure("vcpus")
        vcpu_map.check(pinning, resolved.word(PINNING), *figures)
    _check_resources(job, vm_nodes, demand(resolved, policy, pinning), terms)
    owner = find_owner(_owner_name(job, terms), job.egroup)
    _check_start_directory(job, owner, policy, terms)
    devices = wishes_for_wire(resolved.values["pci"], policy)
    _check_devices(job, devices)
    rdma = rdma_for_wire(resolved.values["vrdma"], policy, vm_nodes)
    level = job_log_level(policy, request.log)
    return _Decided(request, resolved, nodes, vm_nodes, owner, pinning, devices, rdma, level)


def _node_part(job: BatchJob, decided: _Decided, rank: int, timeout_s: float, authorized_key: str) -> NodePart:
    """What a node gets: guests, or a bare host."""
    node = decided.nodes[rank]
    has_guests = node in decided.vm_nodes
    return NodePart(
        version=NODE_PART_VERSION,
        do="present",
        job_id=job.job_id,
        start=job.start_count,
        node=node,
        timeout_s=timeout_s,
        owner=decided.owner,
        guests=_guests(job, decided, rank, authorized_key) if has_guests else (),
        bare_slots=0 if has_guests else job.slot_hosts.count(node),
        log_level=decided.log_level,
        checkpoint_min=checkpoint_minutes(decided.resolved),
    )


def _check_job_type(job: BatchJob, terms: Terms) -> None:
    if job.jobtype:
        why = "a job type makes the batch system run other hooks than those that look after the guests"
        raise UserFault(
            f"{terms.JOB_TYPE} {format_value(job.jobtype)}", why, f"submit the job without {terms.JOB_TYPE}"
        )


def _guests(job: BatchJob, decided: _Decided, node_rank: int, authorized_key: str) -> tuple[GuestSpec, ...]:
    resolved, pinning = decided.resolved, decided.pinning
    # what nobody asked for stops no job
    wanted = PREFER_CORES if resolved.origins[PINNING] == SITE_DEFAULT else AUTO_CORES
    chosen = wanted if resolved.values[PINNING] is True else ""
    per_node = resolved.figure("vms_per_node")
    cells, pages = numa.for_wire(resolved.values, resolved.origins, SITE_DEFAULT)
    io = numa.io_cores(resolved.values, asked=resolved.origins[numa.IO] != SITE_DEFAULT)
    return tuple(
        GuestSpec(
            rank=node_rank * per_node + index,
            index=index,
            image=resolved.word("img"),
            distro=resolved.word("distro"),
            arch=resolved.word("arch"),
            vcpus=resolved.figure("vcpus"),
            ram_mib=resolved.figure("ram"),
            hypervisor=resolved.word("hypervisor"),
            fs_type=resolved.word("fs_type"),
            host_key=make_key(_comment(f"guest-{node_rank * per_node + index}", job)),
            authorized_key=authorized_key,
            data_disk=resolved.word("disk") if node_rank == index == 0 else "",
            image_digest=decided.request.digests.get(IMAGE, ""),
            vcpu_cores=pinning.cores_of(index, resolved.figure("vcpus")) if pinning else chosen,
            other_cores=pinning.other_cores if pinning else "",
            pci=decided.devices,
            numa=cells,
            hugepages=pages,
            shared_mib=resolved.figure("unclot_shmem") if resolved.values["unclot"] is True else 0,
            rdma=decided.rdma,
            warm=resolved.values["warm"] is True,
            io_min=io.least,
            io_max=io.most,
            io_required=io.required,
        )
        for index in range(per_node)
    )


def _comment(what: str, job: BatchJob) -> str:
    return f"{what}@{job_key(job.job_id, job.start_count)}"[:100]


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
    # that of the whole job; without any the scheduler would give the same memory to another job as well
    if (mem_mib(asked) or 0) < need.mem_mib * len(vm_nodes):
        each = f", on each of {len(vm_nodes)} nodes" if len(vm_nodes) > 1 else ""
        why = f"its guests need {format_mib(need.mem_mib * len(vm_nodes))}: {need.mem_sum}{each}"
        raise UserFault(f"{terms.MEMORY}={format_value(asked)}" if asked else f"no {terms.MEMORY}", why, ASKS_BY_ITSELF)


def _vm_nodes(job: BatchJob, resolved: Resolved, nodes: tuple[str, ...], terms: Terms) -> tuple[str, ...]:
    """Those of a job's nodes that have guests."""
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


def _check_start_directory(job: BatchJob, owner: Owner, policy: Policy, terms: Terms) -> None:
    """Where the server shows the job's variables; else the guest itself says that there is no such directory."""
    directory = open_node(policy.batch_system).start_directory(job)
    if directory and (why := start_directory.objection(directory, policy, owner.home)):
        raise UserFault(f"the start directory {format_value(directory)}", why, terms.OTHER_DIRECTORY)


def _owner_name(job: BatchJob, terms: Terms) -> str:
    if not job.euser:
        raise SiteFault(f"job {format_value(job.job_id)}", "the batch server does not say as whom it runs")
    if job.euser != job.owner_user:
        why = f"it would run as {format_value(job.euser)}, and its owner is {format_value(job.owner_user)}"
        raise UserFault(f"job {format_value(job.job_id)}", why, terms.AS_OWNER)
    return job.euser

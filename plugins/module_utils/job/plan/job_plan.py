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

from ...effects import leaves_nothing
from ...eligibility import guest_saving
from ...frozen import frozen
from ...state.layout import job_key
from ...wire.form import FormError, from_dict, parse_json, to_dict
from ...wire.messages import (
    ABSOLUTE_PATH,
    AUTO_CORES,
    HOST_NAME,
    JOB_ID,
    PREFER_CORES,
    Additions,
    GuestSpec,
    KeyPair,
    NodePart,
    Owner,
)
from ...wire.messages import VERSION as NODE_PART_VERSION
from ..admission import numa, vcpu_map
from ..admission.resolve import SITE_DEFAULT, Offers, checkpoint_minutes, survival_of
from ..batch.api import BatchJob
from ..config.consistency import has_private_network
from ..config.parameters import Policy
from ..request.keys import IMAGE, PINNING
from .decision import JobDecision, decide
from .owner import owner_of
from .ssh_keys import make_key

VERSION = 1
MAX_JSON = 1 << 22
NO_ADDITIONS = Additions()


def _text(pattern: str) -> t.Any:
    return dataclasses.field(metadata={"pattern": pattern})  # pylint: disable=invalid-field-call


def _number(low: int, high: int) -> t.Any:
    return dataclasses.field(metadata={"low": low, "high": high})  # pylint: disable=invalid-field-call


@frozen
@leaves_nothing
class IdleNode:
    """A node of the job that has neither guests nor work.

    Attributes:
        failed: another node has taken its place (`spares.py`); else it is a spare one.
    """

    node: str = _text(HOST_NAME)
    failed: bool = False


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
        idle: nodes that have nothing, the spare ones in the order of their use.
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
    idle: tuple[IdleNode, ...] = ()
    inputs: str = dataclasses.field(  # pylint: disable=invalid-field-call
        default="", metadata={"pattern": "([0-9a-f]{64})?"}
    )

    @property
    def bare(self) -> dict[str, int]:
        """The hosts that stay bare, in the job's order of nodes, and how often the job's node file names each."""
        return {part.node: part.bare_slots for part in self.node_parts if part.bare_slots}

    @property
    def spares(self) -> tuple[str, ...]:
        """The nodes that may take the place of another, in the order of their use."""
        return tuple(one.node for one in self.idle if not one.failed)

    @property
    def in_use(self) -> tuple[str, ...]:
        """The nodes that have guests, that of rank 0 first, and those that stay bare."""
        return (*(part.node for part in self.parts_by_rank), *self.bare)

    @property
    def parts_by_rank(self) -> tuple[NodePart, ...]:
        """The parts with guests, that of rank 0 first, wherever its node stands in the job."""
        return tuple(sorted((part for part in self.node_parts if part.guests), key=lambda part: part.guests[0].rank))

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
        plan = from_dict(cls, parse_json(text, MAX_JSON, "JobPlan"))
        nodes = [part.node for part in plan.node_parts]
        if plan.mother_superior not in nodes or len(set(nodes)) != len(nodes):
            raise FormError("JobPlan.node_parts", "each node has one part, and the mother superior is one of them")
        if any(
            (part.job_id, part.start, part.owner) != (plan.job_id, plan.start, plan.owner) for part in plan.node_parts
        ):
            raise FormError("JobPlan.node_parts", "a part belongs to another job")
        if any(part.bare_slots and part.guests for part in plan.node_parts):
            raise FormError("JobPlan.node_parts", "a node has guests, or it stays bare")
        if sorted(one.node for one in plan.idle) != sorted({*nodes} - {*plan.in_use}):
            raise FormError("JobPlan.idle", "they are those that have nothing")
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
    decided = decide(job, policy, offers, node_file, find_owner or owner_of, pinning)
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
        survival=survival_of(decided.resolved, policy, offers, interactive=job.interactive, bare=decided.bare),
        idle=tuple(map(IdleNode, decided.spares)),
        inputs=inputs,
        node_parts=tuple(
            _node_part(job, decided, rank, timeout_s, key.public, _peers(decided, policy))
            for rank in range(len(decided.nodes))
        ),
    )
    # dataclasses take anything: what the nodes would refuse to read is found here, before anything is made
    return JobPlan.from_json(plan.to_json())


def _peers(decided: JobDecision, policy: Policy) -> str:
    """All nodes with guests, where the job has a network for itself."""
    chosen = decided.resolved.text("network").split("+")
    return " ".join(decided.vm_nodes) if has_private_network(chosen, policy) else ""


def _node_part(
    job: BatchJob, decided: JobDecision, rank: int, timeout_s: float, authorized_key: str, peers: str
) -> NodePart:
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
        bare_slots=0 if has_guests or node in decided.spares else job.slot_hosts.count(node),
        log_level=decided.log_level,
        checkpoint_min=checkpoint_minutes(decided.resolved),
        peers=peers if has_guests else "",
    )


def _guests(job: BatchJob, decided: JobDecision, node_rank: int, authorized_key: str) -> tuple[GuestSpec, ...]:
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
            image=resolved.text("img"),
            distro=resolved.text("distro"),
            arch=resolved.text("arch"),
            vcpus=resolved.figure("vcpus"),
            ram_mib=resolved.figure("ram"),
            hypervisor=resolved.text("hypervisor"),
            fs_type=resolved.text("fs_type"),
            host_key=make_key(_comment(f"guest-{node_rank * per_node + index}", job)),
            authorized_key=authorized_key,
            data_disk=resolved.text("disk") if node_rank == index == 0 else "",
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
            networks=resolved.text("network"),
        )
        for index in range(per_node)
    )


def _comment(what: str, job: BatchJob) -> str:
    return f"{what}@{job_key(job.job_id, job.start_count)}"[:100]

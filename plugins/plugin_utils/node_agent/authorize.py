# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that a message is for this node, comes from the host that may send it, and names a job that is here."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import pathlib
import pwd
import socket
import typing as t

from ...module_utils.errors import UserFault, VTorqueError
from ...module_utils.job.admission.packages import check_packages
from ...module_utils.job.batch import job_snapshot, mother_superior
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.job.batch.liveness import is_suspended
from ...module_utils.job.batch.patience import await_job
from ...module_utils.job.batch.registry import open_batch
from ...module_utils.job.config.parameters import Policy
from ...module_utils.state.layout import run_directory
from ...module_utils.system.clock import Deadline
from ...module_utils.wire.messages import CheckpointStep, LostGuest, NodePart, Suspension

SUPERIOR_ROLE = "its mother superior"


class Node(t.Protocol):
    """What is known of this node: its name, and its directories of starts."""

    @property
    def node_name(self) -> str:
        """As the node spells itself."""

    @property
    def run_dir(self) -> pathlib.Path:
        """What is true while jobs run."""

    def record_dir(self, job_id: str, start: int) -> pathlib.Path:
        """Where what outlives a start is."""


class Caller(t.NamedTuple):
    """Who asked for a part of a job, and the job.

    Attributes:
        superior: the mother superior that sent the request; "" when this node's own root did.
        job: as the batch server describes it; None where it was not needed.
    """

    superior: str
    job: BatchJob | None


def authorize_part(part: NodePart, policy: Policy, node: Node, environment: t.Mapping[str, str]) -> Caller:
    """Check that a part of a job is for this node, comes from the job's mother superior, and names a job that is here.

    This node's own root may remove what is here without the batch server.  Another host must be the mother superior
    of this start, as the server named it when the start began.  This node stores that name, so that an end needs no
    server, and a job of many nodes does not query it once a node; where none is stored, the server is queried.
    The prologue of this start has queried the server on its own node: root there does not query it again.

    Raises:
        VTorqueError: it is not; says what disagrees.
        SiteFault: the batch server does not answer, or does not know the job; a package is not on this node's list.
    """
    if not same_host(part.node, node.node_name):
        raise VTorqueError(f"node {part.node} is asked", f"this is {node.node_name}")
    connection = environment.get("SSH_CONNECTION", "")
    if part.do == "absent" and not connection:
        return Caller("", None)
    if part.do == "absent" and (led_by := _noted_superior(part, node)):
        check_host(part.job_id, led_by, connection, SUPERIOR_ROLE)
        return Caller(led_by, None)
    directory = run_directory(part.job_id, part.start, node.run_dir)
    snapshot = None if connection else job_snapshot.read_snapshot(part.job_id, directory)
    job = snapshot or _query_job(part, policy)
    if connection:
        check_peer(job, connection)
    if part.do == "present":
        # one that is suspended meanwhile keeps its nodes, and its guests are paused when they are ready
        check_job(part, job, ("R", "S"))
        if part.additions.packages:
            check_packages(part.additions, policy)
    return Caller(job.nodes[0] if connection else "", job)


def _query_job(part: NodePart, policy: Policy) -> BatchJob:
    """Return the job of a part; while guests are made, a server that is away has half of that time to come back."""
    if part.do != "present":
        return open_batch(policy).job(part.job_id)
    deadline = Deadline.after(part.timeout_s / 2)
    return await_job(open_batch(policy, deadline=deadline), part.job_id, deadline)


def _noted_superior(part: NodePart, node: Node) -> str:
    """Return the mother superior of a start as this node stored it; "": there is no name that can be read."""
    with contextlib.suppress(VTorqueError, OSError):
        return mother_superior.read_name(node.record_dir(part.job_id, part.start))
    return ""


def save_superior(part: NodePart, host: str, node: Node) -> None:
    """Store which other host leads this start: the batch server may forget the job before its end.

    Args:
        part: of the start.
        host: the mother superior.
        node: this one.

    Raises:
        VTorqueError: it was not written.
    """
    mother_superior.save_superior(host, node.record_dir(part.job_id, part.start), reader_uid=part.owner.uid)


def check_arrival(
    part: NodePart, source: str, policy: Policy, node: Node, environment: t.Mapping[str, str]
) -> BatchJob:
    """Return the job of a guest that another node wants to send here.

    Args:
        part: by which the guest was made, with this node's name.
        source: the other node.
        policy: the site's.
        node: this one.
        environment: holds SSH_CONNECTION.

    Raises:
        VTorqueError: the message is for another node, or the job has no part in the other one, or is no such job.
        SiteFault: the batch server does not answer, or does not know the job.
    """
    if not same_host(part.node, node.node_name) or part.do != "present":
        raise VTorqueError(f"node {part.node} is asked", f"this is {node.node_name}")
    job = open_batch(policy).job(part.job_id)
    check_job(dataclasses.replace(part, node=source), job)
    check_host(part.job_id, source, environment.get("SSH_CONNECTION", ""), "the node of its guest")
    return job


def is_awaited(job_id: str, start: int, node: Node) -> bool:
    """Return whether this node has stored the mother superior of a start that is here, or is to come.

    Raises:
        VTorqueError: what is stored cannot be read.
    """
    return bool(mother_superior.read_name(node.record_dir(job_id, start)))


def check_source(job_id: str, start: int, target: str, node: Node, environment: t.Mapping[str, str]) -> None:
    """Check that a message is for this node, and comes from the node that sends a guest of a start here.

    Args:
        job_id: of the job.
        start: its number.
        target: the node that the message names.
        node: this one.
        environment: holds SSH_CONNECTION.

    Raises:
        VTorqueError: it is not.
    """
    source = mother_superior.read_name(node.record_dir(job_id, start))
    if not same_host(target, node.node_name) or not source:
        raise VTorqueError(f"a move of job {job_id} to {target}", f"{node.node_name} awaits no guest of it")
    check_host(job_id, source, environment.get("SSH_CONNECTION", ""), "the node of its guest")


def check_lost(lost: LostGuest, node: Node, environment: t.Mapping[str, str], *, moved: bool = False) -> BatchJob:
    """Return the job that this node leads, and of which a sister reports a lost guest.

    Args:
        lost: the report.
        node: this one.
        environment: holds SSH_CONNECTION.
        moved: whether the guest has moved from here to the node that reports it.

    Raises:
        VTorqueError: the caller has no part in such a start here.
    """
    what = f"guest {lost.guest} of job {lost.job_id}, start {lost.start}"
    job = job_snapshot.read_snapshot(lost.job_id, run_directory(lost.job_id, lost.start, node.run_dir))
    if job is None or not job.nodes or not same_host(job.nodes[0], node.node_name):
        raise VTorqueError(what, f"{node.node_name} does not lead such a start")
    if not moved and not any(same_host(lost.node, host) for host in job.nodes[1:]):
        raise VTorqueError(what, f"{lost.node} has no part in it")
    check_host(lost.job_id, lost.node, environment.get("SSH_CONNECTION", ""), "its sister")
    return job


def check_suspension(
    message: Suspension, policy: Policy, node: Node, environment: t.Mapping[str, str], source: str = ""
) -> None:
    """Check that a message is for this node, comes from the job's mother superior, and agrees with the batch server.

    Args:
        message: that a start was suspended or resumed.
        policy: the site's.
        node: this one.
        environment: holds SSH_CONNECTION.
        source: the node from which the job's guest came here, which passes messages on; "": it is of the job.

    Raises:
        VTorqueError: it is not; says what disagrees.
        SiteFault: the batch server does not answer, or does not know the job.
    """
    job = _job_that_runs_here(message, policy, node, environment, source)
    if is_suspended(job, message.start) != (message.do == "suspend"):
        raise _other_state(message, job)


def check_checkpoint(step: CheckpointStep, policy: Policy, node: Node, environment: t.Mapping[str, str]) -> None:
    """Check that a message is for this node, and comes from the mother superior of a job that runs here.

    Args:
        step: of a checkpoint.
        policy: the site's.
        node: this one.
        environment: holds SSH_CONNECTION.

    Raises:
        VTorqueError: it is not; says what disagrees.
        SiteFault: the batch server does not answer, or does not know the job.
    """
    job = _job_that_runs_here(step, policy, node, environment)
    if job.start_count != step.start or (job.state != "R" and step.do != "let_go"):
        raise _other_state(step, job)


def _job_that_runs_here(
    message: Suspension | CheckpointStep,
    policy: Policy,
    node: Node,
    environment: t.Mapping[str, str],
    source: str = "",
) -> BatchJob:
    """Return the job of a message to this node, as the server describes it; its sender leads the job."""
    if not same_host(message.node, node.node_name):
        raise VTorqueError(_what(message), f"node {message.node} is told, this is {node.node_name}")
    job = open_batch(policy).job(message.job_id)
    if source:
        check_host(message.job_id, source, environment.get("SSH_CONNECTION", ""), "the former node of its guest")
        return job
    check_peer(job, environment.get("SSH_CONNECTION", ""))
    if not any(same_host(message.node, host) for host in job.nodes):
        raise VTorqueError(_what(message), f"it runs on {', '.join(job.nodes) or 'no node'}")
    return job


def _what(message: Suspension | CheckpointStep) -> str:
    return f"{message.do} of job {message.job_id}, start {message.start}"


def _other_state(message: Suspension | CheckpointStep, job: BatchJob) -> VTorqueError:
    return VTorqueError(_what(message), f"the server says state {job.state or 'unknown'} of start {job.start_count}")


def check_job(part: NodePart, job: BatchJob, states: t.Container[str] = ("R",)) -> None:
    """Check that the job, as the server describes it, agrees with the request.

    Args:
        part: the request.
        job: of the server.
        states: that it may be in.

    Raises:
        VTorqueError: it does not; says in what.
        UserFault: the job's user is not this node's user of that name.
    """
    what = f"job {part.job_id} on {part.node}"
    if job.job_id != part.job_id:
        raise VTorqueError(what, f"the server speaks of {job.job_id}")
    if job.state not in states:
        raise VTorqueError(what, f"its state is {job.state or 'unknown'}, not R")
    if job.start_count != part.start:
        raise VTorqueError(what, f"start {part.start} is asked for, the server is at {job.start_count}")
    if not any(same_host(part.node, host) for host in job.nodes):
        raise VTorqueError(what, f"it runs on {', '.join(job.nodes) or 'no node'}")
    owner = part.owner
    if job.euser != owner.user:
        raise VTorqueError(what, f"it is {job.euser or 'nobody'}'s, not {owner.user}'s")
    if job.owner_user != owner.user:  # by the server: as whom it runs may be known from other nodes alone
        raise VTorqueError(what, f"{job.owner_user} submitted it, not {owner.user}")
    try:
        known = pwd.getpwnam(owner.user)
    except KeyError:
        raise UserFault(what, f"user {owner.user} is not known on this node") from None
    # `qsub -W group_list=` lets a job run under another of the user's groups than their first
    member_of = os.getgrouplist(owner.user, known.pw_gid)
    if known.pw_uid != owner.uid or owner.gid not in member_of:
        raise VTorqueError(
            what,
            f"user {owner.user} is {known.pw_uid}:{known.pw_gid} here, {owner.uid}:{owner.gid} is asked for",
            "users must have the same ids on all nodes",
        )
    # a virtiofsd of this node will have these groups
    strange = [group for group in owner.groups if group.gid not in member_of]
    if strange:
        raise VTorqueError(
            what,
            f"{owner.user} is no member of group {strange[0].gid} ({strange[0].name}) here",
            "users must be in the same groups on all nodes",
        )


def check_peer(job: BatchJob, connection: str) -> None:
    """Check that the other end of the ssh connection is the job's mother superior.

    Args:
        connection: SSH_CONNECTION: address and port of the other end, then ours.

    Raises:
        VTorqueError: it is another host, or it cannot be told.
    """
    if not job.nodes:
        raise VTorqueError(f"job {job.job_id}", "has no nodes, so nobody may ask for it from elsewhere")
    check_host(job.job_id, job.nodes[0], connection, SUPERIOR_ROLE)


def check_host(job_id: str, expected: str, connection: str, role: str) -> None:
    """Check that the other end of the ssh connection is this host.

    Args:
        job_id: which job it speaks of.
        expected: host name.
        connection: SSH_CONNECTION.
        role: what that host is to the job, for messages.

    Raises:
        VTorqueError: it is another host, or it cannot be told.
    """
    peer = connection.split()[0] if connection.split() else ""
    try:
        found = socket.getaddrinfo(expected, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise VTorqueError(f"job {job_id}", f"the address of {expected} is not known here: {error}") from error
    known = {plain_address(str(entry[4][0])) for entry in found}
    if plain_address(peer) not in known:
        raise VTorqueError(
            f"job {job_id} is asked for from {peer[:64]}",
            f"that is not {role} {expected} ({', '.join(sorted(known))})",
            "on the node itself, call it outside an ssh session",
        )


def plain_address(address: str) -> str:
    """An address in its normal form; sshd may show IPv4 as mapped into IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)

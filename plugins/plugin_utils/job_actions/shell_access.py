# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root leaves in the run directory for the job's shell: the ready record, and the way to the guests."""

from __future__ import annotations

import re
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError
from ...module_utils.guest_kinds import kind_of
from ...module_utils.job.plan.job_plan import JobPlan
from ...module_utils.state import layout, records
from ...module_utils.system import files
from ...module_utils.system.process import process_id
from ...module_utils.wire.messages import GuestSpec
from ...module_utils.wire.node_answers import GuestFacts
from .action_base import JobPlace
from .node_answer import require_distinct
from .start_files import read_guests

SHELL = "VTORQUE_SHELL"
"""In the environment of the playbook: the process that becomes the job's shell, `<pid>.<start time in ticks>`."""


@leaves_nothing
def all_guests(place: JobPlace, plan: JobPlan) -> list[tuple[str, GuestFacts]]:
    """Every guest of the plan with its node, by rank.

    Args:
        place: the start of the job.
        plan: what was asked of which node.

    Returns:
        Pairs of node and guest.

    Raises:
        VTorqueError: a node has not answered for its guests, or two guests are the same.
    """
    found = [(node, facts) for node in plan.parts for facts in read_guests(place, node)]
    found.sort(key=lambda item: item[1].rank)
    wanted = sorted(guest.rank for part in plan.parts.values() for guest in part.guests)
    if [facts.rank for _node, facts in found] != wanted:
        raise VTorqueError(f"job {place.job_id} is not ready", f"{len(found)} of {len(wanted)} guests are known")
    require_distinct((facts for _node, facts in found), f"the nodes of job {place.job_id}")
    return found


def known_hosts(plan: JobPlan, guests: list[tuple[str, GuestFacts]]) -> str:
    """Lines of known_hosts: each guest by address and by name, with the key that it was given before it booted."""
    keys = {guest.rank: guest.host_key.public for part in plan.parts.values() for guest in part.guests}
    lines = []
    for _node, facts in guests:
        kind, key = keys[facts.rank].split()[:2]
        lines += [f"{facts.address} {kind} {key}\n", f"{facts.name} {kind} {key}\n"]
    return "".join(lines)


@leaves_nothing
def spec_of(plan: JobPlan, node: str, facts: GuestFacts) -> GuestSpec:
    """What was asked for the guest that a node has made."""
    return next(guest for guest in plan.parts[node].guests if guest.rank == facts.rank)


def ready_guest(plan: JobPlan, node: str, facts: GuestFacts) -> records.ReadyGuest:
    """A guest as the job's shell needs it."""
    spec = spec_of(plan, node, facts)
    kind = kind_of(spec.distro).name
    return records.ReadyGuest(
        rank=facts.rank,
        name=facts.name,
        node=node,
        address=facts.address,
        vcpus=spec.vcpus,
        kind=kind,
        gpus=spec.gpus,
        shared_mib=spec.shared_mib,
        rdma=spec.rdma,
        networks=facts.networks,
    )


def write_access(place: JobPlace, plan: JobPlan, guests: list[tuple[str, GuestFacts]]) -> None:
    """Write the way to the guests, for the job's user alone: their key, and theirs.

    Args:
        place: the start of the job.
        plan: holds the keys.
        guests: with the node of each.

    Raises:
        VTorqueError: it was not written.
    """
    uid = plan.owner.uid
    files.write(place.file(layout.JOB_KEY), plan.job_key.private, reader_uid=uid)
    files.write(place.file(layout.KNOWN_HOSTS), known_hosts(plan, guests), reader_uid=uid)


@leaves_nothing
def ready_record(
    place: JobPlace,
    plan: JobPlan,
    guests: list[tuple[str, GuestFacts]],
    bare: t.Iterable[str],
    shell: process_id.ProcessId,
) -> records.ReadyRecord:
    """The record that lets the job's shell run the job.

    Args:
        place: the start of the job.
        plan: whose job it is.
        guests: with the node of each, by rank.
        bare: the hosts that stay bare.
        shell: the process that becomes the job's shell.
    """
    return records.ReadyRecord(
        job_id=place.job_id,
        start=place.start,
        user=plan.owner.user,
        shell=shell,
        boot_id=process_id.boot_id(),
        guests=tuple(ready_guest(plan, node, facts) for node, facts in guests),
        user_shell=plan.user_shell,
        directory=plan.directory,
        bare=tuple(records.ReadyBare(node, plan.bare[node]) for node in bare),
        detached=any(part.checkpoint_min >= 0 for part in plan.node_parts),
        returned=any(spec.saved_in for part in plan.node_parts for spec in part.guests),
    )


@leaves_nothing
def shell_of(environment: t.Mapping[str, str]) -> process_id.ProcessId:
    """The process that becomes the job's shell, as the hook names it.

    Args:
        environment: holds `VTORQUE_SHELL`, `<pid>.<start time in ticks>`.

    Returns:
        The process, which lives.

    Raises:
        VTorqueError: it is not named, or is no longer there: nobody may run the job then.
    """
    text = environment.get(SHELL, "")
    if not re.fullmatch(r"(0|[1-9][0-9]{0,9})\.[0-9]{1,20}", text):
        raise VTorqueError(f"{SHELL}={text[:40]!r}", "not <pid>.<start time>, which the hook hands on")
    shell = process_id.ProcessId(*map(int, text.split(".")))
    if not shell.pid:  # it stands for a job whose shell is none of the hook's processes (`shell_link.of_job`)
        return shell
    try:
        there = process_id.ProcessId.of(shell.pid)
    except FileNotFoundError:
        there = None
    if there != shell:
        raise VTorqueError(f"process {shell}", "is gone: the batch system has given this start up")
    return shell
